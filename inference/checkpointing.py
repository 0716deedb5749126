"""The worker's side of checkpoints: which streams are open, and how far they are, written with the beat.

A stream pays nothing for the first seconds of its life. From then on its row is renewed every few seconds; a stream
that finds its row gone has been settled by a sweeper, and one whose row could not be renewed for 30 s cannot rely on
it: both end as worker-stopped.
"""

import logging
import time
import uuid
from typing import Protocol

from django.db import Error

from billing import checkpoints

logger = logging.getLogger(__name__)

FIRST_AFTER_SECONDS = 5.0
RENEW_EVERY_SECONDS = 5.0
LOST_AFTER_SECONDS = 30.0


class Checkpointed(Protocol):
    """An open stream."""

    generation_pk: uuid.UUID
    opened_at: float
    has_checkpoint: bool

    def frozen(self) -> str:
        """What would be settled if the worker died now."""

    def stop(self) -> None:
        """Ends the stream as worker-stopped."""


_open: dict[uuid.UUID, Checkpointed] = {}
_renewed_at: dict[uuid.UUID, float] = {}


def register(stream: Checkpointed) -> None:
    """A stream that has delivered something."""
    _open[stream.generation_pk] = stream


def forget(stream: Checkpointed) -> None:
    """A stream that is being settled, or of which nothing was delivered. Idempotent."""
    _open.pop(stream.generation_pk, None)
    _renewed_at.pop(stream.generation_pk, None)


def beat() -> None:
    """Writes and renews what is due; runs once a second."""
    now = time.monotonic()
    due = [stream for stream in _open.values() if _is_due(stream, now)]
    if not due:
        return
    fresh = [stream for stream in due if stream.generation_pk not in _renewed_at]
    known = [stream for stream in due if stream.generation_pk in _renewed_at]
    try:
        _insert(fresh)
        _renew(known)
    except Error:
        logger.exception("checkpoints of %s streams could not be written", len(due))
        for stream in due:
            if now - _renewed_at.get(stream.generation_pk, stream.opened_at) > LOST_AFTER_SECONDS:
                stream.stop()


def _is_due(stream: Checkpointed, now: float) -> bool:
    renewed_at = _renewed_at.get(stream.generation_pk)
    if renewed_at is None:
        return now - stream.opened_at >= FIRST_AFTER_SECONDS
    return now - renewed_at >= RENEW_EVERY_SECONDS


def _insert(streams: list[Checkpointed]) -> None:
    if not streams:
        return
    for stream in streams:
        stream.has_checkpoint = True  # before the row exists: settling must look for it from now on
    checkpoints.insert({stream.generation_pk: stream.frozen() for stream in streams})
    _note_renewal(streams)


def _renew(streams: list[Checkpointed]) -> None:
    if not streams:
        return
    alive = checkpoints.renew({stream.generation_pk: stream.frozen() for stream in streams})
    for stream in streams:
        if stream.generation_pk not in alive and stream.generation_pk in _open:
            logger.error("the checkpoint of an open stream is gone: it has been settled, and ends")
            stream.stop()
    _note_renewal([stream for stream in streams if stream.generation_pk in alive])


def _note_renewal(streams: list[Checkpointed]) -> None:
    now = time.monotonic()
    for stream in streams:
        if stream.generation_pk in _open:
            _renewed_at[stream.generation_pk] = now
