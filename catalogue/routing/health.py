"""Counts the calls to providers and their failures, and derives each provider's status."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from operator import add, attrgetter
from typing import Any

from django.db import connection
from django.db.models import OuterRef, Q, QuerySet, Subquery, Sum
from django.db.models.functions import TruncHour
from django.utils import timezone

from gateway.observing.write_behind import WriteBehind

from ..models import Provider, ProviderFailure, ProviderMinute, Status
from . import troubles
from .routes import Upstream

WINDOW = timedelta(minutes=5)
DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
FEWEST_ATTEMPTS = 5
DOWN_FROM, DEGRADED_FROM = 0.5, 0.1
# Errors of a healthy provider: it rejects the request for its content or, with 404, does not know the model by the
# catalogue's name. That is no fault of the request either, so 404 is not in REJECTED_STATUSES (inference.dialects).
HEALTHY_ERROR_STATUSES = frozenset({400, 404, 413, 422})
MOST_WORDS = 500
SUMS = ("sent", "failed", "sent_in_hour", "failed_in_hour")
KEPT = timedelta(hours=25)  # the admin shows a day
DROP_EVERY_SECONDS = 600.0
LOOK_EVERY_SECONDS = 2.0
PROBE_EVERY = timedelta(seconds=30)

_TABLE = ProviderMinute._meta.db_table
_ADD = f"""
    INSERT INTO {_TABLE} (minute, provider, attempts, failures) VALUES %s
    ON CONFLICT (minute, provider) DO UPDATE
    SET attempts = {_TABLE}.attempts + excluded.attempts, failures = {_TABLE}.failures + excluded.failures
"""  # noqa: S608  # the table of our own model


@dataclass(slots=True)
class CallCounts:
    """Counts calls, and how many of them failed."""

    attempts: int = 0
    failures: int = 0

    def __add__(self, other: "CallCounts") -> "CallCounts":
        return CallCounts(self.attempts + other.attempts, self.failures + other.failures)

    @property
    def fails(self) -> bool:
        return bool(self.failures) and self.failures >= DOWN_FROM * self.attempts

    @property
    def troubles(self) -> bool:
        """Tells whether the share of failures is too high for a healthy provider, even if there were few calls."""
        return bool(self.failures) and self.failures >= DEGRADED_FROM * self.attempts

    @property
    def percent(self) -> float | None:
        """Returns the share of failures in percent; None without calls."""
        return 100 * self.failures / self.attempts if self.attempts else None

    @property
    def in_words(self) -> str:
        return f"{self.failures:,} of {self.attempts:,} failed" if self.attempts else "nothing sent"


@dataclass(frozen=True, slots=True)
class RecentCalls:
    """Counts a provider's calls in the last 5 minutes, which decide its status, and in the last hour."""

    minutes: CallCounts = field(default_factory=CallCounts)
    hour: CallCounts = field(default_factory=CallCounts)

    @property
    def fails(self) -> bool:
        """Tells whether most calls failed in the last 5 minutes or, without calls, in the last hour."""
        return (self.minutes if self.minutes.attempts else self.hour).fails


def is_failure(status: int | None) -> bool:
    """Tells whether an answer counts as the provider's failure. None stands for a missing answer."""
    return status is None or (status not in HEALTHY_ERROR_STATUSES and not 200 <= status < 300)


def note(slug: str, *, failed: bool, words: str = "") -> None:
    """Counts one call; `words` describe its failure."""
    now = timezone.now()
    _outcomes.note((now.replace(second=0, microsecond=0), slug), CallCounts(1, int(failed)))
    if failed:
        text = "".join(filter(str.isprintable, words))[:MOST_WORDS]
        _failures.note(slug, ProviderFailure(provider=slug, failed_at=now, words=text))


def flush() -> None:
    """Adds this worker's counts to the rows that all workers share, one for each provider and minute."""
    _outcomes.flush()
    _failures.flush()


def last_failure(slug: str) -> ProviderFailure | None:
    """Returns the last failure of a provider in any worker, or None."""
    return ProviderFailure.objects.filter(pk=slug).first()


def counts_by_provider(now: datetime) -> dict[str, CallCounts]:
    """Counts the calls of each provider in the last 5 minutes, by slug."""
    rows = within(WINDOW, now).values_list("provider").annotate(Sum("attempts"), Sum("failures"))
    return {slug: CallCounts(attempts, failures) for slug, attempts, failures in rows}


def recent_calls(now: datetime) -> dict[str, RecentCalls]:
    """Counts the calls of each provider in the last 5 minutes and in the last hour, by slug, with one SELECT."""
    newest = Q(minute__gt=now - WINDOW)
    sums = [Sum(column, filter=which, default=0) for which in (newest, Q()) for column in ("attempts", "failures")]
    rows = within(HOUR, now).values_list("provider").annotate(**dict(zip(SUMS, sums, strict=True)))
    return {slug: _recent_calls(*counts) for slug, *counts in rows}


def within(time: timedelta, now: datetime) -> QuerySet[ProviderMinute]:
    """Returns the rows of this length of time up to now."""
    return ProviderMinute.objects.filter(minute__gt=now - time, minute__lte=now)


def with_recent_calls(providers: QuerySet[Provider], now: datetime) -> QuerySet[Provider]:
    """Returns the providers with the added columns that `recent_calls_of` reads."""
    sums = []
    for time in (WINDOW, HOUR):
        rows = within(time, now).filter(provider=OuterRef("slug")).values("provider")
        sums += [Subquery(rows.annotate(all=Sum(column)).values("all")) for column in ("attempts", "failures")]
    return providers.annotate(**dict(zip(SUMS, sums, strict=True)))


def recent_calls_of(provider: Provider) -> RecentCalls:
    """Returns the counted calls of a provider that `with_recent_calls` returned."""
    return _recent_calls(*(count or 0 for count in attrgetter(*SUMS)(provider)))


def _recent_calls(attempts: int, failures: int, in_hour: int, failures_in_hour: int) -> RecentCalls:
    return RecentCalls(CallCounts(attempts, failures), CallCounts(in_hour, failures_in_hour))


@dataclass(frozen=True, slots=True)
class UnwellProvider:
    """Describes a provider that staff should look at, and why."""

    provider: Provider
    words: str
    hour: CallCounts
    is_severe: bool
    last_failure: ProviderFailure | None


def unwell(now: datetime) -> list[UnwellProvider]:
    """Returns the providers that are disabled, set to another status than healthy, failed within the last hour, or
    refuse the gateway itself. Runs three SELECTs.
    """
    found = []
    failures, refusing = ProviderFailure.objects.in_bulk(), troubles.current(now)
    for provider in with_recent_calls(Provider.objects.all(), now):
        calls = recent_calls_of(provider)
        words = [f"disabled: {provider.disabled_reason}"] if provider.disabled_reason else []
        if provider.status_override not in ("", Status.HEALTHY):
            words.append(f"status set to {provider.status_override}")
        if calls.minutes.troubles or calls.hour.troubles:
            words.append(calls.minutes.in_words)
        if provider.slug in refusing:
            words.append(refusing[provider.slug].words)
        if words:
            is_severe = bool(provider.disabled_reason) or calls.fails or provider.slug in refusing
            found.append(UnwellProvider(provider, "; ".join(words), calls.hour, is_severe, failures.get(provider.slug)))
    return found


def by_hour(slug: str, now: datetime) -> list[tuple[datetime, CallCounts]]:
    """Counts a provider's calls of the last day by hour, the newest first."""
    rows = ProviderMinute.objects.filter(minute__gt=now - DAY, minute__lte=now, provider=slug)
    hours = rows.annotate(hour=TruncHour("minute")).values_list("hour").order_by("-hour")
    sums = hours.annotate(Sum("attempts"), Sum("failures"))
    return [(hour, CallCounts(attempts, failures)) for hour, attempts, failures in sums]


def status_of(override: str, counts: CallCounts | None) -> tuple[Status, str]:
    """Returns the published status, and the reason for staff."""
    if override:
        return Status(override), "set by staff or by the catalogue's file"
    if counts is None or counts.attempts < FEWEST_ATTEMPTS:
        attempts = 0 if counts is None else counts.attempts
        return Status.HEALTHY, f"{attempts} attempts in 5 minutes: too few to judge by"
    share = counts.failures / counts.attempts
    status = Status.DOWN if share >= DOWN_FROM else Status.DEGRADED if share >= DEGRADED_FROM else Status.HEALTHY
    return status, f"{counts.failures} of {counts.attempts} attempts failed in 5 minutes"


def shown_status(override: str, counts: CallCounts) -> str:
    """Returns the status for pages. Without enough calls it is "no calls" or "too few calls", not "healthy"."""
    if not override and counts.attempts < FEWEST_ATTEMPTS:
        return "too few calls" if counts.attempts else "no calls"
    return status_of(override, counts)[0].label


def look() -> None:
    """Reads which providers are down, as counted by all workers, and reserves the probes that are due."""
    global _down_since  # noqa: PLW0603  # the worker's view of the providers, replaced as a whole
    now = timezone.now()
    down = {slug for slug, calls in counts_by_provider(now).items() if status_of("", calls)[0] == Status.DOWN}
    _down_since = {slug: _down_since.get(slug, now) for slug in down}
    due = [slug for slug in sorted(_passed_by & down) if _down_since[slug] <= now - PROBE_EVERY]
    _passed_by.clear()
    # The UPDATE is conditional, so that only one worker sends a probe.
    free = Q(probed_at=None) | Q(probed_at__lte=now - PROBE_EVERY)
    for slug in due:
        if ProviderFailure.objects.filter(free, provider=slug).update(probed_at=now):
            _probes[slug] = now


def is_down(upstream: Upstream) -> bool:
    """Tells whether a provider is down, so that automatic routing prefers any other."""
    override = upstream.status_override
    return override == Status.DOWN or (not override and upstream.slug in _down_since)


def note_passed_by(slug: str) -> None:
    """Notes that a request was routed past the provider; only then is a probe needed."""
    _passed_by.add(slug)


def has_probe(slug: str) -> bool:
    """Tells whether this worker may send a request to find out whether the provider is back."""
    return slug in _probes and timezone.now() - _probes[slug] < PROBE_EVERY


def take_probe(slug: str) -> None:
    """Uses up the probe."""
    del _probes[slug]


def drop_before(moment: datetime) -> int:
    """Removes the rows of earlier minutes; returns how many."""
    return ProviderMinute.objects.filter(minute__lt=moment).delete()[0]


def drop_old() -> None:
    """Removes rows older than KEPT. Every worker does this regularly, as `maintain` does."""
    drop_before(timezone.now() - KEPT)


def _write(noted: Mapping[tuple[datetime, str], CallCounts]) -> None:
    # Sorted, so that workers that write the same rows do not deadlock.
    rows = ", ".join(["(%s, %s, %s, %s)"] * len(noted))
    parameters: list[Any] = []
    for (minute, slug), counts in sorted(noted.items(), key=lambda item: item[0]):
        parameters += (connection.ops.adapt_datetimefield_value(minute), slug, counts.attempts, counts.failures)
    with connection.cursor() as cursor:
        cursor.execute(_ADD % rows, parameters)


def _write_failures(failures: Mapping[str, ProviderFailure]) -> None:
    ProviderFailure.objects.bulk_create(
        [failures[slug] for slug in sorted(failures)],
        update_conflicts=True,
        unique_fields=["provider"],
        update_fields=["failed_at", "words"],
    )


_outcomes: WriteBehind[tuple[datetime, str], CallCounts] = WriteBehind(_write, join=add)  # by minute and provider
_failures: WriteBehind[str, ProviderFailure] = WriteBehind(_write_failures)
_down_since: dict[str, datetime] = {}  # the providers that are down, and since when this worker knows
_passed_by: set[str] = set()  # since the last `look`
_probes: dict[str, datetime] = {}  # the probes that this worker may send, and since when
