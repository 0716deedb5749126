"""What pages read of an account's keys: newest first, without the deleted ones, a page at a time."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import QuerySet

from .budgets import budgets_of
from .models import Account, ApiKey

PAGE_ROWS = 50


@dataclass(frozen=True, slots=True)
class KeyLine:
    """A key that is not deleted. Whether it has expired is decided by the clock, as at each request."""

    key: ApiKey
    has_expired: bool

    @property
    def limits(self) -> str:
        """What it may use in a minute, in words: its own limits and the gateway's; empty where neither has any."""
        budgets = budgets_of(self.key.rpm, self.key.tpm)
        limits = ((budgets.requests, self.key.rpm, "requests"), (budgets.tokens, self.key.tpm, "tokens"))
        return ", ".join(
            f"{limit:,} {what}" if limit else f"any {what}" for limit, own, what in limits if limit or own is not None
        )


@dataclass(frozen=True, slots=True)
class KeyPage:
    """Some lines of the list; `older` is where the next page begins, None on the last."""

    lines: list[KeyLine]
    older: UUID | None


def newest(account: Account, now: datetime, *, rows: int) -> list[KeyLine]:
    """The newest keys."""
    return _lines(_live(account)[:rows], now)


def page(account: Account, now: datetime, *, before: UUID | None = None) -> KeyPage:
    """The newest PAGE_ROWS keys, or those older than the key `before`."""
    found = _live(account) if before is None else _live(account).filter(pk__lt=before)
    lines = _lines(found[: PAGE_ROWS + 1], now)
    shown = lines[:PAGE_ROWS]
    return KeyPage(shown, shown[-1].key.pk if len(lines) > PAGE_ROWS else None)


def _live(account: Account) -> QuerySet[ApiKey]:
    """By id, which grows with time and is unique."""
    return ApiKey.objects.filter(account=account, deleted_at=None).order_by("-pk")


def _lines(found: QuerySet[ApiKey], now: datetime) -> list[KeyLine]:
    return [KeyLine(key, key.expires_at is not None and key.expires_at <= now) for key in found]
