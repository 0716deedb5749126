"""Settles what was left over, rolls usage up, and sends due mail.

`Recovery` settles the spool and sweeps in the beat of each worker, in which billing/apps.py lists the other jobs. The
command `maintain` does all of it in one round, by `maintain_once`, whether or not workers run.
"""

import time
from dataclasses import dataclass, field
from typing import NamedTuple

from gateway.pages import mail

from . import notices, statements_ready
from .ledger import overdraft, spool
from .ledger.checkpoints import STALE_SECONDS, is_anything_stale, sweep
from .ledger.settlement import replay_spool
from .usage import rollups

SWEEP_EVERY_SECONDS = 15.0
STALLED_SECONDS = 30.0  # a worker whose beat comes this late was stalled


@dataclass(slots=True)
class Recovery:
    """Does a worker's share of `maintain`: replays the spool, and sweeps once live streams have renewed checkpoints.

    It sweeps only two minutes after this worker's start, after the database was last away, and after the worker itself
    was stalled: until then the checkpoint of a live stream may look stale.
    """

    # Times on the monotonic clock: of the last disturbance, of the last sweep or try of one, and of the last beat.
    quiet_since: float = field(default_factory=time.monotonic)
    swept_at: float = field(default_factory=time.monotonic)
    worked_at: float = field(default_factory=time.monotonic)

    def start(self) -> None:
        """Releases files in the spool that dead workers had claimed, when the worker starts."""
        self.quiet_since = self.swept_at = self.worked_at = time.monotonic()
        spool.reclaim()

    def work(self) -> None:
        """Does what is due. The worker's beat calls it once a second."""
        if time.monotonic() - self.worked_at > STALLED_SECONDS:
            self.quiet_since = time.monotonic()
        try:
            replay_spool()
            if time.monotonic() - self.swept_at > SWEEP_EVERY_SECONDS:
                self._sweep()
        finally:
            self.worked_at = time.monotonic()

    def _sweep(self) -> None:
        now = self.swept_at = time.monotonic()
        spool.reclaim()
        try:
            if is_anything_stale() and now - self.quiet_since > STALE_SECONDS:
                sweep()
        except Exception:
            self.quiet_since = time.monotonic()
            raise


class MaintenanceCounts(NamedTuple):
    """Counts the files of the spool and the checkpoints that were settled, and those that a person has to look at."""

    spooled: int  # files that were settled
    orphaned: int  # checkpoints that were settled
    poisoned: int  # files that cannot be settled
    unsettled: int  # checkpoints that cannot be settled


def maintain_once() -> MaintenanceCounts:
    """Settles the spool and stale checkpoints, rolls usage up, and sends due mail to staff and owners.

    The spool comes first: it has a stream as it ended, while the stream's checkpoint is older.
    """
    spool.reclaim()
    spooled = replay_spool()
    swept = sweep()
    rollups.advance(rollups.RECORDS_PER_MAINTENANCE)
    overdraft.raise_alerts()
    notices.send_due()
    statements_ready.tell()
    mail.finish()  # waits for mail sent by threads, which would end with `maintain`
    return MaintenanceCounts(spooled, swept.settled, len(spool.poisoned()), swept.unsettled)
