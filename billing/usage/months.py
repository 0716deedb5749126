"""Sums up an account's ledger by UTC months, and reads its balance at any moment.

Entries are numbered in the order of their times. So the sums of a period follow from the entries before its two bounds,
which an index finds, and from the few entries with a reference in between: no entry of usage is added up.
"""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from uuid import UUID

from gateway.money import EXACT

from ..models import Generation, LedgerEntry, Wallet
from .statistics import Days

ZERO = Decimal(0)


@dataclass(frozen=True, slots=True)
class LedgerSums:
    """Holds the sums of a period. `opening` + `top_ups` + `corrections` - `usage` is always exactly `closing`."""

    days: Days
    opening: Decimal
    top_ups: Decimal
    corrections: Decimal
    usage: Decimal
    closing: Decimal

    @property
    def charged(self) -> Decimal:
        """Returns the usage as a change of the balance, which is negative."""
        return -self.usage


@dataclass(frozen=True, slots=True)
class Bound:
    """Holds the number of the last ledger entry before a moment, and the balance after it."""

    seq: int = 0
    balance: Decimal = ZERO


class Ledger:
    """Reads an account's ledger as of one moment: entries that are booked later are left out."""

    def __init__(self, account_id: UUID) -> None:
        wallet = Wallet.objects.get(pk=account_id)
        self._newest = Bound(wallet.seq, wallet.balance)
        # `> ''` rather than `IS NOT NULL`: both databases then use the index of the few entries with a reference.
        entries = LedgerEntry.objects.filter(account_id=account_id, reference__gt="").order_by("reference")
        self._credits = sorted((e for e in entries.iterator() if e.seq <= wallet.seq), key=lambda entry: entry.seq)
        self._credit_times = [entry.created_at for entry in self._credits]
        billed = Generation.objects.filter(account_id=account_id, cost__isnull=False).select_related("ledger_entry")
        self._billed = billed.order_by("-created_at", "-id")

    @property
    def began_at(self) -> datetime | None:
        """Returns the time of the first entry."""
        first = self._credits[:1]
        if first and first[0].seq == 1:
            return first[0].created_at
        oldest = self._billed.reverse().first()
        moments = [entry.created_at for entry in first] + ([] if oldest is None else [oldest.created_at])
        return min(moments, default=None)

    def before(self, moment: datetime) -> Bound:
        """Returns the account's balance just before a moment, with one SELECT by an index."""
        usage: LedgerEntry | None = getattr(self._billed.filter(created_at__lt=moment).first(), "ledger_entry", None)
        number = bisect_left(self._credit_times, moment)
        found = [entry for entry in (usage, self._credits[number - 1] if number else None) if entry is not None]
        last = max(found, key=lambda entry: entry.seq, default=None)
        if last is None:
            return Bound()
        return self._newest if last.seq > self._newest.seq else Bound(last.seq, last.balance_after)

    def sums(self, days: Days, opening: Bound | None = None, closing: Bound | None = None) -> LedgerSums:
        """Returns the sums of some days. Bounds that the caller has read already are not read again."""
        opening = self.before(days.since) if opening is None else opening
        closing = self.before(days.before) if closing is None else closing
        within = [entry for entry in self._credits if opening.seq < entry.seq <= closing.seq]
        top_ups = _total(entry.amount for entry in within if entry.kind == LedgerEntry.Kind.GRANT)
        corrections = _total(entry.amount for entry in within if entry.kind == LedgerEntry.Kind.CORRECTION)
        usage = _total((opening.balance, top_ups, corrections, -closing.balance))
        return LedgerSums(days, opening.balance, top_ups, corrections, usage, closing.balance)

    def months(self, year: int, today: date) -> list[LedgerSums]:
        """Returns the months of a year from the first entry up to today, newest first, with a SELECT for each."""
        began = self.began_at
        if began is None:
            return []
        first = max(date(year, 1, 1), began.astimezone(UTC).date().replace(day=1))
        months: list[LedgerSums] = []
        opening = None
        while first.year == year and first <= today:
            days = Days(first, (first + timedelta(days=31)).replace(day=1) - timedelta(days=1))
            opening = self.before(days.since) if opening is None else opening
            closing = self.before(days.before)
            months.insert(0, self.sums(days, opening, closing))
            first, opening = days.last + timedelta(days=1), closing
        return months


def _total(amounts: Iterable[Decimal]) -> Decimal:
    total = ZERO
    for amount in amounts:
        total = EXACT.add(total, amount)
    return total
