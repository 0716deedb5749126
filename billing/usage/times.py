"""Measures the speed of served requests: latency, time to first token, and output tokens a second.

docs/api.md#speed-and-success-of-a-route and docs/growth.md#percentiles define the figures. Each is a percentile of a
histogram of milliseconds, and histograms add up.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC
from decimal import Decimal
from enum import StrEnum
from typing import Any, Self

from django.db.models import CharField, Count, F, Q, QuerySet, Value
from django.db.models.functions import TruncDate, TruncHour

from ..models import Generation
from .histograms import Histogram, bucket_in_sql

DIGITS = 2  # significant digits, since a percentile is exact to within 10 %
FEWEST_TOKENS = 10  # shorter answers often arrive in one piece, which tells nothing of the speed

TIMED = Q(fallback_reason=None, first_token_ms__isnull=False)  # after failover, the time has other routes' in it
PACED = TIMED & Q(
    ending=Generation.Ending.FINISHED,
    completion_tokens__gte=FEWEST_TOKENS,
    duration_ms__gt=F("first_token_ms"),
    usage_estimated=False,
)
PER_THOUSAND_TOKENS = (F("duration_ms") - F("first_token_ms")) * 1000 / F("completion_tokens")


class Kind(StrEnum):
    """Lists the durations that are counted by day: fields of Times, and columns of DailyUsage."""

    LATENCY = "latency"
    FIRST_TOKEN = "first_token"  # noqa: S105
    PER_THOUSAND_TOKENS = "per_thousand_tokens"


_DURATIONS: dict[Kind, tuple[Q, Any]] = {
    Kind.LATENCY: (Q(), F("duration_ms")),
    Kind.FIRST_TOKEN: (TIMED, F("first_token_ms")),
    Kind.PER_THOUSAND_TOKENS: (PACED, PER_THOUSAND_TOKENS),
}


@dataclass(frozen=True, slots=True)
class Times:
    """Holds the durations of a group of requests. A figure is None if no request has it."""

    latency: Histogram = field(default_factory=Histogram)
    first_token: Histogram = field(default_factory=Histogram)
    per_thousand_tokens: Histogram = field(default_factory=Histogram)

    @classmethod
    def of_counts(cls, counts: Mapping[str, Mapping[int, int]]) -> Self:
        """Takes the number of requests by kind of duration and by bucket."""
        return cls(**{kind: Histogram.of_counts(by_bucket) for kind, by_bucket in counts.items()})

    def to_columns(self) -> dict[str, bytes]:
        """Returns what a row of DailyUsage stores."""
        return {kind.value: getattr(self, kind).to_bytes() for kind in Kind}

    def __add__(self, other: "Times") -> "Times":
        return Times(
            self.latency + other.latency,
            self.first_token + other.first_token,
            self.per_thousand_tokens + other.per_thousand_tokens,
        )

    def __sub__(self, part: "Times") -> "Times":
        """Subtracts the times of some of these requests."""
        return Times(
            self.latency - part.latency,
            self.first_token - part.first_token,
            self.per_thousand_tokens - part.per_thousand_tokens,
        )

    @property
    def latency_p50(self) -> Decimal | None:
        """Returns seconds, as the other percentiles of latency and of the time to first token."""
        return _seconds(self.latency, 50)

    @property
    def latency_p95(self) -> Decimal | None:
        return _seconds(self.latency, 95)

    @property
    def first_token_p50(self) -> Decimal | None:
        return _seconds(self.first_token, 50)

    @property
    def first_token_p95(self) -> Decimal | None:
        return _seconds(self.first_token, 95)

    @property
    def tokens_per_second(self) -> Decimal | None:
        """Returns the median."""
        median = self.per_thousand_tokens.percentile(50)
        return None if median is None else _short(1_000_000 / median)


def with_periods(records: QuerySet[Generation], group: Collection[str]) -> QuerySet[Generation]:
    """Annotates records with their UTC `day` and `hour`, if they are columns of the group."""
    if "day" in group:
        records = records.annotate(day=TruncDate("created_at", tzinfo=UTC))
    if "hour" in group:
        records = records.annotate(hour=TruncHour("created_at", tzinfo=UTC))
    return records


def counts_by(records: QuerySet[Generation], *group: str) -> list[QuerySet[Generation, dict[str, Any]]]:
    """Counts records in the database, with a query for each kind.

    A row has the columns of the group, `kind`, `bucket`, and the number of requests as `counted`.
    """
    records = with_periods(records, group)
    return [
        records.filter(is_counted)
        .order_by()
        .annotate(kind=Value(kind.value, CharField()), bucket=bucket_in_sql(milliseconds))
        .values(*group, "kind", "bucket")
        .annotate(counted=Count("id"))
        for kind, (is_counted, milliseconds) in _DURATIONS.items()
    ]


def times_of_row(requests: int, *columns: bytes | None) -> Times | None:
    """Returns the times that a row of DailyUsage has in the columns of Kind.

    Returns None if they lack some of the row's requests, which a version without histograms rolled up.
    """
    stored = [column for column in columns if column is not None]
    if len(stored) < len(columns):
        return None
    times = Times(*map(Histogram.from_bytes, stored))
    return times if times.latency.total == requests else None


def _seconds(durations: Histogram, percent: int) -> Decimal | None:
    milliseconds = durations.percentile(percent)
    return None if milliseconds is None else _short(milliseconds / 1000)


def _short(figure: float) -> Decimal:
    return Decimal(f"{figure:.{DIGITS}g}")
