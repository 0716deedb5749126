"""The carbon page: energy and carbon of some days with their bounds, by day and by model or region, fit to be printed.

Every figure is a sum over the lines of its CSV (`downloads.carbon_export`), which are those of days and routes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import date
from decimal import Decimal
from operator import attrgetter
from typing import Any, cast

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from billing.statement import Value
from billing.usage_statistics import By, Totals, breakdown
from catalogue import snapshot
from catalogue.carbon import FOOTPRINT_PLACES
from catalogue.energy import METHOD
from catalogue.grid import GridSlot
from catalogue.models import GridIntensity
from catalogue.routes import Route
from gateway.turns import take_turns

from . import usage_choice
from .access import AccountContext, account_page
from .usage_choice import Choice, Grouping

OFFERED = (Grouping.MODEL, Grouping.REGION)
BY = (By.PROVIDER, By.MODEL, By.REGION)
MOST_LINES = 100
_LAST_DIGIT = Decimal(1).scaleb(-FOOTPRINT_PLACES)
_THOUSAND = Decimal(1000)
_ZERO = Decimal(0)


@dataclass(frozen=True, slots=True)
class Footprint:
    """Wh and grams CO2e added up, each over the requests that know the figure, whose number stands beside it.

    Where the bounds of a request are not known, low and high take its figure. `carbon_low` and `carbon_high` are to
    `carbon_gco2e` as the energy's bounds are to the energy, on each day and route.
    """

    requests: int = 0
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
        """That of one day and route."""
        energy, carbon = totals.energy_wh or _ZERO, totals.carbon_gco2e or _ZERO
        without_bounds = energy - (totals.energy_wh_bounded or _ZERO)
        low, high = without_bounds + (totals.energy_wh_low or _ZERO), without_bounds + (totals.energy_wh_high or _ZERO)
        return cls(
            requests=totals.requests,
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

    text: str
    footprint: Footprint
    narrowed: str | None


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """What the same energy would have emitted on the cleanest grid that the catalogue serves from now."""

    route: Route
    kg: Decimal


@account_page()
def carbon(request: HttpRequest, current: AccountContext) -> HttpResponse:
    """422 where the days are none that could be shown."""
    choice, form = usage_choice.read(request.GET.dict(), current.account, "carbon", timezone.now(), OFFERED)
    context = current.template_context | {"choice": choice, "form": form, "printed_at": timezone.now()}
    if not form.errors:
        context |= read(choice) | {"export_address": choice.to("carbon-export")}
    return render(request, "dashboard/carbon.html", context, status=422 if form.errors else 200)


def read(choice: Choice) -> dict[str, Any]:
    """`sums`, `lines`, `days`, `elsewhere` and what the figures rest on. Two SELECTs for the sums."""
    sums, groups, days = Footprint(), dict[str, Footprint](), dict[date, Footprint]()
    for row in breakdown(choice.scope, choice.days, By.DAY, *BY):
        take_turns()
        footprint, day = Footprint.of(row.totals), cast(date, row.day)
        group = f"{row.provider}/{row.model}" if choice.by == Grouping.MODEL else str(row.region)
        sums += footprint
        groups[group] = groups.get(group, Footprint()) + footprint
        days[day] = days.get(day, Footprint()) + footprint
    return {
        "sums": sums,
        "lines": _lines(choice, groups),
        "days": sorted(days.items(), reverse=True),
        "elsewhere": _elsewhere(sums),
        "method": METHOD,
        "annual_sources": sorted({*GridIntensity.objects.exclude(source="").values_list("source", flat=True)}),
        "hourly_sources": sorted({*GridSlot.objects.order_by().values_list("source", flat=True).distinct()}),
    }


def _lines(choice: Choice, groups: Mapping[str, Footprint]) -> list[Line]:
    """The groups that emitted most, and one line for those beyond MOST_LINES."""
    ordered = sorted(groups.items(), key=lambda item: (-item[1].carbon_gco2e, -item[1].energy_wh, item[0]))
    may_narrow = choice.by not in choice.narrowing
    lines = [
        Line(text, footprint, choice.to("carbon", **{choice.by: text}) if may_narrow else None)
        for text, footprint in ordered[:MOST_LINES]
    ]
    if rest := ordered[MOST_LINES:]:
        lines.append(Line(f"{len(rest):,} others", sum((each for _, each in rest), Footprint()), None))
    return lines


def _elsewhere(sums: Footprint) -> Elsewhere | None:
    """None where no energy is known, or no place with an intensity is served from."""
    if not sums.energy_known or not snapshot.is_loaded():
        return None
    routes = (
        route
        for offer in snapshot.current().offers.values()
        for route in offer.routes.values()
        if route.place is not None and route.is_served and route.upstream.configured
    )
    known = [(route.energy.intensity_gco2_per_kwh, route.locode, route) for route in routes]
    graded = [(grams, locode, route) for grams, locode, route in known if grams is not None]
    if not graded:
        return None
    grams, _, route = min(graded, key=lambda item: item[:2])
    return Elsewhere(route, sums.energy_wh * grams / _THOUSAND / _THOUSAND)
