"""What the workers' beat does for billing now and then, and `maintain` for a stopped server."""

import time
from typing import Any, NamedTuple

import gevent

from gateway import mail
from gateway.hooks import run_each

from . import overdraft, rollups, spool
from .settlement import replay_spool
from .sweeper import STALE_SECONDS, is_anything_stale, sweep

LOOK_EVERY_SECONDS = 15.0
FROZEN_SECONDS = 30.0


class Beat:
    """Replays the spool with every beat, and sweeps when live streams have had time to renew their checkpoints.

    That is two minutes after this worker's start, after its database was last away, and after it was itself frozen:
    before, every checkpoint may look stale though its stream lives. The work has a greenlet of its own: the other
    hooks of the beat, the checkpoints of live streams among them, do not wait for a locked wallet.
    """

    def __init__(self) -> None:
        self._quiet_since = self._looked_at = self._beat_at = time.monotonic()
        self._working: gevent.Greenlet[..., Any] | None = None

    def start(self) -> None:
        """At the worker's boot: what it (or another) left claimed in the spool goes back."""
        self._quiet_since = self._looked_at = self._beat_at = time.monotonic()
        spool.reclaim()

    def __call__(self) -> None:
        """Once a second."""
        now = time.monotonic()
        if now - self._beat_at > FROZEN_SECONDS:
            self._quiet_since = now
        self._beat_at = now
        if self._working is None or self._working.ready():
            self._working = gevent.spawn(run_each, [self.work])

    def work(self) -> None:
        """What is due now."""
        replay_spool()
        now = time.monotonic()
        if now - self._looked_at <= LOOK_EVERY_SECONDS:
            return
        self._looked_at = now
        spool.reclaim()
        try:
            if is_anything_stale() and now - self._quiet_since > STALE_SECONDS:
                sweep()
        except Exception:
            self._quiet_since = time.monotonic()
            raise


class Maintained(NamedTuple):
    """What was settled, and what a person has to look at."""

    spooled: int
    orphaned: int
    poisoned: int
    hopeless: int


def maintain_once() -> Maintained:
    """Settles what the spool and the checkpoints hold, rolls usage up, and alerts staff to accounts far below zero.

    The spool goes first: it knows the end of a stream, where its checkpoint knows less.
    """
    spool.reclaim()
    spooled = replay_spool()
    swept = sweep()
    rollups.advance(rollups.RECORDS_PER_MAINTENANCE)
    overdraft.look()
    mail.finish()  # `maintain` may end now, and its threads with it
    return Maintained(spooled, swept.settled, len(spool.poisoned()), swept.hopeless)
