"""Measures how far the published checkpoint is behind the ledger, for metrics and `doctor`."""

from datetime import datetime

from django.db.models import Min, OuterRef, Subquery
from django.db.models.functions import Coalesce
from django.utils import timezone

from billing.models import LedgerEntry
from gateway.management.checks import CheckDoubtful

from . import log_key, policy, receipts, sequencer
from .models import Leaf

MOST_SECONDS = 300.0


class Lag:
    """Remembers the oldest ledger entry that the published checkpoint does not have, as it was when last looked."""

    def __init__(self) -> None:
        self._has_looked = False
        self._oldest: datetime | None = None

    def look(self) -> None:
        """Looks for it, with three queries that read a few rows of each account that is behind."""
        self._has_looked = log_key.current() is not None
        self._oldest = _oldest_unpublished() if self._has_looked else None

    def seconds(self) -> dict[str, float]:
        """Returns the age of that entry; 0 if the checkpoint has all entries, and nothing without a log."""
        if not self._has_looked:
            return {}
        return {"": 0.0 if self._oldest is None else max(0.0, (timezone.now() - self._oldest).total_seconds())}


current = Lag()


def check() -> str:
    """Tells `doctor` the state of the log. Raises CheckDoubtful if the log is behind."""
    found = Lag()
    found.look()
    checkpoint = receipts.published()
    size = 0 if checkpoint is None else checkpoint.size
    if (seconds := found.seconds().get("", 0.0)) > MOST_SECONDS:
        raise CheckDoubtful(
            f"Its published checkpoint has {size} leaves, and lacks an entry of {seconds:.0f} s ago: look in the "
            "gateway's log for witnesses that do not cosign, and check that the gateway runs and has the log's key."
        )
    return f"{size} leaves, {len(policy.current().witnesses)} witnesses"


def _oldest_unpublished() -> datetime | None:
    """Returns when the oldest entry that is not in the published checkpoint was booked."""
    checkpoint = receipts.published()
    leaf = Leaf.objects.filter(index__gte=0 if checkpoint is None else checkpoint.size).order_by("index")
    in_the_log = leaf.values_list("entry__created_at", flat=True).first()
    following = LedgerEntry.objects.filter(
        account=OuterRef("account"), seq=Coalesce(OuterRef("account__logged__seq"), 0) + 1
    )
    behind = sequencer.accounts_behind().annotate(following_at=Subquery(following.values("created_at")[:1]))
    outside: datetime | None = behind.aggregate(oldest=Min("following_at"))["oldest"]
    return min((each for each in (in_the_log, outside) if each is not None), default=None)
