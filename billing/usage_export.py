"""The usage of a choice by day and group, as lines of a CSV."""

from collections.abc import Iterator
from datetime import date, timedelta

from gateway.db import release

from .statement import Line
from .usage_choice import COLUMNS, Choice, Grouping
from .usage_groups import Group, Name, group_of, named
from .usage_statistics import Days, Totals, breakdown

NAMES = {
    Grouping.MODEL: ("provider", "model"),
    Grouping.KEY: ("key_id", "key"),
    Grouping.REGION: ("region",),
    Grouping.ALIAS: ("alias_id", "alias"),
}
FIGURES = (
    *("requests", "interrupted", "estimated", "prompt_tokens", "completion_tokens", "currency", "cost"),
    *("requests_priced", "energy_wh", "requests_with_energy", "carbon_gco2e", "requests_with_carbon"),
)


def columns(by: Grouping) -> tuple[str, ...]:
    """The header."""
    return ("day", *NAMES[by], *FIGURES)


def lines(choice: Choice) -> Iterator[Line]:
    """A line for each day and group with requests, oldest first. Read day by day, so that years need no more memory."""
    names: dict[Group, Name] = {}
    for number in range((choice.days.last - choice.days.first).days + 1):
        day = choice.days.first + timedelta(days=number)
        rows = breakdown(choice.scope, Days(day, day), *COLUMNS[choice.by])
        groups = {group_of(row, choice.by): row.totals for row in rows}
        names |= named(choice, groups.keys() - names.keys())
        release("default")
        for group, totals in groups.items():
            yield _line(choice, day, group, names[group], totals)


def _line(choice: Choice, day: date, group: Group, name: Name, sums: Totals) -> Line:
    return {
        "day": day.isoformat(),
        **_named(choice.by, group, name),
        "requests": sums.requests,
        "interrupted": sums.interrupted,
        "estimated": sums.estimated,
        "prompt_tokens": sums.prompt_tokens,
        "completion_tokens": sums.completion_tokens,
        "currency": choice.account.currency,
        "cost": sums.cost,
        "requests_priced": sums.priced,
        "energy_wh": sums.energy_wh,
        "requests_with_energy": sums.energy_known,
        "carbon_gco2e": sums.carbon_gco2e,
        "requests_with_carbon": sums.carbon_known,
    }


def _named(by: Grouping, group: Group, name: Name) -> Line:
    """The group's columns: what it is by id, and what it is called. Requests without an alias have neither."""
    values = [None if part is None else str(part) for part in group]
    if by in (Grouping.KEY, Grouping.ALIAS):
        values.append(None if values[0] is None else name.text)
    return dict(zip(NAMES[by], values, strict=True))
