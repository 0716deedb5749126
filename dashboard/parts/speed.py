"""Prepares the speed of routes, with charts of the last 24 hours, and the speed of an account's requests for pages."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from billing.funds import PeriodBefore
from billing.usage.percentiles import TimesRead
from billing.usage.route_hours import RouteCounts, RouteFigures
from billing.usage.statistics import Days
from billing.usage.times import Times

from .groups import Group

BAR, HEIGHT = 4, 20  # in the units of the chart's viewBox: the distance of two bars, and the height of the chart


@dataclass(frozen=True, slots=True)
class Measured:
    """Holds a figure of the last 24 hours. `value` is None if there were too few requests, and so has no chart."""

    value: Decimal | None
    path: str = ""  # of an SVG: a bar for each hour that had enough requests
    text: str = ""  # describes the chart for people who cannot see it


@dataclass(frozen=True, slots=True)
class RouteSpeed:
    """Holds the three figures of a route."""

    first_token: Measured
    tokens_per_second: Measured
    success: Measured


@dataclass(frozen=True, slots=True)
class PeriodSpeed:
    """Holds the times of a period, and the times of the period before if they are known.

    `since` is the first day of the period whose times are known, or None if all are.
    """

    now: Times
    before: Times | None = None
    since: date | None = None


NOTHING_MEASURED = RouteSpeed(*[Measured(None)] * 3)


def speed_of(figures: RouteFigures) -> RouteSpeed:
    """Returns the figures of a route as pages show them."""
    return RouteSpeed(
        _measured(figures, lambda counts: counts.first_token_seconds, "s"),
        _measured(figures, lambda counts: counts.tokens_per_second, "tokens a second"),
        _measured(figures, lambda counts: counts.success_percent, "%", full=100),
    )


def speed_of_periods(times: TimesRead, days: Days, before: PeriodBefore | None = None) -> PeriodSpeed:
    """Returns the times of a period. The period before is left out unless the times of all its days are known."""
    return PeriodSpeed(
        times.of(days),
        times.of(before.days) if before is not None and times.since <= before.days.first else None,
        times.since if times.since > days.first else None,
    )


def times_of_lines(times: Mapping[Group, Times], listed: Collection[Group]) -> list[Times]:
    """Returns the times of each listed group. The last item has the times of all other groups together."""
    others = sum((own for group, own in times.items() if group not in listed), Times())
    return [*(times.get(group, Times()) for group in listed), others]


def _measured(
    figures: RouteFigures, figure: Callable[[RouteCounts], float | None], unit: str, *, full: float | None = None
) -> Measured:
    value = figure(figures.day)
    if value is None:
        return Measured(None)
    hours = [figure(counts) for counts in figures.hours]
    return Measured(_short(value), _path(hours, full), _text(hours, unit))


def _path(hours: Sequence[float | None], full: float | None) -> str:
    most = full or max((hour for hour in hours if hour is not None), default=0) or 1
    return "".join(
        f"M{BAR * number + BAR // 2} {HEIGHT}v-{max(1, round(HEIGHT * hour / most))}"
        for number, hour in enumerate(hours)
        if hour is not None
    )


def _text(hours: Sequence[float | None], unit: str) -> str:
    known = [_short(hour) for hour in hours if hour is not None]
    if not known:
        return "No hour of the last 24 had enough requests for a figure of its own."
    return f"By hour: {min(known):f} to {max(known):f} {unit}, last {known[-1]:f}. Known for {len(known)} of 24 hours."


def _short(value: float) -> Decimal:
    return Decimal(f"{value:.4g}").normalize()
