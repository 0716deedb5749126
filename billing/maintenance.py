"""What the workers' beat does for billing now and then, and `maintain` for a stopped server."""

import logging
import time

from . import spool
from .settlement import replay_spool
from .sweeper import STALE_SECONDS, sweep

logger = logging.getLogger(__name__)

SWEEP_EVERY_SECONDS = 15.0


class Beat:
    """Replays the spool with every beat, and sweeps when live streams have had time to renew their checkpoints.

    That is two minutes after this worker's start and after its database was last away: before, every checkpoint may
    look stale though its stream lives.
    """

    def __init__(self) -> None:
        self._quiet_since = time.monotonic()
        self._swept_at = time.monotonic()

    def start(self) -> None:
        """At the worker's boot: what it (or another) left claimed in the spool goes back."""
        self._quiet_since = time.monotonic()
        spool.reclaim()

    def __call__(self) -> None:
        """Once a second."""
        now = time.monotonic()
        try:
            replay_spool()
            if now - self._quiet_since > STALE_SECONDS and now - self._swept_at > SWEEP_EVERY_SECONDS:
                self._swept_at = now
                sweep()
        except Exception:
            self._quiet_since = now
            raise


def maintain_once() -> dict[str, int]:
    """Settles what the spool and the checkpoints hold, and returns how much of each, and what is set aside.

    The spool goes first: it knows the end of a stream, where its checkpoint knows less.
    """
    spool.reclaim()
    return {"spooled": replay_spool(), "orphaned": sweep(), "poisoned": len(spool.poisoned())}
