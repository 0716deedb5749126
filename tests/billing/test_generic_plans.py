"""No statement scans a whole table of past rows, even if it is planned once for all values.

PostgreSQL plans prepared statements like this. If one account has all records, such a plan expects many rows for every
value: a search without an order may then look cheaper by a scan of the whole table than by an index.
"""

import re

import pytest
from django.db import connection

from accounts.models import User
from aliases.resolve import BY_NAME
from billing import maintenance
from billing.ledger import booking as ledger
from billing.ledger.settling_statement import settling_statement
from billing.models import RequestFailure
from billing.usage import rollups
from billing.usage.request_failures import drop_some, failure_log
from catalogue.routing import snapshot
from gateway.server.hooks import Periodic, worker_hooks
from inference.authentication import BALANCE, KEY_WITH_ACCOUNT
from tests import every_admin_page
from tests.billing.api import Holder
from tests.billing.plans import update_statistics
from tests.dashboard.people import client_of
from tests.every_page import OWNER, Acme
from tests.factories import forget_snapshot, served

pytestmark = [
    pytest.mark.django_db(databases=["default", "settlement"]),
    pytest.mark.campaign,
]
COUNT = 20_000
COPY = "LATERAL jsonb_populate_record(NULL::{table}, to_jsonb(one) || jsonb_build_object({columns})) copy"
# Rows are not in the order of their times: else an index of times looks cheap by luck, whatever the order asked for.
AT = f"now() - (n * 7919 % {COUNT}) * interval '5 minutes'"
OF_ONE = "(SELECT * FROM {table} LIMIT 1) one, generate_series(1, {count}) n"
OF_RECORDS = (
    "(SELECT * FROM {table} WHERE kind = 'usage' LIMIT 1) one,"
    "(SELECT id, created_at, row_number() OVER () n FROM billing_generation WHERE id <> one.generation_id) record"
)
FILL = {
    "billing_generation": (OF_ONE, f"'id', gen_random_uuid(), 'created_at', {AT}"),
    "billing_requestfailure": (OF_ONE, f"'id', gen_random_uuid(), 'created_at', {AT}"),
    "billing_ledgerentry": (
        OF_RECORDS.replace("(SELECT id", "LATERAL (SELECT id"),
        "'id', 1000000 + n, 'seq', 1000 + n, 'generation_id', record.id, 'created_at', record.created_at",
    ),
}
LARGE = ("billing_generation", "billing_ledgerentry", "billing_requestfailure")
WHOLE = re.compile(rf"Seq Scan on ({'|'.join(LARGE)})\b")
READS = re.compile(r"\s*(SELECT|WITH|INSERT|UPDATE|DELETE)\b")
# These rows are looked up by many ids at once, for which a scan may be cheaper; with a few ids the index is used.
MANY_AT_ONCE = 'DELETE FROM "billing_requestfailure" WHERE "billing_requestfailure"."id" IN (SELECT'
OF_SESSIONS = (
    *(query.statement for query in (KEY_WITH_ACCOUNT, BALANCE, BY_NAME)),
    *(
        settling_statement(counts_quota=quota, has_checkpoint=checkpoint).statement
        for quota in (False, True)
        for checkpoint in (False, True)
    ),
)


@pytest.fixture
def acme(no_dead_rows: None) -> Acme:
    """Opens an account that has rows of every kind."""
    forget_snapshot()
    snapshot.refresh()
    acme = Acme.open()
    RequestFailure.objects.all().delete()  # the process has noted it as well
    failure_log.flush()
    with connection.cursor() as cursor:
        for table, (rows, columns) in FILL.items():
            copies = f"INSERT INTO {table} SELECT copy.* FROM {rows}, {COPY}"
            cursor.execute(copies.format(table=table, count=COUNT, columns=columns))
    update_statistics()
    return acme


def test_no_statement_reads_a_whole_table(acme: Acme) -> None:
    connection.connection.prepared_max, connection.connection.prepare_threshold = 100_000, 0
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement FROM pg_prepared_statements")
        own = {sql for (sql,) in cursor.fetchall()}
    everything(acme)
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        for statement in OF_SESSIONS:
            cursor.execute(f'PREPARE "{statement.name.decode()}" AS {statement.sql.decode()}')
        cursor.execute("SELECT name, statement, cardinality(parameter_types) FROM pg_prepared_statements")
        prepared = [row for row in cursor.fetchall() if READS.match(row[1]) and row[1] not in own]
        whole = {}
        for name, sql, count in prepared:
            values = f"({', '.join(['NULL'] * count)})" if count else ""
            cursor.execute(f'EXPLAIN EXECUTE "{name}"{values}')
            plan = "\n".join(row[0] for row in cursor.fetchall())
            if WHOLE.search(plan) and not sql.startswith(MANY_AT_ONCE):
                whole[sql] = plan
    assert len(prepared) > 200
    assert not whole, "\n\n".join(f"{sql}\n{plan}" for sql, plan in whole.items())


def everything(acme: Acme) -> None:
    """Runs what pages, the admin, the API and the beat query."""
    client = client_of(OWNER)
    shown = [client.get(page.address).status_code for page in acme.pages()]
    staff = User.objects.create_superuser("staff@example.com")
    client.force_login(staff)
    shown += [client.get(page.address).status_code for page in every_admin_page.pages(acme)]
    assert shown.count(200) > 60
    holder = Holder.of(acme.account, "reader")
    record = acme.record.public_id
    for path in ("generations", f"generation/{record}", f"metrics/{record}", "aliases", "aliases/fast/stats"):
        holder.read(f"/v1/{path}")
    for bounds in ({"since": "2020-01-01T00:00:00Z"}, {"until": "2100-01-01T00:00:00Z"}, {"limit": 5}):
        holder.read("/v1/generations", **bounds)
    ledger.book(served(acme.account), using="default")
    for hook in worker_hooks.beat:
        hook.work() if isinstance(hook, Periodic) else hook()
    rollups.advance(1_000_000)
    maintenance.maintain_once()
    drop_some()
