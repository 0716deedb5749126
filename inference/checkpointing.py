"""Writes the checkpoints of this worker's open streams: what each would be settled as if the worker died now.

The first beat after a stream has delivered something writes its row, in one statement with those of the worker's other
streams; later beats renew it every few seconds. A stream whose row has vanished was settled by a sweeper, and one whose
row could not be written for 30 s may be settled by one soon: both end as worker-stopped.
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
AT_ONCE = 100  # streams in one statement; between two statements the worker serves requests

# Messages to the clients of streams that this module ends.
UNRECORDED = "This replica cannot reach its database, and ends streams that it cannot record."
SETTLED_ELSEWHERE = "This replica stopped responding for so long that the stream was settled as if it had ended."


class CheckpointedStream(Protocol):
    """Describes what checkpoints need of an open stream."""

    generation_pk: uuid.UUID
    has_checkpoint: bool

    @property
    def has_delivered(self) -> bool:
        """Tells whether anything was written to the client; until then nothing is billed."""

    def frozen(self) -> str:
        """Serialises what would be settled if the worker died now."""

    def stop(self, because: str) -> None:
        """Ends the stream as worker-stopped, with a message to its client."""


@dataclass(slots=True)
class _OpenStream:
    """Holds an open stream. `well_at` is the last time at which its checkpoint was written, or was not needed yet."""

    stream: CheckpointedStream
    well_at: float = field(default_factory=time.monotonic)
    has_row: bool = False

    def is_due(self, now: float) -> bool:
        if self.has_row:
            return now - self.well_at >= RENEW_EVERY_SECONDS
        return self.stream.has_delivered


_open: dict[uuid.UUID, _OpenStream] = {}


def register(stream: CheckpointedStream) -> None:
    """Adds a stream that has its first output to the open ones."""
    _open[stream.generation_pk] = _OpenStream(stream)


def forget(stream: CheckpointedStream) -> None:
    """Removes a stream that is being settled, or that delivered nothing, from the open ones. Idempotent."""
    _open.pop(stream.generation_pk, None)


def open_streams() -> dict[str, float]:
    """Counts the open streams, for a metric (`gateway.server.hooks.MetricReading`)."""
    return {"": len(_open)}


def written_checkpoints() -> dict[str, float]:
    """Counts the open streams that have a checkpoint, for a metric (`gateway.server.hooks.MetricReading`)."""
    return {"": sum(known.has_row for known in _open.values())}


def start() -> None:
    """Starts to watch for streams whose checkpoint cannot be written; called when the worker boots.

    The watch is a greenlet of its own, since the beat itself may hang on a database that does not answer.
    """
    gevent.spawn(_guard)


def beat() -> None:
    """Writes and renews the checkpoints that are due; runs once a second."""
    now = time.monotonic()
    due = [known for known in _open.values() if known.is_due(now)]
    _in_batches(_insert, [known for known in due if not known.has_row])
    _in_batches(_renew, [known for known in due if known.has_row])


def end_lost() -> None:
    """Ends every stream whose checkpoint could not be written for LOST_AFTER_SECONDS. Does not use the database."""
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


def _in_batches(write: Callable[[Sequence[_OpenStream]], None], streams: Collection[_OpenStream]) -> None:
    remaining = iter(streams)
    while batch := [known for known in islice(remaining, AT_ONCE) if known.stream.generation_pk in _open]:
        try:
            write(batch)
        except Error as error:
            _outage.failed(error)
        else:
            _outage.worked()


def _insert(batch: Sequence[_OpenStream]) -> None:
    for known in batch:
        known.stream.has_checkpoint = True  # set before the row exists, since settling must delete it from now on
    now, frozen = time.monotonic(), dict(_frozen(batch))
    checkpoints.insert(frozen)
    _note(batch, frozen, now)


def _renew(batch: Sequence[_OpenStream]) -> None:
    now, frozen = time.monotonic(), dict(_frozen(batch))
    alive = checkpoints.renew(frozen)
    for known in batch:
        pk = known.stream.generation_pk
        if pk in frozen and pk not in alive and pk in _open:
            logger.error("the checkpoint of an open stream is gone: it has been settled, and ends")
            known.stream.stop(SETTLED_ELSEWHERE)
            forget(known.stream)
    _note(batch, alive, now)


def _frozen(batch: Sequence[_OpenStream]) -> Iterator[tuple[uuid.UUID, str]]:
    """Yields what each stream would be settled as.

    A stream that raises is skipped, and is ended once its checkpoint is too old.
    """
    for known in batch:
        try:
            yield known.stream.generation_pk, known.stream.frozen()
        except Exception:
            logger.exception("a stream cannot be frozen")


def _note(batch: Sequence[_OpenStream], written: Collection[uuid.UUID] | Mapping[uuid.UUID, str], now: float) -> None:
    # `now` is the time before the write: the row may be older than the moment at which the write returned.
    for known in batch:
        if known.stream.generation_pk in written:
            known.well_at, known.has_row = now, True
