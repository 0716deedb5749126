"""The carbon page: energy and carbon of some days with their bounds, by month, day, source, and what usage is shown by.

It prints as a report. Every figure is made of sums over the lines of its CSV (`downloads.carbon_export`), which are
those of days, routes and sources.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import date
from decimal import Decimal
from operator import attrgetter
from typing import Any, cast

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from billing.usage.replica import from_replica
from billing.usage.statement import Value
from billing.usage.statistics import By, Totals, breakdown
from catalogue.carbon import FOOTPRINT_PLACES, MEASURED, MODELLED
from catalogue.footprint.energy import METHOD
from catalogue.footprint.grid import GridSlot
from catalogue.models import GridIntensity
from catalogue.routing import snapshot
from catalogue.routing.routes import Route
from gateway.server.turns import take_turns

from . import usage_choice
from .access import AccountContext, account_page
from .usage import Group, GroupName, group_of, names_of_groups
from .usage_choice import COLUMNS as COLUMNS_OF_USAGE
from .usage_choice import Choice

BY = (By.PROVIDER, By.MODEL, By.REGION, By.SOURCE)
MOST_LINES = 100
SOURCES = {MEASURED: "Measured by the provider", "provider": "Published by the provider", MODELLED: "Modelled"}
QUALITY = {MEASURED: 1, "provider": 2, MODELLED: 3}  # 1 is best (docs/energy.md#data-quality)
MONTHS_SHOWN_FROM = 2
_LAST_DIGIT = Decimal(1).scaleb(-FOOTPRINT_PLACES)
_THOUSAND = Decimal(1000)
_ZERO = Decimal(0)


@dataclass(frozen=True, slots=True)
class Footprint:
    """Wh and grams CO2e added up, each over the requests that know the figure, whose number stands beside it.

    Where the bounds of a request are not known, low and high take its figure. `carbon_low` and `carbon_high` are to
    `carbon_gco2e` as the energy's bounds are to the energy, on each day, route and source.
    """

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
        """That of one day, route and source."""
        energy, carbon = totals.energy_wh or _ZERO, totals.carbon_gco2e or _ZERO
        without_bounds = energy - (totals.energy_wh_bounded or _ZERO)
        low, high = without_bounds + (totals.energy_wh_low or _ZERO), without_bounds + (totals.energy_wh_high or _ZERO)
        return cls(
            requests=totals.requests,
            prompt_tokens=totals.prompt_tokens,
            completion_tokens=totals.completion_tokens,
            energy_known=totals.energy_known,
            measured=totals.measured,
            bounds_known=totals.bounds_known,
            carbon_known=totals.carbon_known,
            embodied_known=totals.embodied_known,
            energy_wh=energy,
            energy_wh_low=low,
            energy_wh_high=high,
            carbon_gco2e=carbon,
            carbon_gco2e_low=(carbon * low / energy).quantize(_LAST_DIGIT) if energy else carbon,
            carbon_gco2e_high=(carbon * high / energy).quantize(_LAST_DIGIT) if energy else carbon,
            embodied_gco2e=totals.embodied_gco2e or _ZERO,
        )

    def __add__(self, other: "Footprint") -> "Footprint":
        return Footprint(*(mine + theirs for mine, theirs in zip(_figures(self), _figures(other), strict=True)))

    @property
    def line(self) -> dict[str, Value]:
        """The columns of the CSV; what no request knows is an empty cell."""
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
    def kwh(self) -> Decimal | None:
        """Energy; None where no request knows it, as below."""
        return self.energy_wh / _THOUSAND if self.energy_known else None

    @property
    def kwh_range(self) -> tuple[Decimal, Decimal] | None:
        """Its bounds."""
        return (self.energy_wh_low / _THOUSAND, self.energy_wh_high / _THOUSAND) if self.energy_known else None

    @property
    def kg(self) -> Decimal | None:
        """Carbon of the electricity."""
        return self.carbon_gco2e / _THOUSAND if self.carbon_known else None

    @property
    def kg_range(self) -> tuple[Decimal, Decimal] | None:
        """Its bounds."""
        return (self.carbon_gco2e_low / _THOUSAND, self.carbon_gco2e_high / _THOUSAND) if self.carbon_known else None

    @property
    def embodied_kg(self) -> Decimal | None:
        """Carbon of the hardware's manufacture."""
        return self.embodied_gco2e / _THOUSAND if self.embodied_known else None

    @property
    def total_kg(self) -> Decimal | None:
        """Both, as far as they are known."""
        return (self.kg or _ZERO) + (self.embodied_kg or _ZERO) if self.carbon_known or self.embodied_known else None


_figures = attrgetter(*(each.name for each in fields(Footprint)))
_ENERGY = ("energy_wh", "energy_wh_low", "energy_wh_high")
_CARBON = ("carbon_gco2e", "carbon_gco2e_low", "carbon_gco2e_high")
COLUMNS = tuple(Footprint().line)


@dataclass(frozen=True, slots=True)
class Line:
    """A group in the table. `narrowed` is the address of it alone; None where there is nothing to narrow to."""

    name: GroupName
    footprint: Footprint
    narrowed: str | None


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """What the same energy would have emitted on the grid of another place, as it is now, and what places there are."""

    route: Route
    kg: Decimal
    kg_range: tuple[Decimal, Decimal]
    offered: list[Route]


@dataclass(frozen=True, slots=True)
class Report:
    """Footprints added up: in all, of each group, day and source of figure; None is a source that was not kept.

    `whole` is what of it knows carbon and embodied carbon of every request.
    """

    sums: Footprint
    groups: dict[Group, Footprint]
    days: dict[date, Footprint]
    sources: dict[str | None, Footprint]
    whole: Footprint

    @property
    def months(self) -> dict[date, Footprint]:
        """By the first day of the month."""
        months: dict[date, Footprint] = {}
        for day, footprint in self.days.items():
            first = day.replace(day=1)
            months[first] = months.get(first, Footprint()) + footprint
        return months

    @property
    def by_source(self) -> list[tuple[str, Footprint, Decimal | None]]:
        """The sources, best first, each with its share of the energy whose source is known, in percent."""
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
        """The score of each source, weighted by its energy: 1 where all is measured, 3 where all is modelled."""
        known = self._energy_by_source
        total = sum(known.values())
        return sum(QUALITY[name] * wh for name, wh in known.items()) / total if total else None

    @property
    def sci(self) -> tuple[Decimal, Decimal | None] | None:
        """Software Carbon Intensity, g CO2e per request and per 1,000 tokens, of `whole`."""
        grams, tokens = self.whole.total_kg, self.whole.prompt_tokens + self.whole.completion_tokens
        if grams is None:
            return None
        return grams * 1000 / self.whole.requests, grams * 1000 * 1000 / tokens if tokens else None

    @property
    def _energy_by_source(self) -> dict[str, Decimal]:
        return {name: self.sources[name].energy_wh for name in QUALITY if name in self.sources}


@account_page()
@from_replica
def carbon(request: HttpRequest, current: AccountContext) -> HttpResponse:
    """422 where the days are none that could be shown."""
    query = request.GET.dict()
    choice, form = usage_choice.read(query, current.account, "carbon", timezone.now(), windows=usage_choice.REPORTED)
    if "elsewhere" in query:
        choice = replace(choice, extra={"elsewhere": query["elsewhere"]})
    context = current.template_context | {"choice": choice, "form": form, "printed_at": timezone.now()}
    if not form.errors:
        context |= _shown(choice) | {"export_address": choice.to("carbon-export")}
    return render(request, "dashboard/carbon.html", context, status=422 if form.errors else 200)


def _shown(choice: Choice) -> dict[str, Any]:
    """The report as the page shows it, and what the figures rest on."""
    report = read(choice)
    months = sorted(report.months.items(), reverse=True)
    return {
        "sums": report.sums,
        "report": report,
        "lines": _lines(choice, report.groups),
        "months": months if len(months) >= MONTHS_SHOWN_FROM else [],
        "days": sorted(report.days.items(), reverse=True),
        "elsewhere": _elsewhere(report.sums, choice.extra.get("elsewhere")),
        "method": METHOD,
        "annual_sources": sorted({*GridIntensity.objects.exclude(source="").values_list("source", flat=True)}),
        "hourly_sources": sorted({*GridSlot.objects.order_by().values_list("source", flat=True).distinct()}),
    }


def read(choice: Choice) -> Report:
    """Two SELECTs, and two more by key or alias, which the lines of the CSV do not tell apart."""
    sums, whole = Footprint(), Footprint()
    groups, days, sources = dict[Group, Footprint](), dict[date, Footprint](), dict[str | None, Footprint]()
    finer = [by for by in COLUMNS_OF_USAGE[choice.by] if by not in BY]
    for row in breakdown(choice.scope, choice.days, By.DAY, *BY, *finer) if finer else ():
        take_turns()
        group = group_of(row, choice.by)
        groups[group] = groups.get(group, Footprint()) + Footprint.of(row.totals)
    for row in breakdown(choice.scope, choice.days, By.DAY, *BY):
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


def _lines(choice: Choice, groups: Mapping[Group, Footprint]) -> list[Line]:
    """The groups that emitted most, and one line for those beyond MOST_LINES."""
    ordered = sorted(groups.items(), key=lambda item: (-item[1].carbon_gco2e, -item[1].energy_wh, str(item[0])))
    listed = dict(ordered[:MOST_LINES])
    lines = []
    for group, name in names_of_groups(choice, listed).items():
        may_narrow = name.value is not None and choice.by not in choice.narrowing
        narrowed = choice.to("carbon", **{choice.by: name.value}) if may_narrow else None
        lines.append(Line(name, listed[group], narrowed))
    if rest := ordered[MOST_LINES:]:
        others = GroupName(f"{len(rest):,} others", None)
        lines.append(Line(others, sum((each for _, each in rest), Footprint()), None))
    return lines


def _elsewhere(sums: Footprint, locode: str | None) -> Elsewhere | None:
    """On the grid of that place, else of the cleanest; None where no energy or no place's grid is known.

    Raises Http404 for a place that the catalogue has no grid of.
    """
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
    kg_per_wh = Decimal(route.energy.intensity_gco2_per_kwh or 0) / _THOUSAND / _THOUSAND
    bounds = sums.energy_wh_low * kg_per_wh, sums.energy_wh_high * kg_per_wh
    return Elsewhere(route, sums.energy_wh * kg_per_wh, bounds, offered)
