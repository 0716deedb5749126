"""Fills the admin's first page: requests, errors and revenue of the last days, top customers, balances that run out.

It reads rolled-up days, which lack the newest minutes.
"""

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django import template
from django.db.models import F, QuerySet, Sum
from django.utils import timezone
from django.utils.formats import date_format

from billing.models import DailyUsage, FailureDay
from billing.usage.statistics import Days, Totals, failures_by
from catalogue.loader import release
from catalogue.routing import health

register = template.Library()

SHOWN_DAYS = 14
CHART_DAYS = 30
CHART_HEIGHT = 1000  # in units of the drawing, in which a day is ten wide
LOW_BALANCE_DAYS = 7
MOST_BALANCES = 10
MOST_LOOKED_AT = 200
MOST_CUSTOMERS = 10


@dataclass(frozen=True, slots=True)
class Day:
    """Holds the requests, `cost_eur` and errors of a UTC day."""

    day: date
    totals: Totals


@dataclass(frozen=True, slots=True)
class Bar:
    """Holds a day of a chart: the height of its bar, the height of the part that stands for failures, and its title."""

    x: int
    height: int
    failed: int
    title: str

    @property
    def y(self) -> int:
        return CHART_HEIGHT - self.height

    @property
    def y_failed(self) -> int:
        return CHART_HEIGHT - self.failed


@dataclass(frozen=True, slots=True)
class DayChart:
    """Holds a chart of a figure by day, oldest first. `summary` describes it in words."""

    name: str
    unit: str
    highest: str
    summary: str
    has_failures: bool
    first: date
    last: date
    bars: list[Bar]

    @property
    def width(self) -> int:
        return 10 * len(self.bars)


@dataclass(frozen=True, slots=True)
class LowBalance:
    """Describes an account whose balance lasts less than LOW_BALANCE_DAYS at its present rate of spending."""

    account_id: UUID
    name: str
    currency: str
    balance: Decimal
    days_left: int


@dataclass(frozen=True, slots=True)
class Customer:
    """Holds what an account used and spent in SHOWN_DAYS."""

    account_id: UUID
    name: str
    requests: int
    spent: Decimal
    currency: str
    spent_eur: Decimal


@register.inclusion_tag("admin/home.html", takes_context=True)
def home(context: Any) -> dict[str, Any]:
    """Returns `days`, `charts`, `customers`, `providers` and `balances`, each None if the person may not view it, and
    `old_catalogue`.
    """
    user, now = context["request"].user, timezone.now()
    sees_usage, sees_accounts = user.has_perm("billing.view_generation"), user.has_perm("accounts.view_account")
    sees_catalogue = user.has_perm("catalogue.view_provider")
    by_day = days(now) if sees_usage else []
    return {
        "old_catalogue": release.warning(now.date()) if sees_catalogue else "",
        "days": by_day[:SHOWN_DAYS] if sees_usage else None,
        "charts": charts(by_day) if sees_usage else None,
        "customers": top_customers(now) if sees_usage and sees_accounts else None,
        "providers": health.unwell(now) if sees_catalogue else None,
        "balances": low_balances(now) if sees_accounts else None,
    }


def days(now: datetime) -> list[Day]:
    """Returns the last CHART_DAYS, newest first, with two SELECTs."""
    shown = Days.until(now, CHART_DAYS)
    failed = dict(failures_by(FailureDay.objects.filter(day__range=(shown.first, shown.last)), "day"))
    served = _used(shown).values_list("day").annotate(Sum("requests"), Sum("priced"), Sum("cost_eur"))
    totals = {day: Totals(requests=int(n), priced=int(p), cost_eur=cost if p else None) for day, n, p, cost in served}
    each = (shown.last - timedelta(days=number) for number in range(CHART_DAYS))
    return [Day(day, totals.get(day, Totals()) + failed.get((day,), Totals())) for day in each]


def charts(newest_first: list[Day]) -> list[DayChart]:
    """Returns the charts of revenue and of requests; one without a bar is left out."""
    by_day = newest_first[::-1]
    revenue = {each.day: each.totals.cost_eur or Decimal(0) for each in by_day}
    asked = {each.day: Decimal(each.totals.asked) for each in by_day}
    failed = {each.day: Decimal(each.totals.errors) for each in by_day}
    drawn = [
        _chart("Revenue", "EUR", revenue, {}, "{:,.2f} EUR"),
        _chart("Requests", "", asked, failed, "{:,} requests"),
    ]
    return [chart for chart in drawn if chart is not None]


def _chart(
    name: str, unit: str, figures: dict[date, Decimal], failed: dict[date, Decimal], words: str
) -> DayChart | None:
    highest, total = max(figures.values()), sum(figures.values(), Decimal(0))
    if not highest:
        return None

    def in_words(figure: Decimal, failures: Decimal | None) -> str:
        return words.format(figure) + ("" if failures is None else f", {failures:,} failed")

    bars = [
        Bar(
            10 * number,
            round(CHART_HEIGHT * figure / highest),
            round(CHART_HEIGHT * failed.get(day, Decimal(0)) / highest),
            f"{date_format(day, 'j M Y')}: {in_words(figure, failed.get(day))}",
        )
        for number, (day, figure) in enumerate(figures.items())
    ]
    first, last = min(figures), max(figures)
    all_failed = sum(failed.values(), Decimal(0)) if failed else None
    summary = (
        f"{name} by day from {date_format(first, 'j F Y')} to {date_format(last, 'j F Y')}: "
        f"{in_words(total, all_failed)} in total, {words.format(highest)} on the highest day."
    )
    return DayChart(name, unit, words.format(highest), summary, bool(failed), first, last, bars)


def top_customers(now: datetime) -> list[Customer]:
    """Returns the accounts that spent most in the last SHOWN_DAYS, the most first, with one SELECT."""
    accounts = _used(Days.until(now, SHOWN_DAYS)).values_list("account_id", "account__name")
    spending = accounts.annotate(Sum("requests"), Sum("cost"), currency=F("account__currency"), eur=Sum("cost_eur"))
    return [Customer(*row) for row in spending.filter(eur__gt=0).order_by("-eur", "account_id")[:MOST_CUSTOMERS]]


def low_balances(now: datetime) -> list[LowBalance]:
    """Returns the accounts whose balance runs out soon, the most urgent first, with one SELECT."""
    accounts = _used(Days.until(now, LOW_BALANCE_DAYS)).values("account_id")
    spending = accounts.annotate(
        spent=Sum("cost"),
        name=F("account__name"),
        currency=F("account__currency"),
        balance=F("account__wallet__balance"),
    )
    ending = spending.filter(spent__gt=0, balance__lt=F("spent")).order_by("balance")
    found = []
    for row in ending[:MOST_LOOKED_AT]:
        days_left = max(0, int(row["balance"] * LOW_BALANCE_DAYS / row["spent"]))
        found.append(LowBalance(row["account_id"], row["name"], row["currency"], row["balance"], days_left))
    return sorted(found, key=lambda low: (low.days_left, low.balance))[:MOST_BALANCES]


def _used(shown: Days) -> QuerySet[DailyUsage]:
    return DailyUsage.objects.filter(day__range=(shown.first, shown.last)).order_by()
