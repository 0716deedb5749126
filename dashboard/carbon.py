"""Shows the carbon page, which prints as a report. Every figure is a sum over the lines of its CSV."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import date
from decimal import Decimal
from operator import attrgetter
from typing import Any, cast

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.utils import timezone

from billing.usage.replica import from_replica
from billing.usage.statement import Line, Value
from billing.usage.statistics import GroupColumn, Totals, breakdown
from catalogue.footprint.energy import METHOD
from catalogue.models import GridIntensity, GridSlot
from catalogue.pricing import FOOTPRINT_PLACES, MEASURED, MODELLED
from catalogue.routing import snapshot
from catalogue.routing.routes import Route
from gateway.db.pool import release
from gateway.server.turns import take_turns
from gateway.templatetags.figures import MASS_UNITS, Scale

from .parts import choices
from .parts.access import AccountContext, account_page
from .parts.choices import Choice
from .parts.downloads import chosen_csv, each_day
from .parts.groups import MOST_LINES, Group, group_of, lines_of, names_of_groups
from .parts.scales import Scales

GROUPED_BY = (GroupColumn.PROVIDER, GroupColumn.MODEL, GroupColumn.REGION, GroupColumn.SOURCE)
SOURCES = {MEASURED: "Measured by the provider", "provider": "Published by the provider", MODELLED: "Modelled"}
QUALITY = {MEASURED: 1, "provider": 2, MODELLED: 3}  # 1 is best (docs/energy.md#data-quality)
MONTHS_SHOWN_FROM = 2
_LAST_DIGIT = Decimal(1).scaleb(-FOOTPRINT_PLACES)
_WH_PER_KWH = Decimal(1000)
_ZERO = Decimal(0)


@dataclass(frozen=True, slots=True)
class Footprint:
    """Adds up Wh and gCO2e, each over the requests that have the figure, and counts these requests."""

    # If the bounds of a request are unknown, its figure counts as both. The bounds of carbon have the same ratio to the
    # carbon as the bounds of energy have to the energy, for each day, route and source.

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    energy_known: int = 0
    measured: int = 0
    bounds_known: int = 0
    carbon_known: int = 0
    embodied_known: int = 0
    energy_wh: Decimal = _ZERO
    energy_wh_low: Decimal = _ZERO
    energy_wh_high: Decimal = _ZERO
    carbon_gco2e: Decimal = _ZERO
    carbon_gco2e_low: Decimal = _ZERO
    carbon_gco2e_high: Decimal = _ZERO
    embodied_gco2e: Decimal = _ZERO

    @classmethod
    def of(cls, totals: Totals) -> "Footprint":
        shared = {name: value for name in _NAMES if (value := getattr(totals, name, None)) is not None}
        energy, carbon = totals.energy_wh or _ZERO, totals.carbon_gco2e or _ZERO
        without_bounds = energy - (totals.energy_wh_bounded or _ZERO)
        low, high = without_bounds + (totals.energy_wh_low or _ZERO), without_bounds + (totals.energy_wh_high or _ZERO)
        bounds = {"energy_wh_low": low, "energy_wh_high": high}
        for name, bound in (("carbon_gco2e_low", low), ("carbon_gco2e_high", high)):
            bounds[name] = (carbon * bound / energy).quantize(_LAST_DIGIT) if energy else carbon
        return cls(**shared | bounds)

    def __add__(self, other: "Footprint") -> "Footprint":
        return Footprint(*(mine + theirs for mine, theirs in zip(_figures(self), _figures(other), strict=True)))

    @property
    def line(self) -> dict[str, Value]:
        """Returns the columns of the CSV; an unknown figure is an empty cell."""
        return {
            "requests": self.requests,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "requests_with_energy": self.energy_known,
            "requests_measured": self.measured,
            "requests_with_bounds": self.bounds_known,
            "requests_with_carbon": self.carbon_known,
            "requests_with_embodied": self.embodied_known,
            **{name: getattr(self, name) if self.energy_known else None for name in _ENERGY},
            **{name: getattr(self, name) if self.carbon_known else None for name in _CARBON},
            "embodied_gco2e": self.embodied_gco2e if self.embodied_known else None,
        }

    @property
    def energy(self) -> Decimal | None:
        """Returns the energy in Wh; None is unknown, as in the properties below, which are in grams of CO2e."""
        return self.energy_wh if self.energy_known else None

    @property
    def energy_range(self) -> tuple[Decimal, Decimal] | None:
        return (self.energy_wh_low, self.energy_wh_high) if self.energy_known else None

    @property
    def electricity(self) -> Decimal | None:
        return self.carbon_gco2e if self.carbon_known else None

    @property
    def electricity_range(self) -> tuple[Decimal, Decimal] | None:
        return (self.carbon_gco2e_low, self.carbon_gco2e_high) if self.carbon_known else None

    @property
    def embodied(self) -> Decimal | None:
        return self.embodied_gco2e if self.embodied_known else None

    @property
    def total(self) -> Decimal | None:
        return self.carbon_gco2e + self.embodied_gco2e if self.carbon_known or self.embodied_known else None


_NAMES = [each.name for each in fields(Footprint)]
_figures = attrgetter(*_NAMES)
_ENERGY = ("energy_wh", "energy_wh_low", "energy_wh_high")
_CARBON = ("carbon_gco2e", "carbon_gco2e_low", "carbon_gco2e_high")
FOOTPRINT_COLUMNS = tuple(Footprint().line)


@dataclass(frozen=True, slots=True)
class GridComparison:
    """Holds the emission that the same energy would have on another place's grid now, and the places to choose from."""

    route: Route
    grams: Decimal
    grams_range: tuple[Decimal, Decimal]
    offered: list[Route]

    @property
    def scale(self) -> Scale:
        return Scale.of([self.grams], MASS_UNITS)


@dataclass(frozen=True, slots=True)
class Report:
    """Holds sums of footprints by group, day and source; None is a source that was not recorded.

    `whole` is the sum of the lines whose requests all have operational and embodied carbon.
    """

    sums: Footprint
    groups: dict[Group, Footprint]
    days: dict[date, Footprint]
    sources: dict[str | None, Footprint]
    whole: Footprint

    @property
    def months(self) -> dict[date, Footprint]:
        months: dict[date, Footprint] = {}
        for day, footprint in self.days.items():
            first = day.replace(day=1)
            months[first] = months.get(first, Footprint()) + footprint
        return months

    @property
    def by_source(self) -> list[tuple[str, Footprint, Decimal | None]]:
        """Returns the sources, best first, each with its share of the known energy in percent."""
        known = self._energy_by_source
        total = sum(known.values())
        lines: list[tuple[str, Footprint, Decimal | None]] = [
            (text, self.sources[name], 100 * known[name] / total if total else None)
            for name, text in SOURCES.items()
            if name in self.sources
        ]
        if (rest := self.sources.get(None)) is not None:
            lines.append(("Source not kept" if rest.energy_known else "Unknown", rest, None))
        return lines

    @property
    def quality(self) -> Decimal | None:
        """Returns the mean of the sources' QUALITY, weighted by their energy."""
        known = self._energy_by_source
        total = sum(known.values())
        return sum(QUALITY[name] * wh for name, wh in known.items()) / total if total else None

    @property
    def sci(self) -> tuple[Decimal, Decimal | None] | None:
        """Returns the Software Carbon Intensity of `whole`: gCO2e per request and per 1,000 tokens."""
        grams, tokens = self.whole.total, self.whole.prompt_tokens + self.whole.completion_tokens
        if grams is None:
            return None
        return grams / self.whole.requests, grams * 1000 / tokens if tokens else None

    @property
    def _energy_by_source(self) -> dict[str, Decimal]:
        return {name: self.sources[name].energy_wh for name in QUALITY if name in self.sources}


@account_page()
@from_replica
def carbon(request: HttpRequest, current: AccountContext) -> HttpResponse:
    """Shows the carbon page. Answers 422 if the days are invalid."""
    query, now = request.GET.dict(), timezone.now()
    choice, form = choices.read(query, current.account, "carbon", now, windows=choices.REPORTED, extra=("elsewhere",))
    context = {"choice": choice, "form": form, "printed_at": now}
    if not form.errors:
        context |= _shown(choice) | {"export_address": choice.to("carbon-export")}
    return current.page(request, "carbon", context, form)


def _shown(choice: Choice) -> dict[str, Any]:
    report = read(choice)
    # Those that emitted most come first.
    ordered = sorted(report.groups.items(), key=lambda item: (-item[1].carbon_gco2e, -item[1].energy_wh, str(item[0])))
    names = names_of_groups(choice, [group for group, _ in ordered[:MOST_LINES]])
    months = sorted(report.months.items(), reverse=True)
    lines = lines_of(choice, dict(ordered), names)
    return {
        "sums": report.sums,
        "scales": Scales.of([report.sums]),
        "report": report,
        "lines": lines,
        "line_scales": Scales.of(line.sums for line in lines),
        "source_scales": Scales.of(report.sources.values()),
        "month_scales": Scales.of(report.months.values()),
        "day_scales": Scales.of(report.days.values()),
        "months": months if len(months) >= MONTHS_SHOWN_FROM else [],
        "days": sorted(report.days.items(), reverse=True),
        "elsewhere": _grid_comparison(report.sums, choice.extra.get("elsewhere")),
        "method": METHOD,
        "annual_sources": sorted({*GridIntensity.objects.exclude(source="").values_list("source", flat=True)}),
        "hourly_sources": sorted({*GridSlot.objects.order_by().values_list("source", flat=True).distinct()}),
    }


def read(choice: Choice) -> Report:
    """Adds up a report, with two SELECTs, and two more by key or alias, which the lines of the CSV do not have."""
    sums, whole = Footprint(), Footprint()
    groups, days, sources = dict[Group, Footprint](), dict[date, Footprint](), dict[str | None, Footprint]()
    finer = [by for by in choices.COLUMNS_OF_GROUPING[choice.by] if by not in GROUPED_BY]
    for row in breakdown(choice.scope, choice.days, GroupColumn.DAY, *GROUPED_BY, *finer) if finer else ():
        take_turns()
        group = group_of(row, choice.by)
        groups[group] = groups.get(group, Footprint()) + Footprint.of(row.totals)
    for row in breakdown(choice.scope, choice.days, GroupColumn.DAY, *GROUPED_BY):
        take_turns()
        footprint, day = Footprint.of(row.totals), cast(date, row.day)
        sums += footprint
        if not finer:
            group = group_of(row, choice.by)
            groups[group] = groups.get(group, Footprint()) + footprint
        days[day] = days.get(day, Footprint()) + footprint
        sources[row.energy_source] = sources.get(row.energy_source, Footprint()) + footprint
        if footprint.requests == footprint.carbon_known == footprint.embodied_known:
            whole += footprint
    return Report(sums, groups, days, sources, whole)


def _grid_comparison(sums: Footprint, locode: str | None) -> GridComparison | None:
    """Compares with the grid of a place, or with the cleanest grid. Raises Http404 for a place without a grid."""
    places: dict[str, Route] = {}
    for offer in snapshot.current().offers.values() if snapshot.is_loaded() else ():
        for route in offer.routes.values():
            if route.place is not None and route.energy.intensity_gco2_per_kwh is not None:
                places.setdefault(route.locode, route)
    if locode is not None and locode not in places:
        raise Http404
    if not sums.energy_known or not places:
        return None
    offered = sorted(places.values(), key=lambda route: (route.energy.intensity_gco2_per_kwh, route.locode))
    route = offered[0] if locode is None else places[locode]
    per_wh = Decimal(route.energy.intensity_gco2_per_kwh or 0) / _WH_PER_KWH
    bounds = sums.energy_wh_low * per_wh, sums.energy_wh_high * per_wh
    return GridComparison(route, sums.energy_wh * per_wh, bounds, offered)


@account_page("GET")  # no HEAD: it would read everything for nothing
@from_replica
def carbon_export(request: HttpRequest, current: AccountContext) -> HttpResponseBase:
    """Streams the sums by day, route and source as CSV."""
    return chosen_csv(request, current, "carbon", lambda _: ("day", *GROUPED_BY, *FOOTPRINT_COLUMNS), _csv_lines)


def _csv_lines(choice: Choice) -> Iterator[Line]:
    for day in each_day(choice.days):
        rows = breakdown(choice.scope, day, *GROUPED_BY)
        release("default")
        for row in rows:
            group = {str(column): getattr(row, column) for column in GROUPED_BY}
            yield {"day": day.first.isoformat(), **group, **Footprint.of(row.totals).line}
