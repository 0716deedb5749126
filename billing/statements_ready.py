"""Tells webhooks on the first days of a month (UTC) that the statement of the month before is complete."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.db.models import Exists, OuterRef
from django.utils import timezone

from accounts.actions import Action
from accounts.models import Account
from accounts.webhooks import events

from .models import Generation, LedgerEntry

EVERY_SECONDS = 300.0
TRIED_FOR = timedelta(days=7)  # deliveries are kept for longer, so that none is written twice


def tell() -> int:
    """Writes the event for each webhook that takes it and has not had it; returns for how many accounts."""
    now = timezone.now().astimezone(UTC)
    end = datetime(now.year, now.month, 1, tzinfo=UTC)
    if now - end > TRIED_FOR:
        return 0
    accounts = events.accounts_that_take(Action.STATEMENT_READY, since=end)
    if not accounts:
        return 0
    begin = (end - timedelta(days=1)).replace(day=1)
    month = f"{begin:%Y-%m}"
    found = _with_business(accounts, begin, end)
    for account_id in found:
        events.enqueue(account_id, Action.STATEMENT_READY, {"month": month}, once=month)
    return len(found)


def _with_business(accounts: set[UUID], begin: datetime, end: datetime) -> list[UUID]:
    """Returns which of the accounts have credit entries or records between two moments."""
    mine = {"account": OuterRef("pk"), "created_at__gte": begin, "created_at__lt": end}
    # Entries of usage have no index by time, but each has a record, which has one.
    entry = Exists(LedgerEntry.objects.filter(**mine).exclude(reference=None))
    record = Exists(Generation.objects.filter(**mine))
    return list(Account.objects.filter(entry | record, pk__in=accounts).values_list("pk", flat=True))
