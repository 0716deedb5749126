"""Shows the first page: an account's balance, its last 30 days compared with the 30 before, an example request."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Self
from uuid import UUID

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.formats import date_format

from accounts.models import Account
from billing.accounts import rate_warning
from billing.funds import WINDOW_DAYS, funds_of, period_before, usage_by_day
from billing.ledger.spending import alerts_of_periods
from billing.usage.percentiles import read_times
from billing.usage.statistics import Days, Scope, Totals

from .parts.access import AccountContext, account_page
from .parts.choices import NOTHING_BEFORE, Choice, Grouping
from .parts.groups import dearest
from .parts.request_list import Row, page
from .parts.routes import listed_models, model_for_example
from .parts.speed import speed_of_periods

MOST_LISTED = 5  # models and keys that cost most, and newest requests
CHART_HEIGHT = 1000  # in units of the drawing, in which a day is ten wide


@dataclass(frozen=True, slots=True)
class DayBar:
    """Holds a day of the chart: its height, the height of the day 30 days before, and both as text (`title`)."""

    x: int
    height: int
    height_before: int
    title: str

    @property
    def y(self) -> int:
        return CHART_HEIGHT - self.height

    @property
    def y_before(self) -> int:
        return CHART_HEIGHT - self.height_before


@dataclass(frozen=True, slots=True)
class CostChart:
    """Holds the chart of cost by day, drawn over the period before."""

    days: Days
    bars: list[DayBar]
    highest: Decimal
    total: Decimal
    total_before: Decimal | None

    @classmethod
    def of(cls, by_day: Mapping[date, Totals], days: Days, account: Account) -> Self:
        # An account younger than the period before gets no sum of it, which would cover a few days only.
        length = (days.last - days.first).days + 1
        dates = [days.first + timedelta(days=number) for number in range(length)]
        earlier = [day - timedelta(days=length) for day in dates]
        now, before = ([_cost(by_day, day) for day in period] for period in (dates, earlier))
        currency, is_older = account.currency, account.created_at.astimezone(UTC).date() <= earlier[0]
        highest = max(*now, *before)
        bars = [
            DayBar(
                10 * number,
                _height(now[number], highest),
                _height(before[number], highest),
                f"{_named(dates[number], now[number], currency)}\n{_named(earlier[number], before[number], currency)}",
            )
            for number in range(length)
        ]
        return cls(days, bars, highest, sum(now, Decimal(0)), sum(before, Decimal(0)) if is_older else None)

    @property
    def width(self) -> int:
        return 10 * len(self.bars)


@account_page()
def overview(request: HttpRequest, current: AccountContext) -> HttpResponse:
    """Shows the account at a glance."""
    return current.page(request, "overview", read(current.account, timezone.now()))


def read(account: Account, now: datetime) -> dict[str, Any]:
    """Returns the values of the page, with sixteen SELECTs by an index, and one more if the currency is not EUR."""
    days = Days.until(now, WINDOW_DAYS)
    newest = newest_requests(account.pk, now)
    by_day = usage_by_day(Scope(account.pk), Days.until(now, 2 * WINDOW_DAYS))
    funds = funds_of(account.pk, by_day, now)
    choices = [Choice(account, "usage", days, str(WINDOW_DAYS), by) for by in (Grouping.MODEL, Grouping.KEY)]
    before = period_before(by_day, choices[0].before, account)
    times = read_times(Scope(account.pk), days, before=choices[0].before)
    return {
        "funds": funds,
        "before": before,
        "speed": speed_of_periods(times, days, before),
        "chart": CostChart.of(by_day, days, account),
        "dearest": [(choice, dearest(choice, MOST_LISTED)) for choice in choices] if funds.sums.requests else [],
        "requests": newest,
        "listed_models": listed_models(newest),
        "example_model": model_for_example(newest, account, now),
        "rate_warning": rate_warning(account),
        "budget_alerts": alerts_of_periods(account.pk, now.astimezone(UTC).date()),
        "public_url": settings.PUBLIC_URL,
    }


def newest_requests(account_id: UUID, now: datetime) -> list[Row]:
    """Returns the requests that the page lists, served or not."""
    return page(Scope(account_id), Days(NOTHING_BEFORE, now.date()), limit=MOST_LISTED).rows


def _cost(by_day: Mapping[date, Totals], day: date) -> Decimal:
    return (by_day[day].cost if day in by_day else None) or Decimal(0)


def _height(cost: Decimal, highest: Decimal) -> int:
    return round(CHART_HEIGHT * cost / highest) if highest else 0


def _named(day: date, cost: Decimal, currency: str) -> str:
    return f"{date_format(day, 'j M Y')}: {cost:,.4f} {currency}"
