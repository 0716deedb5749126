"""Usage by day as data for the page's chart (static/js/usage-charts.js): floats, to be drawn; the tables are exact."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from operator import attrgetter
from typing import Any

from django.utils.formats import date_format

from billing.usage_statistics import Days, Totals
from gateway.turns import take_turns

Series = tuple[str, Mapping[date, Totals]]  # a group's name, and its days that have requests
Figure = int | Decimal | None
DIGITS = 6  # that matter: a pixel shows three


@dataclass(frozen=True, slots=True)
class Measure:
    """One thing that the chart can show."""

    name: str
    label: str
    unit: str
    figure: Callable[[Totals], Figure]
    known: Callable[[Totals], int] = attrgetter("requests")  # how many requests know it
    is_mean: bool = False  # parts of it add up to nothing, and a day without requests has none


def of(series: Sequence[Series], days: Days, currency: str) -> dict[str, Any]:
    """`{days, groups, measures: [{name, label, unit, is_mean, summary, note, values}]}`.

    `values` has a list by days for each group. Null is a day whose requests do not know the figure; a day without
    requests is zero, or null in a mean.
    """
    dates = [days.first + timedelta(days=number) for number in range((days.last - days.first).days + 1)]
    return {
        "days": [date_format(day, "j M") for day in dates],
        "groups": [text for text, _ in series],
        "measures": [_measured(measure, series, dates) for measure in _measures(currency)],
    }


def _measures(currency: str) -> tuple[Measure, ...]:
    return (
        Measure("cost", "Cost", currency, attrgetter("cost"), attrgetter("priced")),
        Measure("requests", "Requests", "", attrgetter("requests")),
        Measure("tokens", "Tokens", "", attrgetter("tokens")),
        Measure("energy", "Energy", "Wh", attrgetter("energy_wh"), attrgetter("energy_known")),
        Measure("carbon", "Carbon", "g CO₂e", attrgetter("carbon_gco2e"), attrgetter("carbon_known")),
        Measure("latency", "Latency", "s", attrgetter("mean_seconds"), attrgetter("duration_known"), is_mean=True),
        Measure(
            "first-token",
            "Time to first token",
            "s",
            attrgetter("mean_first_token_seconds"),
            attrgetter("first_token_known"),
            is_mean=True,
        ),
        Measure("errors", "Error rate", "%", attrgetter("error_percent"), is_mean=True),
    )


def _measured(measure: Measure, series: Sequence[Series], dates: Sequence[date]) -> dict[str, Any]:
    values = [[_at(day, by_day, measure) for day in dates] for _, by_day in series]
    return {
        "name": measure.name,
        "label": measure.label,
        "unit": measure.unit,
        "is_mean": measure.is_mean,
        "summary": _summary(measure, series, dates),
        "note": _note(measure, series),
        "values": [[None if value is None else _short(value) for value in of_group] for of_group in values],
    }


def _at(day: date, by_day: Mapping[date, Totals], measure: Measure) -> Figure:
    take_turns()
    return measure.figure(by_day[day]) if day in by_day else None if measure.is_mean else 0


def _summary(measure: Measure, series: Sequence[Series], dates: Sequence[date]) -> str:
    """The chart in words, for those who cannot see it."""
    figures = {day: [Decimal(_at(day, by_day, measure) or 0) for _, by_day in series] for day in dates}
    together = {
        day: max(of_day, default=Decimal(0)) if measure.is_mean else sum(of_day, Decimal(0))
        for day, of_day in figures.items()
    }
    most = max(together, key=lambda day: together[day])
    title = f"{measure.label} by day from {_long(dates[0])} to {_long(dates[-1])}"
    if not together[most]:
        return f"{title}. {_note(measure, series) or 'Nothing on any day.'}"
    parts = len(series)
    stacked = f", in {parts} parts" if parts > 1 else ""
    unit = f" {measure.unit}" if measure.unit else ""
    peak = f"The most is {_plain(together[most])}{unit}, on {_long(most)}."
    return f"{title}{stacked}. {peak} The tables have every figure."


def _note(measure: Measure, series: Sequence[Series]) -> str:
    """How much of it is unknown; nothing where all is known."""
    days = [totals for _, by_day in series for totals in by_day.values()]
    known, requests = sum(map(measure.known, days)), sum(totals.requests for totals in days)
    return "" if known == requests else f"{measure.label} is known for {known:,} of {requests:,} requests."


def _short(figure: int | Decimal) -> int | float:
    return figure if isinstance(figure, int) else float(f"{figure:.{DIGITS}g}")


def _plain(figure: Decimal) -> str:
    """Without an exponent and without idle zeros."""
    exact = figure if figure == int(figure) else Decimal(str(_short(figure)))
    return f"{exact.normalize():,f}"


def _long(day: date) -> str:
    return date_format(day, "j F Y")
