"""An account's balance: what is left, and how long it lasts at the pace of the last 30 days."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from uuid import UUID

from .models import Wallet
from .usage_statistics import Days, Scope, Totals, totals

WINDOW_DAYS = 30  # UTC's, today's included
LOW_BALANCE_DAYS = 7  # a week is time enough for a bank transfer to arrive


class BalanceStatus(StrEnum):
    """Whether there is credit. EMPTY is what makes the API answer 402."""

    GOOD = "good"
    LOW = "low"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class Funds:
    """A balance beside what was used in the window, both in the account's currency."""

    balance: Decimal
    sums: Totals

    @property
    def days_left(self) -> int | None:
        """Whole days that the balance lasts at the window's pace; None where nothing was spent."""
        if not self.sums.cost:
            return None
        return max(0, int(self.balance * WINDOW_DAYS / self.sums.cost))

    @property
    def status(self) -> BalanceStatus:
        """Whether credit is needed: now, soon or not."""
        if self.balance <= 0:
            return BalanceStatus.EMPTY
        soon = self.days_left is not None and self.days_left < LOW_BALANCE_DAYS
        return BalanceStatus.LOW if soon else BalanceStatus.GOOD


def funds_of(account_id: UUID, now: datetime) -> Funds:
    """Three SELECTs, each by an index."""
    balance = Wallet.objects.get(pk=account_id).balance
    return Funds(balance, totals(Scope(account_id), Days.until(now, WINDOW_DAYS)))
