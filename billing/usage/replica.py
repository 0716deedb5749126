"""Statistics, lists and downloads read from a standby of PostgreSQL (`DATABASE_REPLICA_URL`); never what decides.

With each beat a worker notes how far the primary's log has come. A standby that has replayed it so far has all that was
committed until that moment. Where it is behind by more than `DATABASE_REPLICA_MAX_LAG`, or away, the primary is read.
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

from ..models import DailyUsage, FrozenTerms, Generation, LedgerEntry, UsageWatermark
from .request_failures import FailureDay, RequestFailure

logger = logging.getLogger(__name__)
View = TypeVar("View", bound=Callable[..., Any])

ALIAS = "replica"
AS_OF_HEADER = "X-Data-As-Of"
RECORDS = frozenset({DailyUsage, FrozenTerms, Generation, LedgerEntry, UsageWatermark, FailureDay, RequestFailure})

_is_reading: ContextVar[bool] = ContextVar("is_reading_replica", default=False)
_positions: deque[tuple[datetime, int]] = deque()  # when the primary's log was so far, the newest last
_outage = Outage("the replica cannot be read and the primary is", logger.warning)


class Router:
    """Records are read from the replica inside `from_replica`; everything else, and every write, is the primary's."""

    def db_for_read(self, model: type[Model], **_hints: Any) -> str | None:
        return ALIAS if _is_reading.get() and model in RECORDS else None

    def allow_relation(self, *_objects: Model, **_hints: Any) -> bool:
        return True  # one database

    def allow_migrate(self, db: str, _app_label: str, **_hints: Any) -> bool:
        return db != ALIAS


def note_position() -> None:
    """With each beat, where there is a replica."""
    now = timezone.now()
    # Of all that is visible: some settlements can be seen before they are written to the log's file.
    position = _position("default", "pg_current_wal_insert_lsn()")
    if _positions and position < _positions[-1][1]:
        _positions.clear()  # another primary, which never had what the last one lost
    _positions.append((now, position))
    while now - _positions[0][0] > timedelta(seconds=2 * settings.DATABASE_REPLICA_MAX_LAG):
        _positions.popleft()


def from_replica(view: View) -> View:
    """A view that reads records of the past from the replica, and says in `X-Data-As-Of` until when it has all of them.

    It is asked again on the primary where the replica fails. A download that breaks off in the middle is not.
    """
    if ALIAS not in settings.DATABASES:
        return view

    @functools.wraps(view)
    def read(*args: Any, **kwargs: Any) -> Any:
        moment = _as_of()
        if moment is None:
            return view(*args, **kwargs)
        for request in args:
            if isinstance(request, HttpRequest):
                request.data_as_of = moment  # type: ignore[attr-defined]  # for templates/dashboard/base.html
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
        response.headers[AS_OF_HEADER] = rfc3339.to_text(moment)
        if getattr(response, "streaming", False):
            response.streaming_content = _streamed(response.streaming_content)
        return response

    return read  # type: ignore[return-value]


def _streamed(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Each read from the replica, whose connection goes back before the client is waited for."""
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
    """Until when this greenlet's connection to the replica has all commits; None where that is too long ago."""
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
        cursor.execute(f"SELECT ({function} - '0/0')::bigint")  # ours
        (position,) = cursor.fetchone()
    return int(position)
