"""Settling so that nothing can interrupt it: a greenlet of its own, retries, and connections of its own."""

import logging
import random
import time

import gevent
from django.db import Error, connections
from django.db.utils import InterfaceError, OperationalError

from gateway.db import release

from .ledger import settle
from .models import Generation
from .outcomes import Settlement

logger = logging.getLogger(__name__)

RETRY_SECONDS = 5.0
FIRST_PAUSE_SECONDS = 0.01
LONGEST_PAUSE_SECONDS = 0.5


def settle_shielded(generation: Generation) -> Settlement:
    """Settles in a greenlet that neither a drain nor a client's leaving can kill, and waits for it.

    Raises the database's error when retrying for 5 seconds has not helped.
    """
    greenlet = gevent.spawn(_settle_with_retries, generation)
    settlement: Settlement = greenlet.get()
    return settlement


def _settle_with_retries(generation: Generation) -> Settlement:
    give_up_at = time.monotonic() + RETRY_SECONDS
    pause = FIRST_PAUSE_SECONDS
    while True:
        try:
            return settle(generation)
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
