"""What the usage page reads: sums by groups, by days, and by both for the groups that the chart shows."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from itertools import islice
from typing import Any, cast

from . import usage_chart
from .usage_choice import COLUMNS, Choice
from .usage_groups import Group, Name, group_of, named, part_of, ranked
from .usage_statistics import By, Row, Totals, breakdown

MOST_LINES = 100
SERIES = 6  # of the chart, and the rest as one more, unless that is a single group
MOST_SERIES = SERIES + 1
OTHERS = "others"
PERCENT = Decimal(100)


@dataclass(frozen=True, slots=True)
class Line:
    """A group in the table, or all those that are not listed. `share` is its part of the cost in percent, if any.

    `narrowed` and `records` are addresses; None where there is nothing to narrow to.
    """

    name: Name
    totals: Totals
    share: Decimal | None
    narrowed: str | None
    records: str | None


@dataclass(frozen=True, slots=True)
class Day:
    """A day in the table. `records` is an address."""

    day: date
    totals: Totals
    records: str


@dataclass(frozen=True, slots=True)
class UsagePage:
    """Everything on the page."""

    totals: Totals
    lines: list[Line]
    days: list[Day]
    chart: dict[str, Any]


def read(choice: Choice) -> UsagePage:
    """Six SELECTs for the sums, and at most two more for names, however many groups there are.

    The days are read last: what they have beyond the chart's groups is of others, and never less than nothing.
    """
    groups = ranked(breakdown(choice.scope, choice.days, *COLUMNS[choice.by]), choice.by)
    names = named(choice, [*groups][:MOST_LINES])
    top = dict(islice(names.items(), len(groups) if len(groups) <= MOST_SERIES else SERIES))
    parts = [part_of(choice, group) for group in top]
    rows = breakdown(choice.scope, choice.days, By.DAY, *COLUMNS[choice.by], parts=parts) if parts else []
    days = {_day(row): row.totals for row in breakdown(choice.scope, choice.days, By.DAY)}
    return UsagePage(
        totals=_sum(days.values()),
        lines=_lines(choice, groups, names),
        days=[Day(day, totals, choice.of_day(day)) for day, totals in reversed(days.items())],
        chart=_chart(choice, top, rows, days, has_others=len(groups) > len(top)),
    )


def _lines(choice: Choice, groups: dict[Group, Totals], names: dict[Group, Name]) -> list[Line]:
    """The groups that have a name, and one line for the others."""
    whole = _sum(groups.values())
    lines = [_line(choice, name, groups[group], whole) for group, name in names.items()]
    others = [totals for group, totals in groups.items() if group not in names]
    if others:
        name = Name(f"{len(others):,} others", None, detail="All of them are in the CSV.")
        lines.append(_line(choice, name, _sum(others), whole))
    return lines


def _line(choice: Choice, name: Name, totals: Totals, whole: Totals) -> Line:
    share = PERCENT * totals.cost / whole.cost if whole.cost and totals.cost is not None else None
    if name.value is None:
        return Line(name, totals, share, None, None)
    is_new = choice.by not in choice.narrowing
    here = {choice.by.value: name.value}
    return Line(name, totals, share, choice.within(**here) if is_new else None, choice.to("usage-records", **here))


def _chart(
    choice: Choice, top: Mapping[Group, Name], rows: Iterable[Row], days: Mapping[date, Totals], *, has_others: bool
) -> dict[str, Any]:
    """The days of the top groups, and what is left of each day as one more series."""
    by_group: dict[Group, dict[date, Totals]] = {group: {} for group in top}
    for row in rows:
        by_group[group_of(row, choice.by)][_day(row)] = row.totals
    texts = _told_apart(top)
    series: list[usage_chart.Series] = [(texts[group], by_day) for group, by_day in by_group.items()]
    if has_others:
        series.append((OTHERS, _left(days, by_group.values())))
    return usage_chart.of(series, choice.days, choice.account.currency)


def _left(days: Mapping[date, Totals], parts: Iterable[Mapping[date, Totals]]) -> dict[date, Totals]:
    """The days that have more requests than these parts of them, without the parts."""
    left = {day: whole - _sum(part[day] for part in parts if day in part) for day, whole in days.items()}
    return {day: totals for day, totals in left.items() if totals.requests}


def _told_apart(names: Mapping[Group, Name]) -> dict[Group, str]:
    """Keys may share a name, and are then told apart by their last characters."""
    uses = Counter(name.text for name in names.values())
    return {group: f"{n.text} {n.detail}" if uses[n.text] > 1 else n.text for group, n in names.items()}


def _day(row: Row) -> date:
    return cast(date, row.day)  # every row is of a day: they are grouped so


def _sum(parts: Iterable[Totals]) -> Totals:
    return sum(parts, Totals())
