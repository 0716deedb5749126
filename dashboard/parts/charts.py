"""Turns usage by hour, day or week into the data of a chart (static/js/usage-charts.js), as floats."""

import functools
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from enum import StrEnum
from operator import attrgetter
from typing import Any, TypeVar

from django.utils.formats import date_format

from billing.usage.statistics import Days, Totals
from billing.usage.times import Kind, Times
from gateway.server.turns import take_turns

Group = TypeVar("Group", bound=Hashable)
Figure = int | Decimal | None
DIGITS = 6  # significant digits: a pixel shows three
SERIES = 6  # groups drawn in a measure; the rest is one more series, unless it is a single group
MOST_SERIES = SERIES + 1
MOST_DRAWN = 20  # groups drawn in all measures together
OTHER = "Other"
Sums = TypeVar("Sums", bound=Any)  # Totals, Footprint or Slot, which can be added
NOTHING: Any = Totals()


@dataclass(frozen=True, slots=True)
class Slot:
    """Holds the usage of an hour, a day or a week, and how long its requests took."""

    totals: Totals = field(default_factory=Totals)
    times: Times = field(default_factory=Times)

    def __add__(self, other: "Slot") -> "Slot":
        return Slot(self.totals + other.totals, self.times + other.times)

    def __sub__(self, part: "Slot") -> "Slot":
        return Slot(self.totals - part.totals, self.times - part.times)


Slots = Mapping[date, Slot]  # the hours, days or weeks that have requests, by their beginning


class Interval(StrEnum):
    """Lists how long a slot is. Weeks begin on Mondays, and the first on the first day."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"

    def starts(self, days: Days) -> list[date]:
        """Returns the beginning of each slot of these days."""
        if self is Interval.HOUR:
            hours = range(int((days.before - days.since) / timedelta(hours=1)))
            return [days.since + timedelta(hours=hour) for hour in hours]
        each = (days.first + timedelta(days=day) for day in range((days.last - days.first).days + 1))
        return [*dict.fromkeys(self.start(day, days) for day in each)]

    def start(self, at: date, days: Days) -> date:
        """Returns the beginning of the slot that an hour or a day is in."""
        return max(days.first, at - timedelta(days=at.weekday())) if self is Interval.WEEK else at

    def last_day(self, start: date, days: Days) -> date:
        """Returns the last day of the slot that begins on a day."""
        return min(days.last, start + timedelta(days=6 - start.weekday())) if self is Interval.WEEK else start

    def add_up(self, slots: dict[date, Slot], days: Days) -> dict[date, Slot]:
        """Adds days up to weeks, or returns the hours or days as they are."""
        if self is not Interval.WEEK:
            return slots
        weeks: dict[date, Slot] = {}
        for day, slot in slots.items():
            take_turns()
            start = self.start(day, days)
            weeks[start] = weeks[start] + slot if start in weeks else slot
        return weeks


@dataclass(frozen=True, slots=True)
class Measure:
    """Describes a figure that the chart can show."""

    name: str
    label: str
    unit: str
    figure: Callable[[Slot], Figure]
    known: Callable[[Slot], int] = attrgetter("totals.requests")  # the number of requests that have the figure
    adds_up: bool = True  # percentiles and rates do not, and a day without requests has none

    def rank(self, totals: Totals) -> tuple[Decimal, int]:
        """Returns the sort key of a group: its figure if figures add up, and its number of requests."""
        return (Decimal(self.figure(Slot(totals)) or 0) if self.adds_up else Decimal(0)), totals.asked


def _measures(currency: str) -> tuple[Measure, ...]:
    return (
        _sum("cost", "Cost", currency, "cost", "priced"),
        _sum("requests", "Requests", "", "requests", "requests"),
        _sum("tokens", "Tokens", "", "tokens", "requests"),
        _sum("energy", "Energy", "Wh", "energy_wh", "energy_known"),
        _sum("carbon", "Carbon", "g CO₂e", "carbon_gco2e", "carbon_known"),
        _percentile("latency-p50", "Latency p50", "s", "latency_p50", Kind.LATENCY),
        _percentile("latency-p95", "Latency p95", "s", "latency_p95", Kind.LATENCY),
        _percentile("first-token-p50", "Time to first token p50", "s", "first_token_p50", Kind.FIRST_TOKEN),
        _percentile("first-token-p95", "Time to first token p95", "s", "first_token_p95", Kind.FIRST_TOKEN),
        _percentile("output", "Median output", "tokens/s", "tokens_per_second", Kind.PER_THOUSAND_TOKENS),
        Measure("errors", "Error rate", "%", attrgetter("totals.error_percent"), adds_up=False),
    )


def _sum(name: str, label: str, unit: str, figure: str, known: str) -> Measure:
    return Measure(name, label, unit, attrgetter(f"totals.{figure}"), attrgetter(f"totals.{known}"))


def _percentile(name: str, label: str, unit: str, figure: str, kind: Kind) -> Measure:
    known = attrgetter(f"times.{kind}.total")
    return Measure(name, label, unit, attrgetter(f"times.{figure}"), known, adds_up=False)


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
    by: Interval
    has_errors: bool
    series: Mapping[str, Slots]
    whole: Slots
    has_more: bool

    def data(self) -> dict[str, Any]:
        """Returns the JSON of the chart: `by`, `slots`, and `measures` with a list of `values` for each group."""
        # Each measure draws the groups that lead in it, and all others as one. A value is null if no request of the
        # slot has the figure; without requests it is zero, or null if figures do not add up.
        starts = self.by.starts(self.days)
        measures = [one for one in _measures(self.currency) if self.has_errors or one.name != "errors"]
        sums = {name: total_of(slot.totals for slot in slots.values()) for name, slots in self.series.items()}
        others = functools.cache(self._without)
        drawn = []
        for measure in measures:
            names = sorted(self.series, key=lambda name: measure.rank(sums[name]), reverse=True)
            if self.has_more or len(names) > MOST_SERIES:
                names = names[:SERIES]
                parts = {name: self.series[name] for name in names} | {OTHER: others(frozenset(names))}
            else:
                parts = {name: self.series[name] for name in names}
            drawn.append(self._drawn(measure, parts, starts))
        return {"by": self.by.value, "slots": [self._short(at) for at in starts], "measures": drawn}

    def _without(self, names: frozenset[str]) -> Slots:
        parts = [self.series[name] for name in names]
        rest = {
            at: whole - total_of((part[at] for part in parts if at in part), Slot()) for at, whole in self.whole.items()
        }
        return {at: slot for at, slot in rest.items() if slot.totals.asked}

    def _drawn(self, measure: Measure, parts: Mapping[str, Slots], starts: list[date]) -> dict[str, Any]:
        values = [[_at(at, slots, measure) for at in starts] for slots in parts.values()]
        return {
            "name": measure.name,
            "label": measure.label,
            "unit": measure.unit,
            "adds_up": measure.adds_up,
            "groups": [*parts],
            "summary": self._summary(measure, values, parts, starts),
            "note": _note(measure, parts),
            "values": [[None if value is None else _short(value) for value in of_group] for of_group in values],
        }

    def _summary(
        self, measure: Measure, values: list[list[Figure]], parts: Mapping[str, Slots], starts: list[date]
    ) -> str:
        """Describes the chart in words, for people who cannot see it."""
        all_of = sum if measure.adds_up else max
        together = [all_of(Decimal(figure or 0) for figure in of_slot) for of_slot in zip(*values, strict=True)]
        unit = f" {measure.unit}" if measure.unit else ""
        title = f"{measure.label} by {self.by} from {self._long(starts[0])} to {self._long(starts[-1])}"
        most = max(together, default=Decimal(0))
        if not most:
            return f"{title}. {_note(measure, parts) or 'No usage.'}"
        stacked = f", in {len(parts)} parts" if len(parts) > 1 else ""
        at = "in the week from" if self.by is Interval.WEEK else "on"
        peak = f"The peak is {_plain(most)}{unit}, {at} {self._long(starts[together.index(most)])}."
        return f"{title}{stacked}. {peak} The tables have every figure."

    def _short(self, at: date) -> str:
        return date_format(at, "j M H:i" if self.by is Interval.HOUR else "j M")

    def _long(self, at: date) -> str:
        return date_format(at, "j F Y H:i" if self.by is Interval.HOUR else "j F Y")


def _at(at: date, slots: Slots, measure: Measure) -> Figure:
    take_turns()
    return measure.figure(slots[at]) if at in slots else 0 if measure.adds_up else None


def _note(measure: Measure, parts: Mapping[str, Slots]) -> str:
    """Says how many requests have the figure; empty if all have it."""
    # Times are read later than totals, and may have more requests.
    slots = [(measure.known(slot), slot.totals.requests) for part in parts.values() for slot in part.values()]
    known, requests = sum(known for known, _ in slots), sum(map(max, slots))
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
