"""Measures each route by its requests of all accounts: time to the first token, output tokens a second, success rate.

The rollup adds the records of each batch to the rows of RouteHour in its own transaction, so that each counts once.
docs/api.md#speed-and-success-of-a-route defines the figures.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import add
from typing import Any, NamedTuple

from django.db.models import Case, Count, F, IntegerField, QuerySet, When
from django.db.models.functions import TruncHour
from django.utils import timezone

from catalogue.models import RouteHour
from catalogue.routing.route_failures import KEPT, HourOfRoute
from gateway.server.turns import take_turns

from ..ledger.endings import PROVIDER_FAILURES
from ..models import Generation
from .histograms import Histogram, bucket_in_sql
from .times import PACED, PER_THOUSAND_TOKENS, TIMED

HOURS = 24
FEWEST_REQUESTS = 20  # below this a figure would tell about single requests


class RouteKey(NamedTuple):
    """Identifies a route."""

    provider: str
    model: str
    region: str


@dataclass(slots=True)
class RouteCounts:
    """Counts the requests of a route."""

    served: int = 0
    failed: int = 0
    first_token: Histogram = field(default_factory=Histogram)
    per_thousand_tokens: Histogram = field(default_factory=Histogram)

    def __add__(self, other: "RouteCounts") -> "RouteCounts":
        return RouteCounts(
            self.served + other.served,
            self.failed + other.failed,
            self.first_token + other.first_token,
            self.per_thousand_tokens + other.per_thousand_tokens,
        )

    @property
    def first_token_seconds(self) -> float | None:
        """Returns the median, as `tokens_per_second`; None if there were too few requests to tell."""
        median = _median(self.first_token)
        return None if median is None else median / 1000

    @property
    def tokens_per_second(self) -> float | None:
        median = _median(self.per_thousand_tokens)
        return None if median is None else 1_000_000 / median

    @property
    def success_percent(self) -> float | None:
        requests = self.served + self.failed
        return 100 * self.served / requests if requests >= FEWEST_REQUESTS else None


@dataclass(frozen=True, slots=True)
class RouteFigures:
    """Holds a route's counts of the last 24 hours: of all, and of each hour from the oldest to the current one."""

    day: RouteCounts = field(default_factory=RouteCounts)
    hours: tuple[RouteCounts, ...] = (RouteCounts(),) * HOURS


def figures_of(models: Collection[str], now: datetime) -> dict[RouteKey, RouteFigures]:
    """Returns the figures of the routes of these canonical models that have any, with one SELECT."""
    current = _hour_of(now)
    first = current - timedelta(hours=HOURS - 1)
    found: dict[RouteKey, list[RouteCounts]] = {}
    for row in RouteHour.objects.filter(model__in=models, hour__gte=first, hour__lte=current).iterator():
        take_turns()
        hours = found.setdefault(RouteKey(row.provider, row.model, row.region), [RouteCounts()] * HOURS)
        hours[(row.hour - first) // timedelta(hours=1)] = _counts(row)
    return {route: RouteFigures(reduce(add, hours), tuple(hours)) for route, hours in found.items()}


def count_records(records: QuerySet[Generation], after: datetime | None) -> None:
    """Adds records settled later than `after` to the rows of their routes. The rollup calls it in its transaction."""
    begin = timezone.now() - KEPT
    grouped = (
        records.filter(created_at__gt=begin if after is None else max(begin, after))
        .order_by()
        .annotate(
            hour=TruncHour("created_at", tzinfo=UTC),
            is_failed=Case(When(ending__in=PROVIDER_FAILURES, then=1), default=0, output_field=IntegerField()),
            first=Case(When(TIMED, then=bucket_in_sql(F("first_token_ms"))), output_field=IntegerField()),
            pace=Case(When(PACED, then=bucket_in_sql(PER_THOUSAND_TOKENS)), output_field=IntegerField()),
        )
        .values_list("hour", "provider", "model", "region", "is_failed", "first", "pace")
        .annotate(requests=Count("id"))
    )
    _add(grouped)


def _add(grouped: Iterable[tuple[Any, ...]]) -> None:
    found: dict[HourOfRoute, RouteCounts] = {}
    for *at, is_failed, first, pace, requests in grouped:
        part = RouteCounts(
            0 if is_failed else requests,
            requests if is_failed else 0,
            Histogram() if first is None else Histogram.of_counts({first: requests}),
            Histogram() if pace is None else Histogram.of_counts({pace: requests}),
        )
        key = HourOfRoute(*at)
        found[key] = found[key] + part if key in found else part
    # Rows are locked in the same order by all processes, so that they do not deadlock.
    rows = [RouteHour(**key._asdict()) for key in sorted(found)]
    RouteHour.objects.bulk_create(rows, ignore_conflicts=True)
    for key in sorted(found):
        row = RouteHour.objects.select_for_update().get(**key._asdict())
        counts = _counts(row) + found[key]
        row.served, row.failed = counts.served, counts.failed
        row.first_token, row.per_thousand_tokens = counts.first_token.to_json(), counts.per_thousand_tokens.to_json()
        row.save()


def _counts(row: RouteHour) -> RouteCounts:
    return RouteCounts(
        row.served,
        row.failed,
        Histogram.from_json(row.first_token),
        Histogram.from_json(row.per_thousand_tokens),
    )


def _median(durations: Histogram) -> float | None:
    return durations.percentile(50) if durations.total >= FEWEST_REQUESTS else None


def _hour_of(moment: datetime) -> datetime:
    return moment.replace(minute=0, second=0, microsecond=0)
