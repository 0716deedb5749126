"""Runs prepared statements on a worker's own connections with psycopg's libpq. All values are bytes."""

import socket
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import gevent
import psycopg
from django import db
from django.conf import settings
from django.db import connections
from gevent import get_hub
from gevent.lock import BoundedSemaphore
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, ExecStatus, Format

from . import pool
from .postgresql.base import NOT_THE_PRIMARY

READABLE, WRITABLE = 1, 2  # events of gevent's watchers
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)  # a binary timestamp counts microseconds from here
# How long a statement of a settlement may take. The statement timeout of that database is shorter (5 s), so the
# connection is dead if it has not answered by then.
SETTLEMENT_SECONDS = 7.0
LOOK_SECONDS = 1.0
GOOD = frozenset({ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK})
Parameters = Sequence[bytes | None]


class Statement(NamedTuple):
    """Holds SQL with `$1` placeholders, and the name under which it is prepared. Results are binary."""

    name: bytes
    sql: bytes


class Session:
    """Holds one connection and the statements prepared on it. Raises OperationalError if the connection is lost."""

    __slots__ = ("_connection", "_is_refused", "_pgconn", "_prepared", "_readable", "busy_since")

    def __init__(self, database: str) -> None:
        with connections[database].wrap_database_errors:
            connection = psycopg.Connection.connect(**connections[database].get_connection_params(), autocommit=True)
        self._connection, self._pgconn = connection, connection.pgconn
        # libpq then returns instead of blocking, and the hub waits
        self._pgconn.nonblocking = 1
        self._readable = get_hub().loop.io(self._pgconn.socket, READABLE)
        self._prepared: set[bytes] = set()
        self._is_refused = False
        self.busy_since = 0.0  # monotonic clock; 0 while it is idle

    def execute(self, statement: Statement, parameters: Parameters) -> Any:
        self.busy_since = time.monotonic()
        try:
            if statement.name not in self._prepared:
                self._prepare(statement)
            self._send(statement, parameters)
            result = self._result()
            while self._result() is not None:
                continue
        except psycopg.Error as error:
            raise db.OperationalError(str(error)) from error
        # This is not reached after an error, so a session that failed in the middle of a statement `is_lost`.
        self.busy_since = 0.0
        return self._good(result)

    def execute_all(self, work: Sequence[tuple[Statement, Parameters]], then: Statement | None = None) -> list[Any]:
        """Runs the statements in one transaction and one round trip, and `then` after its commit."""
        self.busy_since = time.monotonic()
        after_commit = [] if then is None else [then]
        try:
            for statement in (*(statement for statement, _ in work), *after_commit):
                if statement.name not in self._prepared:
                    self._prepare(statement)
            # 1. Send everything. `sync` ends the implicit transaction.
            self._pgconn.enter_pipeline_mode()
            for statement, parameters in work:
                self._send(statement, parameters)
            self._pgconn.pipeline_sync()
            for statement in after_commit:
                self._send(statement, ())
                self._pgconn.pipeline_sync()
            # 2. Read the results in the same order.
            results = []
            for number in range(len(work) + len(after_commit)):
                if number == len(work):
                    self._result()  # the result of the first sync
                results.append(self._result())
                self._result()  # the None after each result
            self._result()  # the result of the last sync
            self._pgconn.exit_pipeline_mode()
        except psycopg.Error as error:
            raise db.OperationalError(str(error)) from error
        self.busy_since = 0.0
        return [self._good(result) for result in results][: len(work)]

    @property
    def is_lost(self) -> bool:
        return self._is_refused or bool(self.busy_since) or self._pgconn.status != ConnStatus.OK

    def cut(self) -> None:
        try:
            # A copy of the descriptor, because libpq closes its own.
            with socket.socket(fileno=socket.dup(self._pgconn.socket)) as sock:
                sock.shutdown(socket.SHUT_RDWR)
        except (OSError, psycopg.Error):
            return  # it was closed already

    def close(self) -> None:
        self._readable.stop()
        self._readable.close()
        self._connection.close()

    def _prepare(self, statement: Statement) -> None:
        if settings.DATABASE_TRANSACTION_POOLING:
            return
        self._pgconn.send_prepare(statement.name, statement.sql)
        result = self._result()
        while self._result() is not None:
            continue
        self._good(result)
        self._prepared.add(statement.name)

    def _send(self, statement: Statement, parameters: Parameters) -> None:
        # A pooler may use another connection for the next statement, so nothing is prepared.
        if settings.DATABASE_TRANSACTION_POOLING:
            self._pgconn.send_query_params(statement.sql, parameters, result_format=Format.BINARY)
        else:
            self._pgconn.send_query_prepared(statement.name, parameters, result_format=Format.BINARY)

    def _result(self) -> Any:
        pgconn = self._pgconn
        while pgconn.flush():
            writable = get_hub().loop.io(pgconn.socket, WRITABLE)
            try:
                get_hub().wait(writable)
            finally:
                writable.close()
        while pgconn.is_busy():
            get_hub().wait(self._readable)
            pgconn.consume_input()
        return pgconn.get_result()

    def _good(self, result: Any) -> Any:
        if result.status in GOOD:
            return result
        error = error_from_result(result)
        if error.sqlstate in NOT_THE_PRIMARY:
            self._is_refused = True
            raise db.OperationalError(str(error)) from error
        # By the DB-API, psycopg's errors have the same names as Django's.
        kind = next((each for each in type(error).__mro__ if hasattr(db, each.__name__)), None)
        raise (db.DatabaseError if kind is None else getattr(db, kind.__name__))(str(error)) from error


class _Places(BoundedSemaphore):  # type: ignore[misc]  # gevent ships no types
    # It also counts the waits and their seconds.
    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.waits, self.wait_seconds = 0, 0.0

    def __enter__(self) -> None:
        if not self.acquire(blocking=False):
            began = time.monotonic()
            self.acquire()
            self.waits += 1
            self.wait_seconds += time.monotonic() - began


class Sessions:
    """Lends a database's sessions, each to one greenlet at a time. Cuts one that is busy for `patience` seconds."""

    def __init__(self, database: str, *, size: int, patience: float) -> None:
        self._database, self._patience = database, patience
        self.places = _Places(size)
        self._idle: list[Session] = []
        self._all: set[Session] = set()
        self._watchdog = gevent.spawn(self._watch)

    def execute(self, statement: Statement, parameters: Parameters) -> Any:
        with self.places:
            session = self._taken()
            try:
                return session.execute(statement, parameters)
            finally:
                self._give_back(session)

    def read(self, statement: Statement, parameters: Parameters) -> list[Any] | None:
        """Returns the first row, or None. If the connection is lost, tries once more."""
        try:
            result = self.execute(statement, parameters)
        except db.OperationalError:
            result = self.execute(statement, parameters)
        return [result.get_value(0, column) for column in range(result.nfields)] if result.ntuples else None

    def execute_all(self, work: Sequence[tuple[Statement, Parameters]], then: Statement | None = None) -> list[Any]:
        with self.places:
            session = self._taken()
            try:
                return session.execute_all(work, then)
            finally:
                self._give_back(session)

    def close(self) -> None:
        self._watchdog.kill(block=False)
        while self._idle:
            self._discard(self._idle.pop())

    def _taken(self) -> Session:
        if self._idle:
            return self._idle.pop()
        session = Session(self._database)
        self._all.add(session)
        return session

    def _give_back(self, session: Session) -> None:
        # If one session is lost, the others usually are too: close the idle ones.
        if not session.is_lost:
            self._idle.append(session)
            return
        self._discard(session)
        while self._idle:
            self._discard(self._idle.pop())

    def _discard(self, session: Session) -> None:
        self._all.discard(session)
        session.close()

    def _watch(self) -> None:
        while True:
            gevent.sleep(LOOK_SECONDS)
            oldest = time.monotonic() - self._patience
            for session in self._all:
                if 0 < session.busy_since < oldest:
                    session.cut()


_opened: dict[str, Sessions] = {}


def open_sessions() -> None:
    """Opens this worker's sessions, if it is on PostgreSQL. Commands use Django's connections."""
    if connections["default"].vendor == "postgresql" and not _opened:
        _opened["default"] = Sessions("default", size=8, patience=pool.BRIEF_SECONDS)
        _opened["settlement"] = Sessions("settlement", size=4, patience=SETTLEMENT_SECONDS)
        # each greenlet that waits for a semaphore is one of its links
        pool.waiting = _opened["default"].places.linkcount


def close_sessions() -> None:
    """Closes the sessions when the worker exits."""
    pool.waiting = pool.in_the_pool
    while _opened:
        _opened.popitem()[1].close()


def sessions_of(database: str) -> Sessions | None:
    """Returns the worker's sessions on a database, or None if it uses Django's connections."""
    return _opened.get(database)


def waits() -> dict[str, tuple[int, float]]:
    """Returns by database how often a greenlet waited for a session, and for how many seconds in total."""
    return {f"sessions {database}": (each.places.waits, each.places.wait_seconds) for database, each in _opened.items()}


def integer(value: bytes) -> int:
    """Reads a binary int2, int4 or int8."""
    return int.from_bytes(value, "big", signed=True)


def moment(value: bytes) -> datetime:
    """Reads a binary timestamptz."""
    return EPOCH + timedelta(microseconds=integer(value))
