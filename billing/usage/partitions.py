"""Partitions the table of records by the month of their ids, on PostgreSQL (docs/growth.md#partitions-of-the-records).

Partitioning runs during traffic: scans take only locks that do not block writers. A step that blocks writers gives up
after waiting LOCK_WAIT_MS for its lock, and is tried again. Each step looks up in PostgreSQL's catalogue whether it is
already done, so a run continues where an interrupted one stopped.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from django.db import OperationalError, connection, transaction
from django.db.backends.utils import CursorWrapper

from gateway.db.online_index import PARTITIONED
from gateway.db.postgresql.base import LOCK_NOT_AVAILABLE
from gateway.ids import first_uuid7

from ..models import Generation

TABLE = Generation._meta.db_table
OLD, REST, BELOW = f"{TABLE}_old", f"{TABLE}_rest", f"{TABLE}_below"
MARGIN = timedelta(days=2)  # time for the scan, and for gateways whose clocks are ahead
LOCK_WAIT_MS = 500  # less than PostgreSQL's deadlock_timeout, so that in a deadlock this process gives up
MONTHS_WANTED = 2
TRIES = 120
PAUSE_SECONDS = 0.5

_BELOW = "SELECT conrelid::regclass::text FROM pg_constraint WHERE conname = %s"
_CONSTRAINTS = """
    SELECT quote_ident(conname), pg_get_constraintdef(oid) FROM pg_constraint
    WHERE conrelid = %s::regclass AND contype IN ('p', 'u', 'f') ORDER BY contype DESC
"""
_INDEXES = """
    SELECT indexrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index
    WHERE indrelid = %s::regclass
        AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid AND contype IN ('p', 'u'))
"""
_REFERENCES = """
    SELECT conrelid::regclass::text, quote_ident(conname), pg_get_constraintdef(oid), convalidated FROM pg_constraint
    WHERE confrelid = to_regclass(%s) AND conparentid = 0
"""
_NEVER_ANALYZED = "SELECT 1 FROM pg_class WHERE oid = to_regclass(%s) AND reltuples < 0"
# First revokes what default privileges granted: records are less open than others (gateway/db/serving_role.sql).
_GRANTS = """
    SELECT format(change, privilege_type, %s::text, CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END)
    FROM (VALUES ('REVOKE ALL ON %%2$s FROM %%3$s', %s), ('GRANT %%1$s ON %%2$s TO %%3$s', %s)) AS step (change, source)
        CROSS JOIN pg_class CROSS JOIN aclexplode(relacl)
    WHERE pg_class.oid = source::regclass AND grantee <> relowner ORDER BY change DESC
"""


class PartitioningFailed(Exception):
    """The partitioning cannot go on, for a reason in words for an operator. Nothing is left half done."""


def month_after(moment: datetime) -> datetime:
    """Returns the first moment of the next UTC month."""
    return (moment.astimezone(UTC).replace(day=1) + timedelta(days=32)).replace(
        day=1, hour=0, minute=0, second=0, microsecond=0
    )


def is_partitioned() -> bool:
    """Tells whether the table of records is partitioned already."""
    return bool(_rows(PARTITIONED, TABLE))


def months_missing(now: datetime, months: int) -> list[datetime]:
    """Returns the starts of the next `months` months that have no partition. The first starts after MARGIN from now."""
    starts = [month_after(now + MARGIN)]
    while len(starts) < months:
        starts.append(month_after(starts[-1]))
    return [start for start in starts if not _rows("SELECT 1 WHERE to_regclass(%s) IS NOT NULL", _name(start))]


def fault(now: datetime) -> str | None:
    """Returns what an operator has to do about the partitions, in words, or None."""
    if _rows(_BELOW, BELOW):
        return "partition_records was cut off, and newer records will be refused: run it again with --apply."
    if is_partitioned() and months_missing(now, MONTHS_WANTED):
        return "Months to come have no partition: run `manage.py partition_records --apply`."
    return None


def partition(now: datetime, months: int, log: Callable[[str], object]) -> None:
    """Partitions the table of records, and adds the months that are missing (PostgreSQL). Raises PartitioningFailed."""
    for (table,) in _rows(_BELOW, BELOW):  # left by a run that was interrupted
        _drop_proof(table)
    missing = months_missing(now, months)
    if not is_partitioned():
        first = missing[0]
        with _ids_below(TABLE, first):
            held = _briefly(TABLE, lambda cursor: _swap(cursor, first))
        log(f"{TABLE}: partitioned, its rows are {OLD}, of ids before {first:%Y-%m} (locked for {held * 1000:.0f} ms)")
    if _rows(_NEVER_ANALYZED, TABLE):  # autovacuum does not analyze partitioned tables
        _scanning(f"ANALYZE {TABLE}")
    if missing:
        with _ids_below(REST, missing[0]):  # rows of a month that had no partition stay in the default partition
            longest = max(_briefly(TABLE, partial(_add_month, start=start)) for start in missing)
        log(f"{_name(missing[0])} to {missing[-1]:%Y_%m}: added (each locked for {longest * 1000:.0f} ms at most)")
    for table, name, _definition, is_valid in _rows(_REFERENCES, TABLE):
        if not is_valid:
            _scanning(f"ALTER TABLE {table} VALIDATE CONSTRAINT {name}")
            log(f"{table}: checked that every row's record exists")


@contextmanager
def _ids_below(table: str, bound: datetime) -> Iterator[None]:
    """Adds a constraint that all of the table's ids are below the bound, which saves a scan under an exclusive lock.

    While it exists, PostgreSQL refuses newer ids, so the bound has to be MARGIN in the future.
    """
    check = f"CHECK (id < '{first_uuid7(bound)}') NOT VALID"
    _briefly(table, lambda cursor: cursor.execute(f"ALTER TABLE {table} ADD CONSTRAINT {BELOW} {check}"))
    try:
        _scanning(f"ALTER TABLE {table} VALIDATE CONSTRAINT {BELOW}")
        yield
    finally:
        for (name,) in _rows(_BELOW, BELOW):  # the table may have been renamed
            _drop_proof(name)


def _drop_proof(table: str) -> None:
    _briefly(table, lambda cursor: cursor.execute(f"ALTER TABLE {table} DROP CONSTRAINT {BELOW}"))


def _swap(cursor: CursorWrapper, first: datetime) -> None:
    """Makes the table the oldest partition of a new table that takes its name. No row moves, no index is built.

    Foreign keys hold for new rows at once; validating the old rows needs a scan, which follows later.
    """
    constraints, indexes, references = _rows(_CONSTRAINTS, TABLE), _rows(_INDEXES, TABLE), _rows(_REFERENCES, TABLE)
    for table, name, _definition, _is_valid in references:
        cursor.execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}")
    cursor.execute(f"ALTER TABLE {TABLE} RENAME TO {OLD}")
    for (index,) in _rows("SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = %s::regclass", OLD):
        cursor.execute(f"ALTER INDEX {index} RENAME TO old_{index}")
    like = f"LIKE {OLD} INCLUDING ALL EXCLUDING INDEXES EXCLUDING STATISTICS"
    cursor.execute(f"CREATE TABLE {TABLE} ({like}) PARTITION BY RANGE (id)")
    cursor.execute(f"ALTER TABLE {TABLE} DROP CONSTRAINT {BELOW}")
    _as_open_as(cursor, TABLE, OLD)
    for name, definition in constraints:
        cursor.execute(f"ALTER TABLE {TABLE} ADD CONSTRAINT {name} {definition}")
    for _index, definition in indexes:
        cursor.execute(definition)
    bound = first_uuid7(first)
    cursor.execute(f"ALTER TABLE {TABLE} ATTACH PARTITION {OLD} FOR VALUES FROM (MINVALUE) TO ('{bound}')")
    cursor.execute(f"CREATE TABLE {REST} PARTITION OF {TABLE} DEFAULT")
    _as_open_as(cursor, REST, TABLE)
    for table, name, definition, _is_valid in references:
        cursor.execute(f"ALTER TABLE {table} ADD CONSTRAINT {name} {definition} NOT VALID")


def _add_month(cursor: CursorWrapper, start: datetime) -> None:
    bounds = f"FROM ('{first_uuid7(start)}') TO ('{first_uuid7(month_after(start))}')"
    cursor.execute(f"CREATE TABLE {_name(start)} PARTITION OF {TABLE} FOR VALUES {bounds}")
    _as_open_as(cursor, _name(start), TABLE)


def _as_open_as(cursor: CursorWrapper, table: str, other: str) -> None:
    """Gives a new table exactly the grants of the other table."""
    cursor.execute(_GRANTS, [table, table, other])
    for (statement,) in cursor.fetchall():
        cursor.execute(statement)


def _briefly(table: str, work: Callable[[CursorWrapper], Any]) -> float:
    """Does the work in one transaction with the table locked exclusively, and returns for how many seconds.

    Raises PartitioningFailed if the lock cannot be had in TRIES tries.
    """
    for _ in range(TRIES):
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(f"SET LOCAL lock_timeout = {LOCK_WAIT_MS}")
                cursor.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
                began = time.monotonic()
                work(cursor)
            return time.monotonic() - began
        except OperationalError as error:
            if getattr(error.__cause__, "sqlstate", None) != LOCK_NOT_AVAILABLE:
                raise
        time.sleep(PAUSE_SECONDS)
    raise PartitioningFailed("A transaction holds the records or the ledger all the time: end it, and run this again.")


def _scanning(statement: str) -> None:
    """Runs a statement that reads a whole table without blocking writers; its timeout ends before MARGIN is used up."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL statement_timeout = '{MARGIN / timedelta(hours=2):.0f}h'")
        cursor.execute(statement)


def _name(month: datetime) -> str:
    return f"{TABLE}_{month:%Y_%m}"


def _rows(query: str, *names: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(query, names)
        return list(cursor.fetchall())
