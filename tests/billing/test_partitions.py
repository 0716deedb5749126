"""manage.py partition_records (docs/growth.md#partitions-of-the-records) leaves nothing out and blocks nothing."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from io import StringIO

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, OperationalError, connection, transaction
from django.utils import timezone

from billing.models import FROZEN, Generation
from billing.usage import partitions
from billing.usage.verify import Verification, verify
from gateway.ids import first_uuid7
from inference.dialects import read_usage
from tests.billing.records import open_for, serve
from tests.conftest import OpenAccount, StartGateway
from tests.patience import eventually
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer

INDEXES = "SELECT replace(indexdef, ' ONLY ', ' ') FROM pg_indexes WHERE tablename = 'billing_generation'"
CONSTRAINTS = """
    SELECT pg_get_constraintdef(oid) FROM pg_constraint
    WHERE 'billing_generation'::regclass IN (conrelid, confrelid) AND conparentid = 0
"""
ANALYZED = "SELECT reltuples >= 0 FROM pg_class WHERE relname = 'billing_generation'"
MONTHS = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'billing_generation'::regclass"
GRANTS = (
    "SELECT relname || relacl::text FROM pg_class WHERE relname LIKE 'billing\\_generation%' AND relkind IN ('r', 'p')"
)
WAITING = """
    SELECT count(*) FROM pg_stat_activity
    WHERE query LIKE 'LOCK TABLE billing_generation %' AND wait_event_type = 'Lock'
"""
RECORDS = int(os.environ.get("PARTITIONED_RECORDS", "1000"))
FREE = ("prompt_price", "completion_price", "prompt_cost", "completion_cost", "cost", "cost_eur")
AN_ID = "(left(replace(record.id::text, '-', ''), 12) || left(md5(n::text), 20))::uuid"
ASKED = {"model": "sim/test/echo", "messages": [{"role": "user", "content": "Hello"}]}


@pytest.mark.only_sqlite
@pytest.mark.django_db
def test_sqlite_is_refused() -> None:
    with pytest.raises(CommandError, match="SQLite has no partitions"):
        call_command("partition_records")


@pytest.mark.django_db
def test_every_index_constraint_and_grant_stays_and_records_go_on_being_settled(proofs_at_once: None) -> None:
    account, now = open_for(), timezone.now()
    serve(account)
    execute("CREATE ROLE serving_test; GRANT SELECT, INSERT ON billing_generation TO serving_test")
    execute("ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO serving_test")
    defined = {query: rows(query) for query in (INDEXES, CONSTRAINTS)}

    assert "would make billing_generation" in run("--months", "3")
    assert not partitions.is_partitioned()
    assert "checked that every row's record exists" in run("--months", "3", "--apply")

    assert {query: rows(query) for query in (INDEXES, CONSTRAINTS)} == defined  # NOT VALID would be in the text
    adopted = rows("SELECT indexname FROM pg_indexes WHERE tablename = 'billing_generation_old'")
    assert len(adopted) == len(defined[INDEXES])
    assert all(grant.endswith("serving_test=ar/postgres}") for grant in rows(GRANTS)), rows(GRANTS)
    assert rows(MONTHS) == ["5"]  # the rows so far, three months, and the default
    first = partitions.month_after(now + partitions.MARGIN)
    serve(account)
    serve(account, id=first_uuid7(first + timedelta(days=1)))
    late = serve(account, id=first_uuid7(now + timedelta(days=2000)))
    assert rows(f"SELECT count(*) FROM billing_generation_{first:%Y_%m}") == ["1"]
    assert rows("SELECT count(*) FROM billing_generation_rest") == ["1"]
    assert Generation.objects.filter(account=account).count() == 4
    with pytest.raises(IntegrityError), transaction.atomic():  # the id stays unique across all of them
        late.save(force_insert=True)


@pytest.mark.django_db
def test_a_run_continues_one_that_was_cut_off_and_then_has_nothing_to_do(
    proofs_at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    account, now = open_for(), timezone.now()
    serve(account)
    execute(
        f"ALTER TABLE billing_generation ADD CONSTRAINT {partitions.BELOW} CHECK (id < '{first_uuid7(now)}') NOT VALID"
    )
    assert "was cut off" in (partitions.fault(now) or "")
    with monkeypatch.context() as patched:
        patched.setattr(partitions, "_scanning", cut_off_before_analyzing)
        with pytest.raises(CommandError, match="ANALYZE"):
            run("--months", "1", "--apply")
    assert rows(ANALYZED) == ["False"]
    run("--months", "1", "--apply")
    assert rows(ANALYZED) == ["True"]
    assert "--apply" in (partitions.fault(now) or "")
    assert rows(f"SELECT conname FROM pg_constraint WHERE conname = '{partitions.BELOW}'") == []
    assert "added" in run("--months", "2", "--apply")
    assert run("--months", "2", "--apply") == ""
    assert partitions.fault(now) is None
    assert "there is nothing to do" in run("--months", "2")
    (proof,) = verify(account.pk, read_usage)
    assert isinstance(proof, Verification)


def test_requests_and_listings_go_on_while_it_is_done(start_gateway: StartGateway, open_account: OpenAccount) -> None:
    server = start_gateway(WEB_CONCURRENCY="2")
    customers = [open_account(server) for _ in range(2)]
    for customer in customers:
        assert customer.http.post("/v1/chat/completions", json=ASKED).status_code == 200
    fill(server, customers[1], RECORDS)
    first_page = customers[0].http.get("/v1/generations").json()
    is_done = threading.Event()

    def serve_on(number: int) -> int:
        served = 0
        while not is_done.is_set():
            answer = customers[number].http.post("/v1/chat/completions", json=ASKED)
            assert answer.status_code == 200, answer.text
            assert "remaining_balance" in answer.json()["usage"]  # settled at once, not in the spool
            assert customers[number].http.get("/v1/generations?limit=2").status_code == 200
            served += 1
        return served

    with ThreadPoolExecutor(3) as pool, closing(psycopg.connect(server.database_url)) as reader:
        try:
            served = [pool.submit(serve_on, number) for number in range(2)]
            reader.execute("SELECT count(*) FROM billing_generation")  # in a transaction for which it has to wait
            command = pool.submit(server.manage, "partition_records", "--months", "2", "--apply")
            eventually(lambda: server.query(WAITING) == [(1,)])
            reader.rollback()
            output = command.result().ok()
            assert "partitioned" in output
            print(output)  # noqa: T201  # how long others had to wait
            after = customers[0].http.post("/v1/chat/completions", json=ASKED).headers["X-Generation-Id"]
        finally:
            is_done.set()
        for number, customer in enumerate(customers):
            served_here = served[number].result() + 1 + (RECORDS if number else 1)
            listed = customer.http.get("/v1/generations?limit=1000").json()["data"]
            assert len(listed) == min(served_here, 1000)
    assert customers[0].http.get(f"/v1/generation/{after}").status_code == 200
    assert listed_ids(customers[0], limit=2)[-1:] == [first_page["data"][0]["generation_id"]]
    assert server.query("SELECT count(*) FROM billing_checkpoint") == [(0,)]


def fill(server: GatewayServer, customer: Customer, number: int) -> None:
    """Copies the customer's only record `number` times, uninterrupted and at no cost, with a ledger entry each."""
    columns = [field.column or "" for field in Generation._meta.concrete_fields]
    whole = {name: f"terms.{name}" for name in FROZEN} | {"terms_id": "NULL"}
    free = {name: "0" for name in columns if name in FREE}
    values = ", ".join(
        {**whole, **free, "id": AN_ID, "balance_after": "wallet.balance"}.get(name, f"record.{name}")
        for name in columns
    )
    server.query(
        f"""
        WITH wallet AS (
            UPDATE billing_wallet SET seq = seq + {number} WHERE account_id = %s RETURNING account_id, balance, seq
        ), record AS (
            INSERT INTO billing_generation ({", ".join(columns)})
            SELECT {values}
            FROM wallet JOIN billing_generation record USING (account_id)
                JOIN billing_frozenterms terms ON terms.id = record.terms_id, generate_series(1, {number}) AS n
            RETURNING id, created_at
        )
        INSERT INTO billing_ledgerentry (account_id, seq, kind, amount, balance_after, generation_id, created_at)
        SELECT account_id, seq - row_number() OVER () + 1, 'usage', 0, balance, record.id, record.created_at
        FROM wallet, record
        """,
        [customer.id],
    )


def listed_ids(customer: Customer, *, limit: int) -> list[str]:
    """Returns all of the key's records, read by pages."""
    ids, page = [], customer.http.get(f"/v1/generations?limit={limit}").json()
    while "next_cursor" in page:
        ids += [record["generation_id"] for record in page["data"]]
        page = customer.http.get(f"/v1/generations?limit={limit}&after={page['next_cursor']}").json()
    return ids + [record["generation_id"] for record in page["data"]]


@pytest.fixture
def proofs_at_once() -> None:
    """Checks constraints with each statement: a table cannot be altered in a transaction with deferred checks."""
    execute("SET CONSTRAINTS ALL IMMEDIATE")


def cut_off_before_analyzing(statement: str) -> None:
    if statement.startswith("ANALYZE"):
        raise OperationalError(statement)
    execute(statement)


def run(*options: str) -> str:
    """Runs the command and returns what it prints."""
    printed = StringIO()
    call_command("partition_records", *options, stdout=printed)
    return printed.getvalue()


def execute(statements: str) -> None:
    with connection.cursor() as cursor:
        for statement in statements.split(";"):
            cursor.execute(statement)


def rows(query: str) -> list[str]:
    """Returns the query's only column, in order."""
    with connection.cursor() as cursor:
        cursor.execute(query)
        return sorted(str(row[0]) for row in cursor.fetchall())
