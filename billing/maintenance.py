"""What the workers' beat does for billing now and then, and `maintain` for a stopped server."""

import time
from dataclasses import dataclass, field
from typing import NamedTuple

from gateway.pages import mail

from . import notices
from .ledger import overdraft, spool
from .ledger.checkpoints import STALE_SECONDS, is_anything_stale, sweep
from .ledger.settlement import replay_spool
from .usage import rollups

LOOK_EVERY_SECONDS = 15.0
FROZEN_SECONDS = 30.0


@dataclass(slots=True)
class Recovery:
    """A worker's share of `maintain`: replays the spool, and sweeps when live streams have renewed their checkpoints.

    That is two minutes after this worker's start, after its database was last away, and after it was itself frozen:
    before, every checkpoint may look stale though its stream lives.
    """

    quiet_since: float = field(default_factory=time.monotonic)
    looked_at: float = field(default_factory=time.monotonic)
    worked_at: float = field(default_factory=time.monotonic)

    def start(self) -> None:
        """At the worker's boot: what it (or another) left claimed in the spool goes back."""
        self.quiet_since = self.looked_at = self.worked_at = time.monotonic()
        spool.reclaim()

    def work(self) -> None:
        """What is due; called once a second."""
        if time.monotonic() - self.worked_at > FROZEN_SECONDS:
            self.quiet_since = time.monotonic()
        try:
            replay_spool()
            if time.monotonic() - self.looked_at > LOOK_EVERY_SECONDS:
                self._look()
        finally:
            self.worked_at = time.monotonic()

    def _look(self) -> None:
        now = self.looked_at = time.monotonic()
        spool.reclaim()
        try:
            if is_anything_stale() and now - self.quiet_since > STALE_SECONDS:
                sweep()
        except Exception:
            self.quiet_since = time.monotonic()
            raise


class MaintenanceCounts(NamedTuple):
    """What was settled, and what a person has to look at."""

    spooled: int
    orphaned: int
    poisoned: int
    unsettled: int


def maintain_once() -> MaintenanceCounts:
    """Settles what the spool and the checkpoints hold, rolls usage up, and mails staff and owners what they need.

    The spool goes first: it knows the end of a stream, where its checkpoint knows less.
    """
    spool.reclaim()
    spooled = replay_spool()
    swept = sweep()
    rollups.advance(rollups.RECORDS_PER_MAINTENANCE)
    overdraft.raise_alerts()
    notices.send_due()
    mail.finish()  # `maintain` may end now, and its threads with it
    return MaintenanceCounts(spooled, swept.settled, len(spool.poisoned()), swept.unsettled)
