"""Reads statistics, lists and downloads, and nothing else, from a standby of PostgreSQL (`DATABASE_REPLICA_URL`).

With each beat a worker notes the position of the primary's write-ahead log. A standby that has replayed the log up to a
noted position has everything that was committed until then. If it lags by more than `DATABASE_REPLICA_MAX_LAG`
seconds, or is away, the primary is read instead.
"""

import functools
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django.conf import settings
from django.db import DatabaseError, InterfaceError, OperationalError, connections
from django.db.models import Model
from django.http import HttpRequest
from django.utils import timezone

from gateway.db.outages import Outage
from gateway.db.pool import BRIEF_SECONDS, answering_within, release
from gateway.edge import rfc3339

from ..models import DailyUsage, FailureDay, FrozenTerms, Generation, LedgerEntry, RequestFailure, UsageWatermark

logger = logging.getLogger(__name__)
View = TypeVar("View", bound=Callable[..., Any])

ALIAS = "replica"
AS_OF_HEADER = "X-Data-As-Of"
RECORDS = frozenset({DailyUsage, FrozenTerms, Generation, LedgerEntry, UsageWatermark, FailureDay, RequestFailure})

_is_reading: ContextVar[bool] = ContextVar("is_reading_replica", default=False)
_positions: deque[tuple[datetime, int]] = deque()  # times and the primary's log positions, the newest last
_outage = Outage("the replica cannot be read and the primary is", logger.warning)


class Router:
    """Sends reads of records inside `from_replica` to the replica, and all other reads and writes to the primary."""

    def db_for_read(self, model: type[Model], **_hints: Any) -> str | None:
        return ALIAS if _is_reading.get() and model in RECORDS else None

    def allow_relation(self, *_objects: Model, **_hints: Any) -> bool:
        return True  # both aliases are the same database

    def allow_migrate(self, db: str, _app_label: str, **_hints: Any) -> bool:
        return db != ALIAS


def note_position() -> None:
    """Notes the primary's log position. Called with each beat if there is a replica."""
    now = timezone.now()
    # The insert position, not the flushed one: settlements with synchronous_commit=off are visible before the flush.
    position = _position("default", "pg_current_wal_insert_lsn()")
    if _positions and position < _positions[-1][1]:
        _positions.clear()  # another primary has taken over, without the last writes of the former
    _positions.append((now, position))
    while now - _positions[0][0] > timedelta(seconds=2 * settings.DATABASE_REPLICA_MAX_LAG):
        _positions.popleft()


def from_replica(view: View) -> View:
    """Makes a view read past records from the replica.

    The header `X-Data-As-Of` gives the time up to which the replica has everything. If the replica fails, the view runs
    again on the primary, but a download that has begun breaks off.
    """
    if ALIAS not in settings.DATABASES:
        return view

    @functools.wraps(view)
    def read(*args: Any, **kwargs: Any) -> Any:
        # 1. Read the primary if the replica lags or is away.
        moment = _as_of()
        if moment is None:
            return view(*args, **kwargs)
        for request in args:
            if isinstance(request, HttpRequest):
                request.data_as_of = moment  # type: ignore[attr-defined]  # for templates/dashboard/base.html
        # 2. Read the replica and, if it fails, the primary.
        token = _is_reading.set(True)
        try:
            response = view(*args, **kwargs)
        except (OperationalError, InterfaceError) as error:
            _outage.failed(error)
            response = None
        finally:
            _is_reading.reset(token)
            release(ALIAS)
        if response is None:
            return view(*args, **kwargs)
        # 3. Say as of when the data is, and keep reading the replica for a stream.
        response.headers[AS_OF_HEADER] = rfc3339.to_text(moment)
        if getattr(response, "streaming", False):
            response.streaming_content = _streamed(response.streaming_content)
        return response

    return read  # type: ignore[return-value]


def _streamed(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yields blocks read from the replica. Each time, the connection goes back to the pool before the block is sent."""
    iterator = iter(blocks)
    while True:
        token = _is_reading.set(True)
        try:
            block = next(iterator, None)
        finally:
            _is_reading.reset(token)
            release(ALIAS)
        if block is None:
            return
        yield block


def _as_of() -> datetime | None:
    """Returns until when this greenlet's connection to the replica has all commits; None if it lags or is away."""
    if not _positions:
        return None
    try:
        with answering_within(BRIEF_SECONDS):
            replayed = _position(
                ALIAS, "CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END"
            )
    except DatabaseError as error:
        _outage.failed(error)
        release(ALIAS)
        return None
    _outage.worked()
    found = max((at for at, position in _positions if position <= replayed), default=None)
    if found is None or timezone.now() - found > timedelta(seconds=settings.DATABASE_REPLICA_MAX_LAG):
        release(ALIAS)
        return None
    return found


def _position(alias: str, function: str) -> int:
    with connections[alias].cursor() as cursor:
        cursor.execute(f"SELECT ({function} - '0/0')::bigint")  # both functions are literals of this module
        (position,) = cursor.fetchone()
    return int(position)
