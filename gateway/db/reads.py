"""Reads single rows of the default database, as the hot path needs them.

`read_row` alone decides between the worker's own sessions and Django's connections. Callers give and get Python values.
"""

import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.dispatch import receiver

from .pool import on_a_live_connection, release
from .sessions import Statement, integer, moment, sessions_of


class _JoinedTexts:
    """Provides PostgreSQL's aggregate `string_agg` on SQLite, which has its own only from version 3.44 on."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._separator = ""

    def step(self, text: str | None, separator: str) -> None:
        self._separator = separator
        if text is not None:
            self._texts.append(text)

    def finalize(self) -> str | None:
        return self._separator.join(self._texts) if self._texts else None


@receiver(connection_created)
def _add_functions(connection: BaseDatabaseWrapper, **_signal: object) -> None:
    if connection.vendor == "sqlite":
        connection.connection.create_aggregate("string_agg", 2, _JoinedTexts)


class Kind(NamedTuple):
    """Converts the values of one SQL type: `encode` and `decode` for a session, `adapt` and `convert` for Django."""

    sql: str
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]
    adapt: Callable[[Any], Any]
    convert: Callable[[Any], Any]


def _uuid_of_driver(value: Any) -> uuid.UUID:
    return value if isinstance(value, uuid.UUID) else uuid.UUID(value)  # SQLite keeps it as text


def _uuid_for_driver(value: uuid.UUID) -> Any:
    return value if connection.features.has_native_uuid_field else value.hex


def _moment_of_driver(value: datetime) -> datetime:
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)  # SQLite has no time zones


UUID = Kind(
    "uuid",
    encode=lambda value: value.hex.encode(),
    decode=lambda data: uuid.UUID(bytes=data),
    adapt=_uuid_for_driver,
    convert=_uuid_of_driver,
)
BYTES = Kind("bytea", encode=lambda value: b"\\x" + value.hex().encode(), decode=bytes, adapt=bytes, convert=bytes)
TEXT = Kind("varchar", encode=str.encode, decode=bytes.decode, adapt=str, convert=str)
INTEGER = Kind("bigint", encode=lambda value: b"%d" % value, decode=integer, adapt=int, convert=int)
BOOLEAN = Kind(
    "boolean",
    encode=lambda value: b"t" if value else b"f",
    decode=b"\x01".__eq__,
    adapt=bool,
    convert=bool,
)
MOMENT = Kind(
    "timestamptz",
    encode=lambda value: value.isoformat().encode(),
    decode=moment,
    adapt=lambda value: value,
    convert=_moment_of_driver,
)


class RowQuery:
    """Holds a SELECT of one row, with `%s` for each parameter, and the kinds of its parameters and columns."""

    __slots__ = ("columns", "parameters", "sql", "statement")

    def __init__(self, name: str, sql: str, *, parameters: tuple[Kind, ...], columns: tuple[Kind, ...]) -> None:
        numbered = sql % tuple(f"${number}::{kind.sql}" for number, kind in enumerate(parameters, 1))
        self.sql, self.parameters, self.columns = sql, parameters, columns
        self.statement = Statement(name.encode(), numbered.encode())


def read_row(query: RowQuery, *values: Any) -> tuple[Any, ...] | None:
    """Returns the row, read fresh, or None. The connection goes back to its pool at once.

    Raises OperationalError if the database does not answer within BRIEF_SECONDS.
    """
    sessions = sessions_of("default")
    if sessions is not None:
        encoded = [kind.encode(value) for kind, value in zip(query.parameters, values, strict=True)]
        row = sessions.read(query.statement, encoded)
        if row is None:
            return None
        return tuple(
            [None if value is None else kind.decode(value) for kind, value in zip(query.columns, row, strict=True)]
        )
    try:
        row = on_a_live_connection(lambda: _fetch(query, values))
    finally:
        release("default")
    if row is None:
        return None
    return tuple(
        [None if value is None else kind.convert(value) for kind, value in zip(query.columns, row, strict=True)]
    )


def _fetch(query: RowQuery, values: tuple[Any, ...]) -> list[Any] | None:
    with connection.cursor() as cursor:
        cursor.execute(query.sql, [kind.adapt(value) for kind, value in zip(query.parameters, values, strict=True)])
        row = cursor.fetchone()
        return None if row is None else [*row]
