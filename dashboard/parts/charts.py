"""Turns usage by day or hour into the data of a chart (static/js/usage-charts.js), as floats."""

import functools
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from operator import attrgetter
from typing import Any, TypeVar

from django.utils.formats import date_format

from billing.usage.statistics import Days, Totals
from gateway.server.turns import take_turns

Group = TypeVar("Group", bound=Hashable)
Slots = Mapping[date, Totals]  # the days or hours that have requests
Figure = int | Decimal | None
DIGITS = 6  # significant digits: a pixel shows three
SERIES = 6  # groups drawn in a measure; the rest is one more series, unless it is a single group
MOST_SERIES = SERIES + 1
MOST_DRAWN = 20  # groups drawn in all measures together
OTHER = "Other"
Sums = TypeVar("Sums", bound=Any)  # Totals or Footprint, which can be added
NOTHING: Any = Totals()


@dataclass(frozen=True, slots=True)
class Measure:
    """Describes a figure that the chart can show."""

    name: str
    label: str
    unit: str
    figure: Callable[[Totals], Figure]
    known: Callable[[Totals], int] = attrgetter("requests")  # the number of requests that have the figure
    is_mean: bool = False  # means cannot be added up, and a day without requests has none

    def rank(self, totals: Totals) -> tuple[Decimal, int]:
        """Returns the sort key of a group: its figure, or for means its number of requests."""
        return (Decimal(0) if self.is_mean else Decimal(self.figure(totals) or 0)), totals.asked


def _measures(currency: str) -> tuple[Measure, ...]:
    return (
        Measure("cost", "Cost", currency, attrgetter("cost"), attrgetter("priced")),
        Measure("requests", "Requests", "", attrgetter("requests")),
        Measure("tokens", "Tokens", "", attrgetter("tokens")),
        Measure("energy", "Energy", "Wh", attrgetter("energy_wh"), attrgetter("energy_known")),
        Measure("carbon", "Carbon", "g CO₂e", attrgetter("carbon_gco2e"), attrgetter("carbon_known")),
        Measure(
            "latency", "Average latency", "s", attrgetter("mean_seconds"), attrgetter("duration_known"), is_mean=True
        ),
        Measure(
            "first-token",
            "Average time to first token",
            "s",
            attrgetter("mean_first_token_seconds"),
            attrgetter("first_token_known"),
            is_mean=True,
        ),
        Measure("errors", "Error rate", "%", attrgetter("error_percent"), is_mean=True),
    )


def leading(groups: Mapping[Group, Totals]) -> list[Group]:
    """Returns the groups that lead in any measure, or all if they are few."""
    if len(groups) <= MOST_SERIES:
        return [*groups]
    ranks = [sorted(groups, key=lambda group: one.rank(groups[group]), reverse=True)[:SERIES] for one in _measures("")]
    return [*dict.fromkeys(group for place in zip(*ranks, strict=True) for group in place)][:MOST_DRAWN]


@dataclass(frozen=True, slots=True)
class Chart:
    """Holds what is drawn: groups by name in `series`, all usage in `whole`. With `has_more`, `series` lacks groups."""

    days: Days
    currency: str
    is_hourly: bool
    has_errors: bool
    series: Mapping[str, Slots]
    whole: Slots
    has_more: bool

    def data(self) -> dict[str, Any]:
        """Returns the JSON of the chart: `is_hourly`, `days`, and `measures` with a list of `values` for each group."""
        # Each measure draws the groups that lead in it, and all others as one. A value is null if no request of the
        # slot has the figure; without requests it is zero, or null for a mean.
        dates = self._dates()
        measures = [one for one in _measures(self.currency) if self.has_errors or one.name != "errors"]
        sums = {name: total_of(slots.values()) for name, slots in self.series.items()}
        others = functools.cache(self._without)
        drawn = []
        for measure in measures:
            names = sorted(self.series, key=lambda name: measure.rank(sums[name]), reverse=True)
            if self.has_more or len(names) > MOST_SERIES:
                names = names[:SERIES]
                parts = {name: self.series[name] for name in names} | {OTHER: others(frozenset(names))}
            else:
                parts = {name: self.series[name] for name in names}
            drawn.append(self._drawn(measure, parts, dates))
        return {"is_hourly": self.is_hourly, "days": [self._short(at) for at in dates], "measures": drawn}

    def _dates(self) -> list[date]:
        if self.is_hourly:
            hours = range(int((self.days.before - self.days.since) / timedelta(hours=1)))
            return [self.days.since + timedelta(hours=hour) for hour in hours]
        return [self.days.first + timedelta(days=day) for day in range((self.days.last - self.days.first).days + 1)]

    def _without(self, names: frozenset[str]) -> Slots:
        parts = [self.series[name] for name in names]
        rest = {at: whole - total_of(part[at] for part in parts if at in part) for at, whole in self.whole.items()}
        return {at: totals for at, totals in rest.items() if totals.asked}

    def _drawn(self, measure: Measure, parts: Mapping[str, Slots], dates: list[date]) -> dict[str, Any]:
        values = [[_at(at, slots, measure) for at in dates] for slots in parts.values()]
        return {
            "name": measure.name,
            "label": measure.label,
            "unit": measure.unit,
            "is_mean": measure.is_mean,
            "groups": [*parts],
            "summary": self._summary(measure, values, parts, dates),
            "note": _note(measure, parts),
            "values": [[None if value is None else _short(value) for value in of_group] for of_group in values],
        }

    def _summary(
        self, measure: Measure, values: list[list[Figure]], parts: Mapping[str, Slots], dates: list[date]
    ) -> str:
        """Describes the chart in words, for people who cannot see it."""
        add_up = max if measure.is_mean else sum
        together = [add_up(Decimal(figure or 0) for figure in of_slot) for of_slot in zip(*values, strict=True)]
        unit = f" {measure.unit}" if measure.unit else ""
        by = "hour" if self.is_hourly else "day"
        title = f"{measure.label} by {by} from {self._long(dates[0])} to {self._long(dates[-1])}"
        most = max(together, default=Decimal(0))
        if not most:
            return f"{title}. {_note(measure, parts) or 'No usage.'}"
        stacked = f", in {len(parts)} parts" if len(parts) > 1 else ""
        peak = f"The peak is {_plain(most)}{unit}, on {self._long(dates[together.index(most)])}."
        return f"{title}{stacked}. {peak} The tables have every figure."

    def _short(self, at: date) -> str:
        return date_format(at, "j M H:i" if self.is_hourly else "j M")

    def _long(self, at: date) -> str:
        return date_format(at, "j F Y H:i" if self.is_hourly else "j F Y")


def _at(at: date, slots: Slots, measure: Measure) -> Figure:
    take_turns()
    return measure.figure(slots[at]) if at in slots else None if measure.is_mean else 0


def _note(measure: Measure, parts: Mapping[str, Slots]) -> str:
    """Says how many requests have the figure; empty if all have it."""
    slots = [totals for part in parts.values() for totals in part.values()]
    known, requests = sum(map(measure.known, slots)), sum(totals.requests for totals in slots)
    return "" if known == requests else f"{measure.label} is known for {known:,} of {requests:,} requests."


def total_of(parts: Iterable[Sums], total: Sums = NOTHING) -> Sums:
    """Adds up `parts` to `total`, and lets the worker's other requests run in between."""
    for part in parts:
        take_turns()
        total += part
    return total


def _short(figure: int | Decimal) -> int | float:
    return figure if isinstance(figure, int) else float(f"{figure:.{DIGITS}g}")


def _plain(figure: Decimal) -> str:
    """Writes a figure without an exponent and without trailing zeros."""
    exact = figure if figure == int(figure) else Decimal(str(_short(figure)))
    return f"{exact.normalize():,f}"
