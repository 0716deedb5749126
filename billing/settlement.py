"""Settling so that nothing can interrupt it: a greenlet of its own, retries, and connections of its own."""

import logging
import random
import time

import gevent
from django.db import Error, connections
from django.db.utils import InterfaceError, OperationalError
from django.utils import timezone

from gateway.db import release

from . import spool
from .ledger import settle
from .models import Generation
from .outcomes import Settlement

logger = logging.getLogger(__name__)

RETRY_SECONDS = 5.0
FIRST_PAUSE_SECONDS = 0.01
LONGEST_PAUSE_SECONDS = 0.5


def settle_shielded(
    generation: Generation, *, quota_region: int | None = None, has_checkpoint: bool = False
) -> Settlement:
    """Settles (`ledger.settle`) in a greenlet that neither a drain nor a client's leaving can kill, and waits for it.

    With the database away for longer than retries bridge, or the fate of a commit unknown, the outcome goes to the
    spool and the settlement has no balance. Raises SpoolFailed when that fails too.
    """
    greenlet = gevent.spawn(_settle_or_spool, generation, quota_region, has_checkpoint)
    settlement: Settlement = greenlet.get()
    return settlement


def replay_spool() -> int:
    """Settles what waits in the spool, and returns how much."""

    def settle_again(generation: Generation, quota_region: int | None) -> None:
        try:
            settle(generation, quota_region=quota_region, has_checkpoint=True)
        finally:
            release("settlement")

    return spool.replay(settle_again)


def _settle_or_spool(generation: Generation, quota_region: int | None, has_checkpoint: bool) -> Settlement:
    try:
        return _settle_with_retries(generation, quota_region, has_checkpoint)
    except Exception:
        if connections["settlement"].in_atomic_block:
            raise  # a caller's own transaction: it decides
        logger.exception("settling %s failed", generation.public_id)
        spool.put(generation, quota_region)
        return Settlement(generation.cost, None, timezone.now())


def _settle_with_retries(generation: Generation, quota_region: int | None, has_checkpoint: bool) -> Settlement:
    give_up_at = time.monotonic() + RETRY_SECONDS
    pause = FIRST_PAUSE_SECONDS
    while True:
        try:
            return settle(generation, quota_region=quota_region, has_checkpoint=has_checkpoint)
        except (OperationalError, InterfaceError) as error:
            # Deadlocks, serialization failures, a locked SQLite file, a lost connection: settling again is safe.
            if time.monotonic() + pause > give_up_at or connections["settlement"].in_atomic_block:
                raise
            logger.warning("settling %s again after: %s", generation.public_id, _first_line(error))
        finally:
            release("settlement")
        gevent.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311  # spreads retries, guards nothing
        pause = min(pause * 2, LONGEST_PAUSE_SECONDS)


def _first_line(error: Error) -> str:
    return str(error).strip().split("\n", 1)[0]
