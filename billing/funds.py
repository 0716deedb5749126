"""Computes an account's balance, and how long it lasts at the present rate of spending."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from uuid import UUID

from accounts.models import Account

from .models import Wallet
from .pace_alerts import PACE_DAYS, Alerts, alerts_of
from .usage.statistics import Days, GroupColumn, Scope, Totals, breakdown

WINDOW_DAYS = 30  # UTC days, today included
LOW_BALANCE_DAYS = 7  # a week is long enough for a bank transfer to arrive


class BalanceStatus(StrEnum):
    """Names the states of an account's credit. At EMPTY the API answers 402."""

    GOOD = "good"
    LOW = "low"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class Funds:
    """Holds a balance, the usage of the window, and the mean cost of a day (`pace`), in the account's currency."""

    balance: Decimal
    sums: Totals
    pace: Decimal
    account_id: UUID
    week: Decimal  # the cost of the last seven days, today included

    def alerts(self) -> Alerts:
        """Returns what the account's owners are alerted to."""
        return alerts_of(self.account_id)

    @property
    def days_left(self) -> int | None:
        """Returns for how many whole days the balance lasts; None if nothing was spent."""
        return max(0, int(self.balance / self.pace)) if self.pace else None

    @property
    def status(self) -> BalanceStatus:
        if self.balance <= 0:
            return BalanceStatus.EMPTY
        soon = self.days_left is not None and self.days_left < LOW_BALANCE_DAYS
        return BalanceStatus.LOW if soon else BalanceStatus.GOOD


@dataclass(frozen=True, slots=True)
class PeriodBefore:
    """Holds the usage of the previous period, with which tiles compare."""

    days: Days
    totals: Totals


def period_before(by_day: Mapping[date, Totals], days: Days, account: Account) -> PeriodBefore | None:
    """Adds up the previous period. Returns None if the account was opened during it, or later."""
    if account.created_at.astimezone(UTC).date() > days.first:
        return None
    return PeriodBefore(days, sum((by_day[day] for day in by_day if days.first <= day <= days.last), Totals()))


def usage_by_day(scope: Scope, days: Days, *, with_errors: bool = True) -> dict[date, Totals]:
    """Returns the totals of each day, which the tiles of pages add up, with three SELECTs, or two without errors."""
    rows = breakdown(scope, days, GroupColumn.DAY, with_errors=with_errors)
    return {row.day: row.totals for row in rows if row.day is not None}


def funds_of(account_id: UUID, by_day: Mapping[date, Totals], now: datetime) -> Funds:
    """Combines the balance with `by_day`, which must cover the window. It needs one SELECT."""
    days = Days.until(now, WINDOW_DAYS)
    window = {day: totals for day, totals in by_day.items() if day >= days.first}
    sums = sum(window.values(), Totals())
    week = _week(window, days.last)
    return Funds(Wallet.objects.get(pk=account_id).balance, sums, _pace(window, days.last), account_id, week)


def _pace(window: Mapping[date, Totals], today: date) -> Decimal:
    # The higher of two means: over the last week, which shows a jump in use, and since the first use, which suits a
    # young account.
    spent = {day: totals.cost for day, totals in window.items() if totals.cost}
    if not spent:
        return Decimal(0)
    since_first = sum(spent.values(), Decimal(0)) / ((today - min(spent)).days + 1)
    return max(_week(window, today) / PACE_DAYS, since_first)


def _week(window: Mapping[date, Totals], today: date) -> Decimal:
    first = today - timedelta(days=PACE_DAYS - 1)
    return sum((totals.cost for day, totals in window.items() if totals.cost and day >= first), Decimal(0))
