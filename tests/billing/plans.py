"""Shows how the database reads what a page needs: the plans of the statements that were really sent."""

import copy
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from uuid import UUID

from django.db import connection
from django.test.utils import CaptureQueriesContext

from accounts.models import Account
from billing.models import Generation, LedgerEntry
from gateway.ids import first_uuid7
from tests.factories import served

RECORDS_A_DAY = 20
USAGE_FOR_EACH_GRANT = 50
FIRST_SEQ = 2  # after the opening credit


def plans(read: Callable[[], object], table: str) -> dict[str, str]:
    """Returns the plan of each SELECT of a table that `read` sends, by its SQL; on PostgreSQL with the rows read."""
    with CaptureQueriesContext(connection) as captured:
        read()
    selects = [query["sql"] for query in captured.captured_queries if f'FROM "{table}"' in query["sql"]]
    return {sql: _plan(sql) for sql in selects}


def _plan(sql: str) -> str:
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute(f"EXPLAIN QUERY PLAN {sql}")
            return "\n".join(row[3] for row in cursor.fetchall())
        cursor.execute("SET LOCAL enable_seqscan = off")  # a small table may be cheaper whole
        cursor.execute(f"EXPLAIN (ANALYZE, COSTS OFF) {sql}")
        return "\n".join(row[0] for row in cursor.fetchall())


def fill(account: Account, days: int, since: datetime) -> list[Generation]:
    """Writes days of usage, with some grants and one record a day without a price, ignoring the ledger's rules."""
    moments = [since + timedelta(days=day, minutes=minute) for day in range(days) for minute in range(RECORDS_A_DAY)]
    priced, unpriced = served(account, balance_after=Decimal(1)), served(account, priced=False)
    records = [_at(moment, unpriced if n % RECORDS_A_DAY == 0 else priced) for n, moment in enumerate(moments)]
    Generation.objects.bulk_create(records, batch_size=200)
    booked = (record for record in records if record.cost is not None)
    entries = [_entry(seq, record) for seq, record in enumerate(booked, FIRST_SEQ)]
    LedgerEntry.objects.bulk_create(entries, batch_size=200)
    update_statistics()
    return records


def update_statistics() -> None:
    """Updates the planner's statistics, only of our tables: other tests may be analysing those that a server shares."""
    with connection.cursor() as cursor:
        tables = connection.introspection.django_table_names(only_existing=True, include_views=False)
        cursor.execute("ANALYZE" if connection.vendor == "sqlite" else f"ANALYZE {', '.join(tables)}")


def _at(moment: datetime, like: Generation) -> Generation:
    record = copy.copy(like)
    record.id, record.created_at = UUID(int=first_uuid7(moment).int | random.getrandbits(62)), moment
    return record


def _entry(seq: int, record: Generation) -> LedgerEntry:
    is_grant = seq % USAGE_FOR_EACH_GRANT == 0
    return LedgerEntry(
        account_id=record.account_id,
        seq=seq,
        kind="grant" if is_grant else "usage",
        amount=Decimal(1 if is_grant else -1),
        balance_after=Decimal(1),
        reference=f"grant {seq}" if is_grant else None,
        generation=None if is_grant else record,
        created_at=record.created_at,
    )
