"""Reads how long requests took by UTC days and by groups: from rolled-up rows and the tail, as `statistics` does."""

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import date, datetime
from itertools import groupby
from typing import Any

from django.db.models import BinaryField, CharField, F, IntegerField, QuerySet, Value
from django.db.models.functions import Cast

from gateway.server.turns import take_turns

from .statistics import (
    ONE_DAY,
    ROWS_AT_ONCE,
    Days,
    GroupColumn,
    Scope,
    columns_of,
    groups_of,
    records_of,
    rows_and_tail,
)
from .times import Kind, Times, counts_by, times_of_row

Group = tuple[Any, ...]


@dataclass(slots=True)
class TimesRead:
    """Holds times by day, by group, and by group and day.

    They begin on the day `since`. Earlier days have requests that a version without histograms rolled up, so that their
    times are unknown.
    """

    since: date
    by_day: dict[date, Times] = field(default_factory=dict)
    by_group: dict[Group, Times] = field(default_factory=dict)
    by_group_and_day: dict[Group, dict[date, Times]] = field(default_factory=dict)  # of the groups that were asked for

    def of(self, days: Days) -> Times:
        """Adds up the times of these days."""
        return sum((times for day, times in self.by_day.items() if days.first <= day <= days.last), Times())


def read_times(
    scope: Scope, days: Days, *by: GroupColumn, before: Days | None = None, daily: Collection[Group] = ()
) -> TimesRead:
    """Reads times with two SELECTs: by group for these days, and by day also for the period before.

    The groups in `daily` are also read by day.
    """
    wanted = Days(days.first if before is None else before.first, days.last)
    found = TimesRead(wanted.first, by_group_and_day={group: {} for group in daily})
    rows = _select(scope, wanted, by).iterator(ROWS_AT_ONCE)
    for day, of_day in groupby(rows, lambda row: row["day"]):  # newest first
        total, groups = Times(), dict[Group, Times]()
        for row in of_day:
            take_turns()
            part = _read(row)
            if part is None:
                found.since = day + ONE_DAY
                return found
            total += part
            for group in groups_of(row, by, scope.tag) if day >= days.first else ():
                groups[group] = groups.get(group, Times()) + part
        found.by_day[day] = total
        for group, times in groups.items():
            found.by_group[group] = found.by_group.get(group, Times()) + times
            if group in found.by_group_and_day:
                found.by_group_and_day[group][day] = times
    return found


def hourly_times(scope: Scope, days: Days, *by: GroupColumn) -> dict[tuple[datetime, Group], Times]:
    """Returns the times of each UTC hour and group that has a request, from every record of these days."""
    first, *others = counts_by(records_of(scope, days), "hour", *columns_of(by))
    found: dict[tuple[datetime, Group], Times] = {}
    for row in first.union(*others, all=True).iterator(ROWS_AT_ONCE):
        take_turns()
        for group in groups_of(row, by, scope.tag):
            at = row["hour"], group
            found[at] = found.get(at, Times()) + _read_counts(row)
    return found


def _select(scope: Scope, days: Days, by: tuple[GroupColumn, ...]) -> QuerySet[Any, dict[str, Any]]:
    """Selects rolled-up rows with their histograms, and the tail's counts by bucket, in one statement."""
    rows, tail = rows_and_tail(scope, days)
    group = ("day", *columns_of(by))
    columns = (*group, "kind", "bucket", "counted", *Kind)
    stored = rows.order_by().annotate(
        kind=Value("", CharField()), bucket=Value(0, IntegerField()), counted=F("requests")
    )
    nothing: dict[str, Any] = {kind.value: Cast(Value(None), BinaryField()) for kind in Kind}
    counts = [part.annotate(**nothing).values(*columns) for part in counts_by(tail, *group)]
    rows_and_counts: QuerySet[Any, dict[str, Any]] = stored.values(*columns).union(*counts, all=True)
    return rows_and_counts.order_by("-day")


def _read(row: dict[str, Any]) -> Times | None:
    return _read_counts(row) if row["kind"] else times_of_row(row["counted"], *(row[kind] for kind in Kind))


def _read_counts(row: dict[str, Any]) -> Times:
    return Times.of_counts({row["kind"]: {row["bucket"]: row["counted"]}})
