"""A gateway with the role of gateway/db/serving_role.sql can do all that serving takes, and cannot touch the books."""

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
import requests
from psycopg import sql

from tests import bills
from tests.chat import answer, ask
from tests.conftest import PROVIDER_KEYS
from tests.patience import eventually
from tests.servers.customer import Customer
from tests.servers.databases import FreshDatabases, SeededDatabases
from tests.servers.gateway import GatewayServer
from tests.servers.process import ROOT

STAFF, PASSWORD = "staff@example.com", "correct horse battery staple"
MAINTENANCE = """
from datetime import timedelta
from django.core.management import call_command
from billing.usage import rollups
rollups.advance(1000, trail=timedelta(0), rest=timedelta(0))
call_command("maintain", "--once")
call_command("verify_ledger")
"""
SERVING_ROLE = """DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'gateway_serving') THEN CREATE ROLE gateway_serving; END IF;
END $$"""
FORBIDDEN = (
    "UPDATE billing_ledgerentry SET amount = 0",
    "DELETE FROM billing_ledgerentry",
    "TRUNCATE billing_ledgerentry",
    "ALTER TABLE billing_ledgerentry DISABLE TRIGGER ALL",
    "DROP TRIGGER billing_ledgerentry_append_only ON billing_ledgerentry",
    "SET session_replication_role = replica",
    "UPDATE billing_generation SET cost = 0",
    "DELETE FROM billing_generation",
    "UPDATE accounts_auditevent SET action = 'other'",
    "DELETE FROM accounts_auditevent",
    "TRUNCATE accounts_auditevent",
    "UPDATE django_admin_log SET change_message = ''",
    "UPDATE aliases_aliasevent SET new_name = 'other'",
    "UPDATE catalogue_pricechange SET changed_at = now()",
    "DELETE FROM catalogue_pricechange",
    "UPDATE catalogue_figurechange SET since = now()",
    "DELETE FROM catalogue_figurechange",
    "INSERT INTO django_migrations (app, name, applied) VALUES ('billing', '9999', now())",
    "CREATE TABLE loot (words text)",
    "ALTER TABLE billing_wallet ADD COLUMN loot text",
    "DROP TABLE billing_wallet",
    "CREATE ROLE friend SUPERUSER",
)


@pytest.fixture
def served(seeded_databases: SeededDatabases, tmp_path: Path) -> Iterator[GatewayServer]:
    """Starts a gateway that the tables' owner has migrated and seeded, and that serves with a login of the role."""
    server = GatewayServer(seeded_databases, tmp_path, env=PROVIDER_KEYS | {"GATEWAY_FAILURE_DAYS": "1"})
    with closing(server):
        login = f"gateway_login_{server.port}"  # roles belong to the whole server, which other tests use
        server.env["DATABASE_URL"] = server.database_url.replace("//postgres@", f"//{login}:hunter2@")
        for _ in range(2):  # each upgrade runs it again
            server.manage_subprocess("migrate", "--no-input", MIGRATE_DATABASE_URL=server.database_url).ok()
        yield server.start()
        server.stop()
        server.manage("verify_ledger").ok()
        with closing(psycopg.connect(server.database_url, autocommit=True)) as owner:
            owner.execute(of_roles("DROP ROLE {}", login))


def test_everything_is_served_and_the_books_cannot_be_changed(served: GatewayServer) -> None:
    with closing(Customer.open(served)) as customer:
        usage = answer(customer, "echo")["usage"]
        assert ask(customer, "echo", stream=True).status_code == 200
        assert ask(customer, "no-such-model").status_code == 404
        assert len(bills.records(customer)) == 2
        assert bills.debits(customer)[0] == bills.exact(usage["cost"])
        alias = customer.http.post("/v1/aliases", json={"name": "fast", "target": "sim/test/echo/FRPAR"})
        assert alias.status_code == 201
        assert customer.http.patch("/v1/aliases/fast", json={"name": "faster"}).status_code == 200
        assert customer.http.delete("/v1/aliases/faster").status_code == 204
        assert eventually(lambda: served.query("SELECT count(*) FROM billing_requestfailure") == [(1,)])
        book_credit(served, customer)
        assert bills.balance(customer) > 124
        served.manage_subprocess("shell", "--command", MAINTENANCE).ok()
        assert served.query("SELECT sum(requests) FROM billing_dailyusage") == [(2,)]
        before = bills.debits(customer)
        forbidden(served)
        assert bills.debits(customer) == before
    assert "permission denied" not in served.log


def test_an_owner_that_may_not_create_roles_reads_what_to_do(
    migrated_databases: FreshDatabases, tmp_path: Path
) -> None:
    with closing(GatewayServer(migrated_databases, tmp_path)) as server:
        owner, login = f"gateway_owner_{server.port}", f"gateway_login_{server.port}"
        migrating = server.database_url.replace("//postgres@", f"//{owner}@")
        server.env["DATABASE_URL"] = server.database_url.replace("//postgres@", f"//{login}@")
        with closing(psycopg.connect(server.database_url, autocommit=True)) as superuser:
            superuser.execute(of_roles("CREATE ROLE {} LOGIN IN ROLE postgres", owner))  # no superuser itself
            done = server.manage_subprocess("migrate", "--no-input", MIGRATE_DATABASE_URL=migrating)
            assert done.code == 1
            assert f"may not make or give the roles gateway_serving and {login}." in done.stderr
            superuser.execute(SERVING_ROLE)
            superuser.execute(of_roles("CREATE ROLE {} LOGIN IN ROLE gateway_serving", login))
            server.manage_subprocess("migrate", "--no-input", MIGRATE_DATABASE_URL=migrating).ok()
            server.manage_subprocess("list_accounts").ok()
            superuser.execute(of_roles("DROP OWNED BY {}", owner))
            superuser.execute(of_roles("DROP ROLE {}", owner))
            superuser.execute(of_roles("DROP ROLE {}", login))


@pytest.mark.long
@pytest.mark.parametrize("document", ["deployment", "security"])
def test_the_roles_of_the_document_migrate_and_serve(
    migrated_databases: FreshDatabases, tmp_path: Path, document: str
) -> None:
    with closing(GatewayServer(migrated_databases, tmp_path)) as server:
        owner, login = f"gateway_owner_{server.port}", f"gateway_login_{server.port}"
        at = server.database_url.partition("@")[2].rpartition("/")[0]
        urls = [f"postgres://{role}@{at}/{owner}" for role in (owner, login)]
        lines = re.findall(r"^    (CREATE .*;)$", (ROOT / "docs" / f"{document}.md").read_text(), re.MULTILINE)
        assert len(lines) == 4
        with closing(psycopg.connect(server.database_url, autocommit=True)) as superuser:
            superuser.execute(SERVING_ROLE)
            for line in lines:
                if line == "CREATE ROLE gateway_serving NOLOGIN;":  # shared by the whole server
                    continue
                ours = line.replace("gateway_owner", owner).replace("DATABASE gateway", f"DATABASE {owner}")
                superuser.execute(ours.replace("ROLE gateway LOGIN", f"ROLE {login} LOGIN").encode())
            env = {"DATABASE_URL": urls[1]}
            server.manage_subprocess("migrate", "--no-input", **env, MIGRATE_DATABASE_URL=urls[0]).ok()
            server.manage_subprocess("create_account", "acme", "--credit", "100", **env).ok()
            with closing(psycopg.connect(urls[1], autocommit=True)) as serving:
                assert serving.execute("SELECT count(*) FROM billing_ledgerentry").fetchall() == [(1,)]
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    serving.execute("DELETE FROM billing_ledgerentry")
            superuser.execute(of_roles("DROP DATABASE {} WITH (FORCE)", owner))
            superuser.execute(of_roles("DROP ROLE {}", login))
            superuser.execute(of_roles("DROP ROLE {}", owner))


def of_roles(statement: str, role: str) -> sql.Composed:
    return sql.SQL(statement).format(sql.Identifier(role))


def test_who_leaves_is_closed_by_it_and_forgotten_by_the_owner_alone(served: GatewayServer, tmp_path: Path) -> None:
    served.manage_subprocess("create_account", "Acme", "--owner", "ada@acme.example").ok()
    statement = str(tmp_path / "final.csv")
    served.manage_subprocess("close_account", "Acme", "--reason", "Moved away", "--statement", statement).ok()
    kept = "SELECT (SELECT name FROM accounts_account), (SELECT email FROM accounts_user), count(*) FROM "
    kept += "accounts_membership"
    commands = (("forget_account", "Acme"), ("forget_person", "ada@acme.example"))
    for command in commands:
        assert "permission denied" in served.manage_subprocess(*command).stderr
    assert served.query(kept) == [("Acme", "ada@acme.example", 1)]
    for command in commands:
        served.manage_subprocess(*command, DATABASE_URL=served.database_url).ok()
    ((name, person, members),) = served.query(kept)
    assert (name == "Acme", person, members) == (False, None, 0)


def book_credit(server: GatewayServer, customer: Customer) -> None:
    """Books credit in the admin, as a member of the staff."""
    server.manage_subprocess(
        "createsuperuser", "--noinput", f"--email={STAFF}", DJANGO_SUPERUSER_PASSWORD=PASSWORD
    ).ok()
    form = {"kind": "grant", "amount": "25", "reference": "invoice 17", "reason": "Paid.", "confirmed": "Confirm"}
    with requests.Session() as browser:
        browser.trust_env = False
        for path, fields in (
            ("/login", {"username": STAFF, "password": PASSWORD}),
            (f"/admin/accounts/account/{customer.id}/credit/", form),
        ):
            browser.get(f"{server.origin}{path}", timeout=10)
            token = {"csrfmiddlewaretoken": browser.cookies["csrftoken"]}
            assert browser.post(f"{server.origin}{path}", fields | token, timeout=10).ok


def forbidden(server: GatewayServer) -> None:

    with closing(psycopg.connect(server.env["DATABASE_URL"], autocommit=True)) as login:
        for statement in FORBIDDEN:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                login.execute(statement.encode())
