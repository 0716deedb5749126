"""deploy/postgresql/serving_role.sql: who serves by it does all that serving takes, and cannot touch the books."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
import requests

from tests import bills
from tests.chat import answer, ask
from tests.conftest import PROVIDER_KEYS
from tests.patience import eventually
from tests.servers.customer import Customer
from tests.servers.databases import SeededDatabases
from tests.servers.gateway import GatewayServer
from tests.servers.process import ROOT

SCRIPT = (ROOT / "deploy/postgresql/serving_role.sql").read_text()
STAFF, PASSWORD = "staff@example.com", "correct horse battery staple"
MAINTENANCE = """
from datetime import timedelta
from django.core.management import call_command
from billing.usage import rollups
rollups.advance(1000, trail=timedelta(0), rest=timedelta(0))
call_command("maintain", "--once")
call_command("verify_ledger")
"""
FORBIDDEN = (
    "UPDATE billing_ledgerentry SET amount = 0",
    "DELETE FROM billing_ledgerentry",
    "TRUNCATE billing_ledgerentry",
    "ALTER TABLE billing_ledgerentry DISABLE TRIGGER ALL",
    "DROP TRIGGER billing_ledgerentry_append_only ON billing_ledgerentry",
    "SET session_replication_role = replica",
    "UPDATE billing_generation SET cost = 0",
    "DELETE FROM billing_generation",
    "UPDATE django_admin_log SET change_message = ''",
    "UPDATE aliases_aliasevent SET new_name = 'other'",
    "UPDATE catalogue_pricechange SET changed_at = now()",
    "DELETE FROM catalogue_pricechange",
    "INSERT INTO django_migrations (app, name, applied) VALUES ('billing', '9999', now())",
    "CREATE TABLE loot (words text)",
    "ALTER TABLE billing_wallet ADD COLUMN loot text",
    "DROP TABLE billing_wallet",
    "CREATE ROLE friend SUPERUSER",
)


@pytest.fixture
def served(seeded_databases: SeededDatabases, tmp_path: Path) -> Iterator[GatewayServer]:
    """A gateway that the owner of the tables has migrated and seeded, and that serves by a login of the role."""
    server = GatewayServer(seeded_databases, tmp_path, env=PROVIDER_KEYS | {"GATEWAY_FAILURE_DAYS": "1"})
    with closing(server):
        with closing(psycopg.connect(server.database_url, autocommit=True)) as owner:
            for _ in range(2):  # it may be run again
                owner.execute(SCRIPT.encode())
            owner.execute("DROP ROLE IF EXISTS gateway_login")
            owner.execute("CREATE ROLE gateway_login LOGIN IN ROLE gateway_serving")
        server.env["DATABASE_URL"] = server.database_url.replace("//postgres@", "//gateway_login@")
        yield server.start()
        server.stop()
        server.manage("verify_ledger").ok()


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
    """By a person of the staff, in the admin."""
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
