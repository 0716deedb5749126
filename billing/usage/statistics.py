"""Adds up the usage of an account or a part of it by UTC days, in total or by groups, exactly as its records do.

Rolled-up days and the records after the account's watermark (the tail) are read by one statement, so both are as of the
same moment.
"""

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import StrEnum
from itertools import chain
from operator import attrgetter
from typing import Any, Self
from uuid import UUID

from django.db.models import DateTimeField, Q, QuerySet, Subquery, Sum, Value
from django.db.models.functions import Coalesce

from gateway.money import EXACT
from gateway.observing.request_events import Outcome
from gateway.server.turns import take_turns

from ..models import NO_ALIAS, DailyUsage, FailureDay, Generation, UsageWatermark
from .request_failures import INFERENCE
from .rollups import BEGINNING, EXACT_SUMS, KNOWN_BY, SUM_PREFIX, SUMS, sums_by

ONE_DAY = timedelta(days=1)
NO_TAG = ""  # instead of a tag: the usage without tags
ROWS_AT_ONCE = 200  # fetched from the database at once


class GroupColumn(StrEnum):
    """Lists what usage can be grouped by. A request with several tags counts in the group of each of them."""

    DAY = "day"
    KEY = "key_id"
    ALIAS = "alias_id"
    PROVIDER = "provider"
    MODEL = "model"
    REGION = "region"
    ENDPOINT = "endpoint"
    SOURCE = "energy_source"
    TAG = "tag"


@dataclass(frozen=True, slots=True)
class Scope:
    """Selects the usage of an account or a part of it.

    `alias_id=NO_ALIAS` selects the usage without an alias, and `tag=NO_TAG` the usage without tags.
    """

    account_id: UUID
    key_id: UUID | None = None
    alias_id: UUID | None = None
    provider: str | None = None
    model: str | None = None
    region: str | None = None
    tag: str | None = None

    @property
    def of_rows(self) -> dict[str, Any]:
        """Returns filter conditions for rolled-up rows."""
        chosen = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "tag"}
        conditions = {name: value for name, value in chosen.items() if value is not None}
        if self.tag is not None:
            conditions |= {"tags": ""} if self.tag == NO_TAG else {"tags__has_word": self.tag}
        return conditions

    @property
    def of_records(self) -> dict[str, Any]:
        """Returns filter conditions for records."""
        conditions = self.of_rows
        conditions |= {"alias_id": None} if self.alias_id == NO_ALIAS else {}
        return conditions | {"tags": None} if self.tag == NO_TAG else conditions


@dataclass(frozen=True, slots=True)
class Days:
    """Holds a range of UTC days, the first and the last included."""

    first: date
    last: date

    @classmethod
    def until(cls, now: datetime, count: int) -> Self:
        """Returns the last `count` days, today included."""
        today = now.astimezone(UTC).date()
        return cls(today - timedelta(days=count - 1), today)

    @property
    def since(self) -> datetime:
        """Returns the first moment of the first day."""
        return datetime.combine(self.first, time.min, UTC)

    @property
    def before(self) -> datetime:
        """Returns the first moment after the last day, or the last possible moment if there is no day after it."""
        if self.last == date.max:
            return datetime.max.replace(tzinfo=UTC)
        return datetime.combine(self.last, time.min, UTC) + ONE_DAY


@dataclass(frozen=True, slots=True)
class Totals:
    """Holds usage added up. A sum covers the requests that have its figure, and is None if none has it.

    `cost` is in the account's currency.
    """

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    interrupted: int = 0
    estimated: int = 0
    priced: int = 0
    cost: Decimal | None = None
    cost_eur: Decimal | None = None
    energy_known: int = 0
    energy_wh: Decimal | None = None
    carbon_known: int = 0
    carbon_gco2e: Decimal | None = None
    duration_known: int = 0
    duration_ms: int | None = None
    first_token_known: int = 0
    first_token_ms: int | None = None
    measured: int = 0
    bounds_known: int = 0
    energy_wh_low: Decimal | None = None
    energy_wh_bounded: Decimal | None = None  # the energy of the requests that have bounds
    energy_wh_high: Decimal | None = None
    embodied_known: int = 0
    embodied_gco2e: Decimal | None = None
    cache_read_known: int = 0
    cache_read_tokens: int | None = None  # of the prompt, read from the provider's cache
    errors: int = 0  # refused, failed or broken off
    unserved: int = 0  # the errors that are not counted in `requests`

    @property
    def tokens(self) -> int:
        """Returns prompt and completion tokens together."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def unpriced(self) -> int:
        """Returns the number of served requests that were not charged."""
        return self.requests - self.priced

    @property
    def charged(self) -> Decimal:
        """Returns the cost as a change of the balance, which is negative."""
        return -(self.cost or Decimal(0))

    @property
    def asked(self) -> int:
        """Returns the number of requests, served or not."""
        return self.requests + self.unserved

    @property
    def error_percent(self) -> Decimal | None:
        """Returns the percentage of all requests that were refused, failed or broke off; None without a request."""
        return Decimal(100 * self.errors) / self.asked if self.asked else None

    def __add__(self, other: "Totals") -> "Totals":
        return Totals(*map(_plus, _figures(self), _figures(other)))

    def __sub__(self, part: "Totals") -> "Totals":
        """Returns the usage without a part of it."""
        left = {field.name: _minus(getattr(self, field.name), getattr(part, field.name)) for field in fields(self)}
        return Totals(**left | {name: None for name, known in KNOWN_BY.items() if not left[known]})


_figures = attrgetter(*(field.name for field in fields(Totals)))


@dataclass(frozen=True, slots=True)
class Row:
    """Holds the totals of one group.

    None: not grouped by this column, no alias, no tags, or the energy's source is unknown.
    """

    totals: Totals
    day: date | None = None
    key_id: UUID | None = None
    alias_id: UUID | None = None
    provider: str | None = None
    model: str | None = None
    region: str | None = None
    endpoint: str | None = None
    energy_source: str | None = None
    tag: str | None = None


def totals(scope: Scope, days: Days) -> Totals:
    """Returns everything in one sum, with two SELECTs, each by an index."""
    return sum((row.totals for row in breakdown(scope, days)), Totals())


def breakdown(
    scope: Scope, days: Days, *by: GroupColumn, parts: Sequence[Scope] = (), with_errors: bool = False
) -> list[Row]:
    """Returns a row for each group that has a request, sorted by group, with two SELECTs, each by an index.

    `parts` restricts it to usage in at least one of them. `with_errors` adds errors, and groups that have only errors,
    with a third SELECT; errors have no tags, so neither the scope nor the groups may have them then.
    """
    merged: dict[tuple[Any, ...], Totals] = {}
    failed = _failed(scope, days, by, parts) if with_errors else ()
    for group, part in chain(_parts(scope, days, by, parts), failed):
        merged[group] = merged[group] + part if group in merged else part
    rows = [Row(part, **dict(zip(by, group, strict=True))) for group, part in merged.items()]
    return sorted(rows, key=lambda row: [str(getattr(row, name) or "") for name in by])


def hourly(scope: Scope, days: Days, *by: GroupColumn, parts: Sequence[Scope] = ()) -> list[tuple[datetime, Row]]:
    """Returns a row for each UTC hour and group that has a request. Its one SELECT reads every record of these days."""
    records = records_of(scope, days, parts)
    merged: dict[tuple[datetime, tuple[Any, ...]], Totals] = {}
    for found in sums_by(records, "hour", *columns_of(by)).iterator(ROWS_AT_ONCE):
        take_turns()
        part = _read(found)
        for group in groups_of(found, by, scope.tag):
            at = found["hour"], group
            merged[at] = merged[at] + part if at in merged else part
    return [(hour, Row(part, **dict(zip(by, group, strict=True)))) for (hour, group), part in merged.items()]


def _parts(
    scope: Scope, days: Days, by: tuple[GroupColumn, ...], parts: Sequence[Scope]
) -> Iterator[tuple[tuple[Any, ...], Totals]]:
    """Yields each group's sums, from rolled-up rows and from the tail."""
    for found in select(scope, days, by, parts).iterator(ROWS_AT_ONCE):
        take_turns()
        part = _read(found)
        for group in groups_of(found, by, scope.tag):
            yield group, part


def _failed(
    scope: Scope, days: Days, by: tuple[GroupColumn, ...], parts: Sequence[Scope]
) -> Iterator[tuple[tuple[Any, ...], Totals]]:
    """Yields each group's errors."""
    some = _any_of(part.of_rows for part in parts)
    failures = FailureDay.objects.filter(some, **scope.of_rows, day__range=(days.first, days.last))
    for group, totals in failures_by(failures, "account_id", *by):
        yield _group(dict(zip(by, group[1:], strict=True)), by), totals


def failures_by(failures: QuerySet[FailureDay], *columns: str) -> Iterator[tuple[tuple[Any, ...], Totals]]:
    """Yields the errors of each group of inference requests, except clients that left before their answer began."""
    of_inference = failures.filter(endpoint__in=INFERENCE).exclude(outcome=Outcome.CLIENT_LEFT)
    unserved = Sum("requests", filter=~Q(outcome=Outcome.BROKEN), default=0)
    for *group, errors, left in (
        of_inference.order_by().values_list(*columns).annotate(Sum("requests"), unserved=unserved)
    ):
        take_turns()
        yield tuple(group), Totals(errors=int(errors), unserved=int(left))


def columns_of(by: tuple[GroupColumn, ...]) -> tuple[str, ...]:
    """Returns the columns of rows and records to group by: all tags of a request are in one."""
    return tuple("tags" if each is GroupColumn.TAG else each for each in by)


def groups_of(found: dict[str, Any], by: tuple[GroupColumn, ...], only: str | None) -> Iterator[tuple[Any, ...]]:
    """Yields the groups that a row counts in: one, or one for each of its tags, or only the one of the scope's tag."""
    if GroupColumn.TAG not in by:
        yield _group(found, by)
        return
    for tag in (found["tags"] or "").split() or [NO_TAG]:
        if only in (None, tag):
            yield _group(found | {"tag": tag}, by)


def _group(found: dict[str, Any], by: tuple[GroupColumn, ...]) -> tuple[Any, ...]:
    """Returns a row's group, with None instead of NO_ALIAS, NO_TAG and an empty source of energy."""
    return tuple(None if found[name] in (NO_ALIAS, "") else found[name] for name in by)


def select(
    scope: Scope, days: Days, by: tuple[GroupColumn, ...] = (), parts: Sequence[Scope] = ()
) -> QuerySet[Any, dict[str, Any]]:
    """Selects rolled-up rows and the sums of the tail, in one statement."""
    rows, tail = rows_and_tail(scope, days, parts)
    group = ("account_id", *columns_of(by))  # there is only one account: without `by`, it puts all into one group
    sums = {SUM_PREFIX + name: Sum(name) for name in SUMS}
    rolled_up: QuerySet[Any, dict[str, Any]] = rows.order_by().values(*group).annotate(**sums)
    return rolled_up.union(sums_by(tail, *group), all=True)


def records_of(
    scope: Scope, days: Days, parts: Sequence[Scope] = (), since: datetime | None = None
) -> QuerySet[Generation]:
    """Selects the records of these days, rolled up or not. `since` leaves out earlier ones."""
    return Generation.objects.filter(
        _any_of(part.of_records for part in parts),
        **scope.of_records,
        created_at__gte=since or days.since,
        created_at__lt=days.before,
    )


def rows_and_tail(
    scope: Scope, days: Days, parts: Sequence[Scope] = ()
) -> tuple[QuerySet[DailyUsage], QuerySet[Generation]]:
    """Returns queries for rolled-up rows and for the records after the watermark, to be combined in one statement."""
    # The statement reads the watermark again; this read only shows the planner how short the tail is.
    watermark = UsageWatermark.objects.filter(account_id=scope.account_id)
    seen = watermark.values_list("rolled_until", flat=True).first() or BEGINNING
    rolled_until = Coalesce(Subquery(watermark.values("rolled_until")), Value(BEGINNING, DateTimeField()))
    tail = records_of(scope, days, parts, since=max(seen, days.since)).filter(created_at__gt=rolled_until)
    some = _any_of(part.of_rows for part in parts)
    return DailyUsage.objects.filter(some, **scope.of_rows, day__range=(days.first, days.last)), tail


def _any_of(parts: Iterable[dict[str, Any]]) -> Q:
    """Combines conditions by OR. Without any, it matches everything."""
    return functools.reduce(Q.__or__, (Q(**conditions) for conditions in parts), Q())


def _read(found: dict[str, Any]) -> Totals:
    """Converts a row of sums to Totals. PostgreSQL returns sums of whole numbers as Decimal."""
    figures = {name: found[SUM_PREFIX + name] for name in SUMS}
    for name, figure in figures.items():
        known = KNOWN_BY.get(name)
        if known is not None and not found[SUM_PREFIX + known]:
            figures[name] = None
        elif name not in EXACT_SUMS:
            figures[name] = int(figure)
    return Totals(**figures)


def _plus(mine: Any, theirs: Any) -> Any:
    if mine is None or theirs is None:
        return theirs if mine is None else mine
    return EXACT.add(mine, theirs) if isinstance(mine, Decimal) else mine + theirs


def _minus(whole: Any, part: Any) -> Any:
    if whole is None or part is None:
        return whole
    return EXACT.subtract(whole, part) if isinstance(whole, Decimal) else whole - part
