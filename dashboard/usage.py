"""The usage page: what was used on some days in total, by groups, by days, and by both for the groups of its chart."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, cast
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from accounts.models import ApiKey
from billing.models import NO_ALIAS
from billing.usage.replica import from_replica
from billing.usage.statistics import By, Row, Scope, Totals, breakdown, hourly

from . import usage_chart, usage_choice
from .access import AccountContext, account_page
from .usage_chart import total_of
from .usage_choice import COLUMNS, WITHOUT_ALIAS, Choice, Grouping, names_of_aliases

MOST_LINES = 100
HOURLY_DAYS = timedelta(days=3)  # so few are drawn by hours,
MOST_HOURLY_REQUESTS = 50_000  # which are read from the records themselves
PERCENT = Decimal(100)
Group = tuple[str | UUID | None, ...]  # what the rows of a group have in the grouping's columns


@dataclass(frozen=True, slots=True)
class GroupName:
    """What a group is called. `value` narrows an address to it; None where there is nothing to narrow to."""

    text: str
    value: str | None
    detail: str = ""  # tells apart what may share a name
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """A group in the table, or all those that are not listed. `share` is its part of the cost in percent, if any.

    `narrowed` and `records` are addresses; None where there is nothing to narrow to.
    """

    name: GroupName
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


@account_page()
@from_replica
def usage(request: HttpRequest, current: AccountContext) -> HttpResponse:
    """422 where the days are none that could be shown."""
    choice, form = usage_choice.read(request.GET.dict(), current.account, "usage", timezone.now())
    context = current.template_context | {"choice": choice, "form": form}
    if not form.errors:
        context |= read(choice)
        context |= {"records_address": choice.to("usage-records"), "export_address": choice.to("usage-export")}
    return render(request, "dashboard/usage.html", context, status=422 if form.errors else 200)


def read(choice: Choice) -> dict[str, Any]:
    """`totals`, `lines`, `days` and `chart`. Nine SELECTs for the sums, and at most two more for names.

    The days are read last: what they have beyond the chart's groups is of others, and never less than nothing.
    """
    found = breakdown(choice.scope, choice.days, *COLUMNS[choice.by], with_errors=True)
    sums = [(group_of(row, choice.by), row.totals) for row in found]
    # The dearest first, then those with most requests.
    groups = dict(sorted(sums, key=lambda item: (-(item[1].cost or Decimal(0)), -item[1].asked, str(item[0]))))
    drawn = usage_chart.leading(groups)
    names = names_of_groups(choice, {*[*groups][:MOST_LINES], *drawn})
    parts = [_scope_of(choice, group) for group in drawn]
    columns = COLUMNS[choice.by]
    is_hourly = (
        choice.days.last - choice.days.first < HOURLY_DAYS
        and sum(totals.requests for totals in groups.values()) <= MOST_HOURLY_REQUESTS
    )
    by_group: dict[Group, dict[date, Totals]] = {group: {} for group in drawn}
    if parts and is_hourly:
        for hour, row in hourly(choice.scope, choice.days, *columns, parts=parts):
            by_group[group_of(row, choice.by)][hour] = row.totals
    elif parts:
        for row in breakdown(choice.scope, choice.days, By.DAY, *columns, parts=parts, with_errors=True):
            by_group[group_of(row, choice.by)][_day(row)] = row.totals
    hours: dict[date, Totals] = {}
    if is_hourly:
        hours |= {hour: row.totals for hour, row in hourly(choice.scope, choice.days)}
    days = {_day(row): row.totals for row in breakdown(choice.scope, choice.days, By.DAY, with_errors=True)}
    chart = usage_chart.Chart(
        choice.days,
        choice.account.currency,
        is_hourly=is_hourly,
        series={_text(names, group): slots for group, slots in by_group.items()},
        whole=hours if is_hourly else days,
        has_more=len(groups) > len(drawn),
    )
    listed = {group: names[group] for group in [*groups][:MOST_LINES]}
    return {
        "totals": total_of(days.values()),
        "lines": _lines(choice, groups, listed),
        "days": [Day(day, totals, choice.of_day(day)) for day, totals in reversed(days.items())],
        "chart": chart.data(),
    }


def dearest(choice: Choice, most: int) -> list[Line]:
    """The groups that cost most, of those that have a cost. Two SELECTs for the sums, and at most two for names."""
    rows = breakdown(choice.scope, choice.days, *COLUMNS[choice.by])
    ranked = sorted((row for row in rows if row.totals.cost), key=lambda row: -(row.totals.cost or 0))[:most]
    groups = {group_of(row, choice.by): row.totals for row in ranked}
    whole = total_of(row.totals for row in rows)
    return [_line(choice, name, groups[group], whole) for group, name in names_of_groups(choice, groups).items()]


def group_of(row: Row, by: Grouping) -> Group:
    """The group that a row belongs to."""
    return tuple(getattr(row, column) for column in COLUMNS[by])


def names_of_groups(choice: Choice, groups: Collection[Group]) -> dict[Group, GroupName]:
    """What these groups are called now, in their order. At most two SELECTs."""
    names: dict[Group, GroupName] = {}
    if choice.by == Grouping.KEY:
        own = ApiKey.objects.filter(account=choice.account, pk__in=[group[0] for group in groups])
        names = {(key.pk,): GroupName(key.name, str(key.pk), key.masked, key.deleted_at is not None) for key in own}
    elif choice.by == Grouping.ALIAS:
        ids = [alias_id for (alias_id,) in groups if isinstance(alias_id, UUID)]
        names = {(alias_id,): GroupName(f"alias {str(alias_id)[:8]}…", None, is_deleted=True) for alias_id in ids}
        for alias_id, name in names_of_aliases(choice.account, ids).items():
            names[(alias_id,)] = GroupName(name.text, str(alias_id), is_deleted=name.is_deleted)
        names[(None,)] = GroupName("no alias", WITHOUT_ALIAS)
    else:
        for group in groups:
            text = "/".join(map(str, group))
            # Of a request that failed before it had a route, it is not always known what it asked for.
            names[group] = GroupName(text, text) if all(group) else GroupName("unknown", None)
    return {group: names[group] for group in groups}


def _scope_of(choice: Choice, group: Group) -> Scope:
    """The choice's scope narrowed to one group."""
    columns: dict[str, Any] = dict(zip(COLUMNS[choice.by], group, strict=True))
    if choice.by == Grouping.ALIAS and group == (None,):
        columns[By.ALIAS] = NO_ALIAS
    return replace(choice.scope, **columns)


def _lines(choice: Choice, groups: Mapping[Group, Totals], names: Mapping[Group, GroupName]) -> list[Line]:
    """The groups that have a name, and one line for the others."""
    whole = total_of(groups.values())
    lines = [_line(choice, name, groups[group], whole) for group, name in names.items()]
    others = [totals for group, totals in groups.items() if group not in names]
    if others:
        name = GroupName(f"{len(others):,} others", None, detail="All of them are in the CSV.")
        lines.append(_line(choice, name, total_of(others), whole))
    return lines


def _line(choice: Choice, name: GroupName, totals: Totals, whole: Totals) -> Line:
    share = PERCENT * totals.cost / whole.cost if whole.cost and totals.cost is not None else None
    if name.value is None:
        return Line(name, totals, share, None, None)
    here = {choice.by.value: name.value}
    narrowed = None if choice.by in choice.narrowing else choice.within(**here)
    return Line(name, totals, share, narrowed, choice.to("usage-records", **here))


def _text(names: Mapping[Group, GroupName], group: Group) -> str:
    """What the chart calls a group. Keys may share a name, and are then told apart by their last characters."""
    name = names[group]
    is_shared = [other.text for other in names.values()].count(name.text) > 1
    return f"{name.text} {name.detail}" if is_shared else name.text


def _day(row: Row) -> date:
    return cast(date, row.day)  # every row is of a day: they are grouped so
