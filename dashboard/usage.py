"""Shows the page on usage: totals, groups, days or weeks, and a chart of groups."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from functools import partial
from typing import Any, cast

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils import timezone

from billing.funds import period_before, usage_by_day
from billing.models import NO_ALIAS
from billing.usage.percentiles import hourly_times, read_times
from billing.usage.replica import from_replica
from billing.usage.statement import Line
from billing.usage.statistics import NO_TAG, Days, GroupColumn, Row, Scope, Totals, breakdown, hourly
from billing.usage.times import Times
from gateway.db.pool import release

from .parts import charts, choices
from .parts.access import AccountContext, account_page
from .parts.charts import Interval, Slot, total_of
from .parts.choices import COLUMNS_OF_GROUPING, Choice, Grouping
from .parts.downloads import chosen_csv, each_day
from .parts.groups import MOST_LINES, Group, GroupName, group_of, is_routed, lines_of, names_of_groups
from .parts.scales import Scales
from .parts.speed import speed_of_periods, times_of_lines

HOURLY_DAYS = 3  # a period of at most three days is drawn by hour
MOST_HOURLY_REQUESTS = 50_000  # unless they have more requests, since hours are added up from the records
DAILY_DAYS = 100  # a longer period is drawn and listed by week, to keep the page light and the chart readable
GROUP_COLUMNS = {
    Grouping.MODEL: ("provider", "model"),
    Grouping.KEY: ("key_id", "key"),
    Grouping.REGION: ("region",),
    Grouping.ALIAS: ("alias_id", "alias"),
    Grouping.TAG: ("tag",),
}
# Columns of the CSV with the field of Totals that each shows; the currency is the account's.
FIGURES = {name: name for name in ("requests", "interrupted", "estimated", "prompt_tokens", "completion_tokens")}
FIGURES |= {"currency": "", "cost": "cost", "requests_priced": "priced", "energy_wh": "energy_wh"}
FIGURES |= {
    "requests_with_energy": "energy_known",
    "carbon_gco2e": "carbon_gco2e",
    "requests_with_carbon": "carbon_known",
}


@dataclass(frozen=True, slots=True)
class PeriodLine:
    """Holds the line of a day or a week in the tables. `records` is the address of its requests."""

    days: Days
    totals: Totals
    times: Times
    records: str


@account_page()
@from_replica
def usage(request: HttpRequest, current: AccountContext) -> HttpResponse:
    """Shows the page on usage. Answers 422 if the days are invalid."""
    choice, form = choices.read(request.GET.dict(), current.account, "usage", timezone.now())
    context = {"choice": choice, "form": form}
    if not form.errors:
        context |= read(choice)
        context |= {"records_address": choice.to("usage-records"), "export_address": choice.to("usage-export")}
    return current.page(request, "usage", context, form)


def read(choice: Choice) -> dict[str, Any]:
    """Returns the values of the page, with at most thirteen SELECTs for sums and times and two more for names."""
    # 1. The groups in the whole period, those with the highest cost first, and then those with most requests. Requests
    # that were not routed come last.
    with_errors, is_by_tag = choice.counts_errors, choice.by == Grouping.TAG
    found = breakdown(choice.scope, choice.days, *COLUMNS_OF_GROUPING[choice.by], with_errors=with_errors)
    sums = [(group_of(row, choice.by), row.totals) for row in found]
    groups = dict(sorted(sums, key=partial(_order, choice.by)))
    drawn = charts.leading(groups)
    if is_by_tag:  # a rest cannot be drawn: requests with several tags would be missing in it
        drawn = drawn[: charts.MOST_SERIES]
    names = names_of_groups(choice, {*[*groups][:MOST_LINES], *drawn})
    parts = [_scope_of(choice, group) for group in drawn]
    columns = COLUMNS_OF_GROUPING[choice.by]
    number_of_days = (choice.days.last - choice.days.first).days + 1
    listed_by = drawn_by = Interval.DAY if number_of_days <= DAILY_DAYS else Interval.WEEK
    if number_of_days <= HOURLY_DAYS and sum(totals.requests for totals in groups.values()) <= MOST_HOURLY_REQUESTS:
        drawn_by = Interval.HOUR
    is_hourly = drawn_by is Interval.HOUR
    # 2. The drawn groups by day or hour.
    by_group: dict[Group, dict[date, Totals]] = {group: {} for group in drawn}
    if parts and is_hourly:
        for hour, row in hourly(choice.scope, choice.days, *columns, parts=parts):
            if (group := group_of(row, choice.by)) in by_group:  # requests have other tags too, which are not drawn
                by_group[group][hour] = row.totals
    elif parts:
        for row in breakdown(
            choice.scope, choice.days, GroupColumn.DAY, *columns, parts=parts, with_errors=with_errors
        ):
            if (group := group_of(row, choice.by)) in by_group:
                by_group[group][_day(row)] = row.totals
    # 3. All usage by day or hour. It is read last, so that it is never less than the groups, which the chart subtracts.
    hours: dict[date, Totals] = {}
    if is_hourly:
        hours |= {hour: row.totals for hour, row in hourly(choice.scope, choice.days)}
    by_day = usage_by_day(choice.scope, Days(choice.before.first, choice.days.last), with_errors=with_errors)
    days = {day: totals for day, totals in by_day.items() if day >= choice.days.first}
    # 4. What the groups used in the period before, and how long requests took.
    before = period_before(by_day, choice.before, choice.account)
    earlier = breakdown(choice.scope, choice.before, *columns) if before is not None else ()
    times = read_times(choice.scope, choice.days, *columns, before=choice.before, daily=() if is_hourly else drawn)
    periods = _slots(days, times.by_day, listed_by, choice.days)
    slot_times, group_times = times.by_day, times.by_group_and_day
    if is_hourly:
        slot_times, group_times = _hourly_times(choice)
    chart = charts.Chart(
        choice.days,
        choice.account.currency,
        drawn_by,
        has_errors=with_errors and not is_hourly,  # failures are not counted by the hour
        series={
            _text(names, group): _slots(slots, group_times.get(group, {}), drawn_by, choice.days)
            for group, slots in by_group.items()
        },
        whole=_slots(hours, slot_times, drawn_by, choice.days) if is_hourly else periods,
        has_more=len(groups) > len(drawn) and not is_by_tag,
    )
    listed = {group: names[group] for group in [*groups][:MOST_LINES]}
    whole = total_of(days.values() if is_by_tag else groups.values())
    lines = lines_of(
        choice,
        groups,
        listed,
        whole,
        earlier={group_of(row, choice.by): row.totals for row in earlier},
        where_others_are="All of them are in the CSV.",
    )
    return {
        "totals": total_of(days.values()),
        "before": before,
        "speed": speed_of_periods(times, choice.days, before),
        "lines": lines,
        "speed_lines": [*zip(lines, times_of_lines(times.by_group, listed), strict=False)],
        "line_scales": Scales.of(line.sums for line in lines),
        "listed_by": listed_by.value,
        "period_scales": Scales.of(slot.totals for slot in periods.values()),
        "periods": [_period_line(choice, listed_by, start, slot) for start, slot in reversed(periods.items())],
        "chart": chart.data(),
    }


def _hourly_times(choice: Choice) -> tuple[dict[date, Times], dict[Group, dict[date, Times]]]:
    """Returns the times by hour, and by group and hour. With tags, those by hour are not used."""
    whole: dict[date, Times] = {}
    by_group: dict[Group, dict[date, Times]] = {}
    for (hour, group), times in hourly_times(choice.scope, choice.days, *COLUMNS_OF_GROUPING[choice.by]).items():
        whole[hour] = whole.get(hour, Times()) + times
        by_group.setdefault(group, {})[hour] = times
    return whole, by_group


def _slots(totals: Mapping[date, Totals], times: Mapping[date, Times], by: Interval, days: Days) -> dict[date, Slot]:
    return by.add_up({at: Slot(sums, times.get(at, Times())) for at, sums in totals.items()}, days)


def _period_line(choice: Choice, by: Interval, start: date, slot: Slot) -> PeriodLine:
    days = Days(start, by.last_day(start, choice.days))
    return PeriodLine(days, slot.totals, slot.times, choice.of_days("usage-records", days))


def _order(by: Grouping, item: tuple[Group, Totals]) -> tuple[bool, Decimal, int, str]:
    group, totals = item
    return not is_routed(group, by), -(totals.cost or Decimal(0)), -totals.asked, str(group)


def _scope_of(choice: Choice, group: Group) -> Scope:
    columns: dict[str, Any] = dict(zip(COLUMNS_OF_GROUPING[choice.by], group, strict=True))
    if choice.by == Grouping.ALIAS and group == (None,):
        columns[GroupColumn.ALIAS] = NO_ALIAS
    if choice.by == Grouping.TAG and group == (None,):
        columns[GroupColumn.TAG] = NO_TAG
    if not is_routed(group, choice.by):
        columns = dict.fromkeys(columns, "")
    return replace(choice.scope, **columns)


def _text(names: Mapping[Group, GroupName], group: Group) -> str:
    # Keys and aliases that share a name are shown with their last characters, as is a key named like the chart's rest.
    name = names[group]
    is_shared = [charts.OTHER, *(other.text for other in names.values())].count(name.text) > 1
    return f"{name.text} {name.detail}" if is_shared else name.text


def _day(row: Row) -> date:
    return cast(date, row.day)  # every row has a day, since it is grouped by


@account_page("GET")  # no HEAD: it would read everything for nothing
@from_replica
def usage_export(request: HttpRequest, current: AccountContext) -> HttpResponseBase:
    """Streams the sums by day and group as CSV."""
    return chosen_csv(
        request, current, "usage", lambda choice: ("day", *GROUP_COLUMNS[choice.by], *FIGURES), _csv_lines
    )


def _csv_lines(choice: Choice) -> Iterator[Line]:
    names: dict[Group, GroupName] = {}
    for day in each_day(choice.days):
        rows = breakdown(choice.scope, day, *COLUMNS_OF_GROUPING[choice.by])
        groups = {group_of(row, choice.by): row.totals for row in rows}
        names |= names_of_groups(choice, groups.keys() - names.keys())
        release("default")
        for group, totals in groups.items():
            # The group's id, and its name. Requests without an alias have neither.
            values = [None if part is None else str(part) for part in group]
            if choice.by in (Grouping.KEY, Grouping.ALIAS):
                values.append(None if values[0] is None else names[group].text)
            yield {
                "day": day.first.isoformat(),
                **dict(zip(GROUP_COLUMNS[choice.by], values, strict=True)),
                **{column: getattr(totals, figure) for column, figure in FIGURES.items() if figure},
                "currency": choice.account.currency,
            }
