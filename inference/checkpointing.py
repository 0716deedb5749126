"""The worker's side of checkpoints: which streams are open, and how far they are, written with the beat.

A stream that has delivered something has its row with the next beat, with all others of its worker in one statement;
the row is renewed every few seconds. A stream that finds its row gone has been settled by a sweeper, and one whose row
could not be written for 30 s cannot rely on it: both end as worker-stopped.
"""

import logging
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

import gevent
from django.db import Error

from billing.ledger import checkpoints
from gateway.db.outages import Outage

logger = logging.getLogger(__name__)
_outage = Outage("checkpoints of open streams cannot be written", logger.error)

RENEW_EVERY_SECONDS = 5.0
LOST_AFTER_SECONDS = 30.0
GUARD_SECONDS = 1.0
AT_ONCE = 100  # streams in one statement; between them the worker serves requests

# Messages to the clients of streams that end here.
UNRECORDED = "This replica cannot reach its database, and ends streams that it cannot record."
SETTLED_ELSEWHERE = "This replica stood still for so long that the stream was taken for dead."


class Checkpointed(Protocol):
    """An open stream."""

    generation_pk: uuid.UUID
    has_checkpoint: bool

    @property
    def has_delivered(self) -> bool:
        """Whether anything of it has been written: until then its end costs nothing."""

    def frozen(self) -> str:
        """What would be settled if the worker died now."""

    def stop(self, because: str) -> None:
        """Ends the stream as worker-stopped, and tells its client why."""


@dataclass(slots=True)
class _Open:
    """An open stream, and when all was well with its checkpoint: written, or not needed yet."""

    stream: Checkpointed
    well_at: float = field(default_factory=time.monotonic)
    has_row: bool = False

    def is_due(self, now: float) -> bool:
        if self.has_row:
            return now - self.well_at >= RENEW_EVERY_SECONDS
        return self.stream.has_delivered


_open: dict[uuid.UUID, _Open] = {}


def register(stream: Checkpointed) -> None:
    """A stream that has its first output."""
    _open[stream.generation_pk] = _Open(stream)


def forget(stream: Checkpointed) -> None:
    """A stream that is being settled, or of which nothing was delivered. Idempotent."""
    _open.pop(stream.generation_pk, None)


def open_streams() -> dict[str, float]:
    """How many streams are open (`gateway.server.hooks.Reading`)."""
    return {"": len(_open)}


def written_checkpoints() -> dict[str, float]:
    """How many of them have a row (`gateway.server.hooks.Reading`)."""
    return {"": sum(known.has_row for known in _open.values())}


def start() -> None:
    """At the worker's boot: begins to look after streams that lost their checkpoint.

    In a greenlet of its own, since the beat may be what hangs: in a database that neither answers nor refuses.
    """
    gevent.spawn(_guard)


def beat() -> None:
    """Writes and renews what is due; runs once a second."""
    now = time.monotonic()
    due = [known for known in _open.values() if known.is_due(now)]
    _in_batches(_insert, [known for known in due if not known.has_row])
    _in_batches(_renew, [known for known in due if known.has_row])


def end_lost() -> None:
    """Ends every stream whose checkpoint could not be written for too long. Needs no database."""
    now = time.monotonic()
    for known in list(_open.values()):
        is_needed = known.has_row or known.is_due(now)
        if is_needed and now - known.well_at > LOST_AFTER_SECONDS:
            logger.error("a stream whose checkpoint could not be written for %s s ends", LOST_AFTER_SECONDS)
            known.stream.stop(UNRECORDED)
            forget(known.stream)


def _guard() -> None:
    while True:
        gevent.sleep(GUARD_SECONDS)
        end_lost()


def _in_batches(write: Callable[[Sequence[_Open]], None], streams: Collection[_Open]) -> None:
    remaining = iter(streams)
    while batch := [known for known in islice(remaining, AT_ONCE) if known.stream.generation_pk in _open]:
        try:
            write(batch)
        except Error as error:
            _outage.failed(error)
        else:
            _outage.worked()


def _insert(batch: Sequence[_Open]) -> None:
    for known in batch:
        known.stream.has_checkpoint = True  # before the row exists: settling must look for it from now on
    now, frozen = time.monotonic(), dict(_frozen(batch))
    checkpoints.insert(frozen)
    _note(batch, frozen, now)


def _renew(batch: Sequence[_Open]) -> None:
    now, frozen = time.monotonic(), dict(_frozen(batch))
    alive = checkpoints.renew(frozen)
    for known in batch:
        pk = known.stream.generation_pk
        if pk in frozen and pk not in alive and pk in _open:
            logger.error("the checkpoint of an open stream is gone: it has been settled, and ends")
            known.stream.stop(SETTLED_ELSEWHERE)
            forget(known.stream)
    _note(batch, alive, now)


def _frozen(batch: Sequence[_Open]) -> Iterator[tuple[uuid.UUID, str]]:
    """What each would be settled as. One that cannot say keeps the others from nothing, and is lost in the end."""
    for known in batch:
        try:
            yield known.stream.generation_pk, known.stream.frozen()
        except Exception:
            logger.exception("a stream cannot be frozen")


def _note(batch: Sequence[_Open], written: Collection[uuid.UUID] | Mapping[uuid.UUID, str], now: float) -> None:
    """The time is that before the writing: the row may be older than its writer's return."""
    for known in batch:
        if known.stream.generation_pk in written:
            known.well_at, known.has_row = now, True
