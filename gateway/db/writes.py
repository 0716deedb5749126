"""Runs PostgreSQL's statements that write and return a row.

This module alone decides between the worker's own sessions and Django's connections. Callers give the parameters as
PostgreSQL's text, so that values that many statements share are encoded once. They get Python values.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import psycopg
from django.db import connections, transaction
from django.db.backends.utils import CursorWrapper

from .reads import Kind
from .sessions import Parameters, Statement, sessions_of

_FLUSH = Statement(b"flush", b"SELECT pg_logical_emit_message(true, '', '')")

Row = tuple[Any, ...]


class WriteQuery:
    """Holds a statement that returns one row, with `$1` for each parameter, and the kinds of the row's columns."""

    __slots__ = ("columns", "statement")

    def __init__(self, name: str, sql: str, *, columns: tuple[Kind, ...]) -> None:
        self.columns = columns
        self.statement = Statement(name.encode(), sql.encode())


Work = Sequence[tuple[WriteQuery, Parameters]]


def execute(database: str, query: WriteQuery, parameters: Parameters, *, flushes: bool = False) -> Row:
    """Runs one statement, in the transaction that the caller has begun on Django's connection if there is one.

    It uses Django's connection in every process, because it may wait for a lock, and the sessions are few.
    """
    return _execute_by_django(database, [(query, parameters)], flushes=flushes)[0]


def execute_all(database: str, work: Work, *, flushes: bool = False) -> list[Row]:
    """Runs the statements in one transaction, on the worker's sessions if it has them, and returns the row of each.

    If `flushes`, also waits until the commit is on the disk, for a transaction that sets synchronous_commit to off.
    """
    sessions = sessions_of(database)
    if sessions is None:
        return _execute_by_django(database, work, flushes=flushes)
    if flushes or len(work) > 1:
        statements = [(query.statement, parameters) for query, parameters in work]
        results = sessions.execute_all(statements, _FLUSH if flushes else None)
    else:
        ((query, parameters),) = work
        results = [sessions.execute(query.statement, parameters)]
    return [_decoded(query, result) for (query, _), result in zip(work, results, strict=True)]


def flush(database: str) -> None:
    """Waits until all earlier commits are on the disk. A commit on SQLite has waited for it already."""
    connection = connections[database]
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(_FLUSH.sql.decode())


def sends_together(database: str) -> bool:
    """Tells whether `execute_all` takes one round trip for any number of statements."""
    return sessions_of(database) is not None


def _decoded(query: WriteQuery, result: Any) -> Row:
    get_value = result.get_value
    return tuple(
        [
            None if (value := get_value(0, number)) is None else kind.decode(value)
            for number, kind in enumerate(query.columns)
        ]
    )


def _execute_by_django(database: str, work: Work, *, flushes: bool) -> list[Row]:
    with transaction.atomic(using=database) if len(work) > 1 else nullcontext():
        rows = [_fetch(database, query, parameters) for query, parameters in work]
    if flushes:
        flush(database)
    return rows


def _fetch(database: str, query: WriteQuery, parameters: Parameters) -> Row:
    connection = connections[database]
    connection.ensure_connection()
    texts = [None if value is None else bytes(value).decode() for value in parameters]
    # A raw cursor takes numbered placeholders and does not parse the statement.
    with CursorWrapper(psycopg.RawCursor(connection.connection), connection) as cursor:
        cursor.execute(query.statement.sql.decode(), texts)
        row = cursor.fetchone()
    return tuple(
        [None if value is None else kind.convert(value) for kind, value in zip(query.columns, row, strict=True)]
    )
