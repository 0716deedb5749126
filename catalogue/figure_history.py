"""Records the history of the figures from which terms are frozen, other than prices (`price_history`).

A worker compares its snapshot with the newest rows after each load, so a change is recorded some seconds late. Only
routes that `/v1/models` has listed are in it.
"""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from django.db import transaction
from django.db.models import Max
from django.utils import timezone

from gateway.edge.responses import without_unknown
from gateway.money import plain

from . import changes
from .footprint.energy import KINDS
from .listing import View, served_now
from .models import FigureChange
from .pricing import ENERGY_PLACES, EnergyFactors, GridBasis, Units
from .routing import snapshot
from .routing.routes import Route, Snapshot
from .routing.snapshot import HOURLY, STATED, grid_names, in_slices

EVERY_SECONDS = 5.0
RATE, ROUTE, GRID = "rate/", "route/", "grid/"  # how subjects begin
ROWS_PER_STATEMENT = 500
Value = dict[str, Any]

_recorded = -1  # the serial of the snapshot that this worker last compared


def record_new() -> None:
    """Records what has changed since this worker last did so. Costs nothing if its snapshot is the same."""
    global _recorded  # noqa: PLW0603  # the worker's memory
    if not snapshot.is_loaded():
        return
    current = snapshot.current()
    if current.serial != _recorded and record(current):
        _recorded = current.serial


def record(current: Snapshot) -> bool:
    """Records how the snapshot differs from the newest rows. Returns False if the snapshot is not the newest."""
    figures = dict(_figures(current))
    every_route = {ROUTE + route.id for offer in current.offers.values() for route in offer.routes.values()}
    with transaction.atomic():
        changes.hold()  # one process at a time
        now = timezone.now()
        if current.version != changes.version() or (current.grid_until is not None and now >= current.grid_until):
            return False
        known = _newest()
        for subject, value in known.items():
            if subject not in figures and value is not None and subject not in every_route:
                figures[subject] = None
        FigureChange.objects.bulk_create(
            [
                FigureChange(subject=subject, value=value, since=now, is_hourly=subject.startswith(f"{GRID}{HOURLY}/"))
                for subject, value in figures.items()
                if known.get(subject) != value
            ],
            batch_size=ROWS_PER_STATEMENT,
        )
    return True


def _newest() -> dict[str, Value | None]:
    """Returns the newest value of each subject."""
    ids = FigureChange.objects.values("subject").annotate(newest=Max("id")).values("newest")
    return dict(FigureChange.objects.filter(pk__in=ids).values_list("subject", "value"))


def _figures(current: Snapshot) -> Iterator[tuple[str, Value | None]]:
    """Yields the exchange rates and grid intensities of the snapshot, and the energy of each listed route."""
    for currency, units_per_eur in current.units_per_eur.items():
        yield RATE + currency, {"units_per_eur": plain(units_per_eur)}
    for name, (intensity, basis) in current.grid.items():
        yield GRID + name, grid_value(intensity, basis)
    view = View(timezone.now().date())
    for offer in in_slices(current.offers.values()):
        for route in served_now(offer, view):
            yield ROUTE + route.id, _route_value(route)


def _route_value(route: Route) -> Value:
    """Returns a route's energy, and its `grid` or the subjects of which the first known one is its grid."""
    energy, basis = energy_value(route.energy), route.energy.basis
    if basis is not None and basis.kind == STATED:
        return {"energy": energy, "grid": grid_value(route.energy.intensity_gco2_per_kwh, basis)}
    return {"energy": energy, "grid_of": [GRID + name for name in grid_names(route.locode, route.place)]}


def energy_value(factors: EnergyFactors) -> Value | None:
    """Returns energy and embodied carbon per token, named as in a leaf of the log; None if they are unknown."""
    if factors.units is None and factors.embodied is None:
        return None
    low, high = factors.bounds or (None, None)
    return without_unknown(
        {
            "source": factors.source,
            "method": (factors.figures and factors.figures.method) or None,
            "wh_per_token": _by_kind(factors.units),
            "wh_per_token_low": _by_kind(low),
            "wh_per_token_high": _by_kind(high),
            "embodied_gco2e_per_token": _by_kind(factors.embodied),
        }
    )


def grid_value(intensity: int | None, basis: GridBasis | None) -> Value | None:
    """Returns the carbon intensity of electricity as in a leaf of the log; None if it is unknown."""
    if intensity is None:
        return None
    words = {} if basis is None else {name: word for name, word in basis._asdict().items() if word}
    return {"gco2e_per_kwh": str(intensity), **words}


def _by_kind(units: Units | None) -> Mapping[str, str] | None:
    if units is None:
        return None
    return {kind: plain(Decimal(each).scaleb(-ENERGY_PLACES)) for kind, each in zip(KINDS, units, strict=True)}
