"""Settling so that nothing can interrupt it: a greenlet of its own, retries, and connections of its own."""

import logging
import random
import time
import uuid
from collections.abc import Callable
from typing import TypeVar

import gevent
from django.db import connections
from django.db.utils import InterfaceError, OperationalError
from django.utils import timezone

from gateway.db import release

from . import spool
from .faults import in_one_line
from .ledger import settle
from .models import Generation
from .outcomes import Settlement

logger = logging.getLogger(__name__)
T = TypeVar("T")

RETRY_SECONDS = 5.0
FIRST_PAUSE_SECONDS = 0.01
LONGEST_PAUSE_SECONDS = 0.5
# A database that neither answers nor refuses; above its own statement timeout, and the pool's.
SILENCE_SECONDS = 7.0
# What a worker that ends still waits for settlements; what is left then goes to the spool.
LAST_SECONDS = 2.0

_under_way: dict[uuid.UUID, tuple[Generation, int | None, "gevent.Greenlet[..., Settlement]"]] = {}


def settle_shielded(
    generation: Generation, *, quota_region: int | None = None, has_checkpoint: bool = False
) -> Settlement:
    """Settles (`ledger.settle`) in a greenlet that neither a drain nor a client's leaving can kill, and waits for it.

    With the database away for longer than retries bridge, or the fate of a commit unknown, the outcome goes to the
    spool and the settlement has no balance. Raises SpoolFailed when that fails too.
    """
    greenlet = gevent.spawn(_settle_or_spool, generation, quota_region, has_checkpoint)
    _under_way[generation.pk] = generation, quota_region, greenlet
    greenlet.link(lambda _ended: _under_way.pop(generation.pk, None))
    settlement: Settlement = greenlet.get()
    return settlement


def finish_or_spool() -> None:
    """At a worker's end: its last settlements, to which nobody listens any more, end or go to the spool."""
    gevent.joinall([greenlet for _, _, greenlet in _under_way.values()], timeout=LAST_SECONDS)
    for generation, quota_region, greenlet in list(_under_way.values()):
        if not greenlet.ready():
            spool.put(generation, quota_region)


def replay_spool() -> int:
    """Settles what waits in the spool, and returns how much."""
    return spool.replay(
        lambda generation, quota_region: _attempt(
            lambda: settle(generation, quota_region=quota_region, has_checkpoint=True)
        )
    )


def retrying(work: Callable[[], T], name: str) -> T:
    """Does it again while the database refuses: deadlocks, serialization failures, a locked file, a lost connection.

    `work` must be safe to repeat, even where its commit's fate is unknown. Raises the last refusal.
    """
    give_up_at = time.monotonic() + RETRY_SECONDS
    pause = FIRST_PAUSE_SECONDS
    while True:
        try:
            return _attempt(work)
        except (OperationalError, InterfaceError) as error:
            if time.monotonic() + pause > give_up_at or connections["settlement"].in_atomic_block:
                raise
            logger.warning("settling %s again after: %s", name, in_one_line(error))
        gevent.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311  # spreads retries, guards nothing
        pause = min(pause * 2, LONGEST_PAUSE_SECONDS)


def _settle_or_spool(generation: Generation, quota_region: int | None, has_checkpoint: bool) -> Settlement:
    try:
        return retrying(
            lambda: settle(generation, quota_region=quota_region, has_checkpoint=has_checkpoint),
            generation.public_id,
        )
    except Exception:
        if connections["settlement"].in_atomic_block:
            raise  # a caller's own transaction: it decides
        logger.exception("settling %s failed", generation.public_id)
        spool.put(generation, quota_region)
        return Settlement(generation.cost, None, timezone.now())


def _attempt(work: Callable[[], T]) -> T:
    """Once, giving the connection back; one that went silent in the middle is of no more use, and goes."""
    silence = gevent.Timeout.start_new(SILENCE_SECONDS)
    try:
        return work()
    except gevent.Timeout as caught:  # no Exception, which the pool would take for one more broken connection
        if caught is not silence:
            raise
        raise OperationalError("the database does not answer") from None
    finally:
        silence.close()
        release("settlement")
