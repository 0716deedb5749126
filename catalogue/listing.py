"""Writes the catalogue as the API shows it. Unknown values are left out."""

import hashlib
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, Generic, TypeVar

import orjson
from django.conf import settings

from accounts.policies import AppliedPolicy
from gateway.edge.responses import without_unknown
from gateway.money import to_json
from gateway.server.turns import take_turns

from .models import FACTS, PER_MILLION
from .pricing import carbon_per_token, rates_between
from .routing.model_ids import AUTO, GLOBAL
from .routing.policy_check import PolicyCheck
from .routing.routes import (
    JURISDICTIONS,
    Fact,
    Offer,
    PublishedPricing,
    Route,
    Snapshot,
    is_confidential,
    is_stored_within,
    keeps_nothing,
)
from .routing.selection import cost_in_eur, rank
from .routing.snapshot import in_slices

GLOBAL_LABEL = "GLOBAL-AVERAGE"
AUTO_MODALITIES = ("chat", "completion")
LISTED_PRICES = ("prompt", "completion", "cache_read", "cache_write", "batch_prompt", "batch_completion")
MOST_VIEWS = 24  # those used last are kept; a large listing has 5 MB
Info = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class View:
    """Filters a listing: by day, by used-up quotas (`held`, region ids), by policies, and by what the client asks."""

    today: date
    held: Collection[int] = ()
    jurisdiction: str | None = None
    modality: str | None = None
    zero_data_retention: bool = False
    storage: str | None = None  # a country, or EU
    transfer: str | None = None
    confidential: bool = False
    policies: tuple[AppliedPolicy, ...] = ()
    currency: str = "EUR"  # of the account whose policies these are
    all: bool = False  # also shows what the policies do not allow, and marks each entry

    def passes(self, route: Route) -> bool:
        """Tells whether the route passes every filter on routes. A fact that is unknown passes none."""
        return (
            (self.jurisdiction is None or JURISDICTIONS[self.jurisdiction](route))
            and (not self.zero_data_retention or keeps_nothing(route))
            and (self.storage is None or is_stored_within(route, (self.storage,)))
            and self.transfer in (None, route.transfer)
            and (not self.confidential or is_confidential(route))
        )

    @property
    def filters_routes(self) -> bool:
        filters = (self.jurisdiction, self.zero_data_retention, self.storage, self.transfer, self.confidential)
        return any(filters)


def is_allowed(snapshot: Snapshot, view: View, route: Route, asked: str | None = None) -> bool:
    """Tells whether the view's policies allow a route to a request that names it, or the `auto/…` id `asked`."""
    if not view.policies:
        return True
    return PolicyCheck(view.policies, snapshot.units_per_eur, view.currency, asked).denial(route) is None


def listed(snapshot: Snapshot, view: View) -> Iterator[tuple[Offer, list[Route]]]:
    """Yields the offers that can be served now and pass the filter, with their routes that do."""
    for _, offer in sorted(snapshot.offers.items()):
        take_turns()
        if view.modality is None or offer.modality == view.modality:
            routes = servable(offer, view)
            if not view.all:
                routes = [route for route in routes if is_allowed(snapshot, view, route)]
            if routes:
                yield offer, routes


def servable(offer: Offer, view: View) -> list[Route]:
    """Returns the routes of an offer that can be served now and pass the filters."""
    return [route for route in served_now(offer, view) if view.passes(route)]


def served_now(offer: Offer, view: View) -> list[Route]:
    """Returns the routes of an offer that can be served now."""
    if offer.state != "served" or offer.is_disabled(view.today) or not offer.upstream.configured:
        return []
    return [route for route in offer.routes.values() if route.is_served and route.region_id not in view.held]


def model_info(snapshot: Snapshot, view: View, offer: Offer, routes: list[Route]) -> Info:
    """Returns the ModelInfo of an offer, with the given routes as its regions."""
    allowed = {route.region_id for route in routes if view.all and is_allowed(snapshot, view, route)}
    info: Info = {
        "id": offer.id,
        "object": "model",
        "created": offer.created,
        "owned_by": offer.owned_by,
        "name": offer.name,
        "provider": offer.upstream.slug,
        "context_length": offer.context_length,
        "max_output_tokens": offer.max_output_tokens,
        "modality": offer.modality,
        "capabilities": _capabilities(offer.streaming, offer.function_calling),
        "allowed": bool(allowed) if view.all else None,
        "retention": _fact("retention", offer.own_retention),
        "regions": [
            without_unknown(
                {
                    "id": route.id,
                    "locode": route.locode,
                    "pricing": None if route.published is None else _pricing(route.published),
                    "carbon_metrics": _carbon_metrics(route),
                    "allowed": route.region_id in allowed if view.all else None,
                }
            )
            for route in routes
        ],
    }
    return without_unknown(info)


def providers(snapshot: Snapshot, view: View, status_of: Callable[[str, str], str]) -> list[Info]:
    """Returns the configured providers, with their regions and number of models."""
    regions: dict[str, set[str]] = {}
    grids: dict[str, Info] = {}
    counts: dict[str, int] = {}
    for offer, routes in listed(snapshot, view):
        slug = offer.upstream.slug
        regions.setdefault(slug, set()).update(route.locode for route in routes)
        counts[slug] = counts.get(slug, 0) + 1
        for route in routes:
            if grid := _grid(route):
                grids.setdefault(slug, {})[_label(route)] = grid
    shown = [u for u in snapshot.upstreams.values() if u.configured and (not view.filters_routes or u.slug in counts)]
    return [
        {
            "name": upstream.slug,
            "status": status_of(upstream.slug, upstream.status_override),
            "regions": sorted(regions.get(upstream.slug, ()), key=lambda code: (code != GLOBAL, code)),
            "model_count": counts.get(upstream.slug, 0),
            **({"carbon_metrics": grids[upstream.slug]} if upstream.slug in grids else {}),
            **without_unknown({name: _fact(name, getattr(upstream, name)) for name in FACTS}),
        }
        for upstream in sorted(shown, key=lambda upstream: upstream.slug)
    ]


def _fact(name: str, fact: Fact[Any] | None) -> Info | None:
    if fact is None:
        return None
    return without_unknown(
        {FACTS[name]: fact.value, "source": fact.source or None, "as_of": fact.as_of and str(fact.as_of)}
    )


def auto_infos(snapshot: Snapshot, view: View, objective: str) -> Iterator[Info]:
    """Yields the `auto/…` entries of canonical models whose eligible routes all pass the filter."""
    for canonical_id in sorted(snapshot.by_canonical_id):
        info = auto_info(snapshot, canonical_id, view, objective)
        if info is not None:
            yield info


def auto_info(snapshot: Snapshot, canonical_id: str, view: View, objective: str) -> Info | None:
    """Returns the `auto/…` entry of a canonical model, or None if not all its eligible routes pass the filter."""
    offers = [offer for offer in snapshot.by_canonical_id.get(canonical_id, ()) if offer.modality in AUTO_MODALITIES]
    routes = [route for offer in offers for route in served_now(offer, view)]
    auto_id = f"{AUTO}/{canonical_id}"
    allowed = {route.region_id for route in routes if is_allowed(snapshot, view, route, auto_id)}
    if not view.all:
        routes = [route for route in routes if route.region_id in allowed]
    eligible = [route for route in routes if cost_in_eur(snapshot.units_per_eur, route) is not None]
    if not eligible or not all(view.passes(route) for route in eligible):
        return None
    taking_part = {route.region_id for route in eligible}
    offers = [o for o in offers if any(route.region_id in taking_part for route in o.routes.values())]
    modalities = {offer.modality for offer in offers}
    modality = modalities.pop() if len(modalities) == 1 else None
    if view.modality is not None and modality != view.modality:
        return None
    ranked = rank(eligible, snapshot.units_per_eur, objective).routes
    all_priced = len(eligible) == len(routes)
    return without_unknown(
        {
            "id": auto_id,
            "object": "model",
            "created": min(offer.created for offer in offers),
            "owned_by": canonical_id.split("/", maxsplit=1)[0],
            "name": offers[0].name,
            "provider": AUTO,
            "context_length": _smallest([offer.context_length for offer in offers]),
            "max_output_tokens": _smallest([offer.max_output_tokens for offer in offers]),
            "modality": modality,
            # A capability of any candidate counts, because a request goes to a candidate that has it.
            "capabilities": _capabilities(
                _any_of([offer.streaming for offer in offers]), _any_of([offer.function_calling for offer in offers])
            ),
            "allowed": any(route.region_id in allowed for route in eligible) if view.all else None,
            "auto_routing": without_unknown(
                {
                    "candidates": [route.id for route in ranked],
                    "pricing_range": _pricing_range(snapshot, ranked) if all_priced else None,
                    "carbon_range": _carbon_range(ranked),
                }
            ),
        }
    )


def _capabilities(streaming: bool | None, function_calling: bool | None) -> Info | None:
    if streaming is None:
        return None
    return without_unknown({"streaming": streaming, "function_calling": function_calling})


def _pricing(published: PublishedPricing) -> Info | None:
    stated = _prices(published)
    if not stated:
        return None
    tiers = [{"above_prompt_tokens": tier.above_prompt_tokens, **_prices(tier)} for tier in published.tiers]
    return {**stated, "currency": published.currency, **({"tiers": tiers} if tiers else {})}


def _prices(published: PublishedPricing) -> dict[str, float]:
    prices = ((f"{name}{PER_MILLION}", getattr(published, name)) for name in LISTED_PRICES)
    return {name: to_json(price) for name, price in prices if price is not None}


def _carbon_metrics(route: Route) -> Info | None:
    # By region label. For `global` the intensity is the world's average.
    energy = route.energy
    grams = carbon_per_token(energy)
    per_token = {
        "energy_per_token_wh": None if energy.per_token_wh is None else float(energy.per_token_wh),
        "carbon_per_token_gco2e": None if grams is None else float(grams),
    }
    metrics = without_unknown(per_token) | _grid(route)
    return {_label(route): metrics} if metrics else None


def _grid(route: Route) -> Info:
    energy = route.energy
    intensity = without_unknown({"grid_carbon_intensity_gco2_per_kwh": energy.intensity_gco2_per_kwh})
    return intensity | dict(energy.grid_details)


def _label(route: Route) -> str:
    return GLOBAL_LABEL if route.locode == GLOBAL else route.locode


def _pricing_range(snapshot: Snapshot, routes: Sequence[Route]) -> Info:
    prompts, completions = [], []
    for route in routes:
        rates = route.price and rates_between(route.price.currency, "EUR", snapshot.units_per_eur)
        if route.price and rates:
            prompts.append(route.price.prompt * rates.eur)
            completions.append(route.price.completion * rates.eur)
    return {
        "prompt_per_1m_tokens": _float_range(prompts),
        "completion_per_1m_tokens": _float_range(completions),
        "currency": "EUR",
    }


def _carbon_range(routes: Sequence[Route]) -> Info | None:
    grams = [gram for route in routes if (gram := carbon_per_token(route.energy)) is not None]
    if len(grams) < len(routes):
        return None
    intensities = [route.energy.intensity_gco2_per_kwh or 0 for route in routes]  # known, because the grams are
    return {
        "carbon_per_token_gco2e": _float_range(grams),
        "grid_carbon_intensity_gco2_per_kwh": {"min": min(intensities), "max": max(intensities)},
    }


def _float_range(values: Sequence[Decimal]) -> dict[str, float]:
    return {"min": float(min(values)), "max": float(max(values))}


def _any_of(values: Sequence[bool | None]) -> bool | None:
    """Returns True if any value is; else None if any is unknown; else False."""
    if True in values:
        return True
    return None if None in values else False


def _smallest(values: Sequence[int | None]) -> int | None:
    stated = [value for value in values if value is not None]
    return min(stated) if len(stated) == len(values) else None


@dataclass(frozen=True, slots=True)
class Listing:
    """Holds a response body and its ETag."""

    body: bytes
    etag: str


class PerSnapshot(Generic[T]):
    """Builds a value once for each snapshot and view, and keeps it."""

    def __init__(self, build: Callable[[Snapshot, View], T]) -> None:
        self._build = build
        self._built: dict[tuple[int, View], T] = {}
        self._building = threading.Lock()

    def of(self, snapshot: Snapshot, view: View) -> T:
        key = (snapshot.serial, view)
        found = self._built.get(key)
        if found is not None:
            self._built[key] = self._built.pop(key, found)  # moves it to the end, as the one used last
            return found
        with self._building:
            found = self._built.get(key)
            if found is None:
                found = self._build(snapshot, view)
                # Values of older snapshots are not needed any more.
                for old in [old for old in self._built if old[0] < snapshot.serial]:
                    del self._built[old]
                while len(self._built) >= MOST_VIEWS:
                    self._built.pop(next(iter(self._built)))
                self._built[key] = found
        return found


def models(snapshot: Snapshot, view: View) -> Listing:
    """Returns the body `{object: list, data: [ModelInfo]}`: explicit models, then `auto/…` entries."""
    return _listings.of(snapshot, view)


def autos(snapshot: Snapshot, view: View) -> list[Info]:
    """Returns the `auto/…` entries. They are kept, because ranking takes long."""
    return _autos.of(snapshot, view)


def _build(snapshot: Snapshot, view: View) -> Listing:
    explicit = [model_info(snapshot, view, offer, routes) for offer, routes in in_slices(listed(snapshot, view))]
    body = orjson.dumps({"object": "list", "data": [*explicit, *autos(snapshot, view)]})
    return Listing(body, f'"{hashlib.sha256(body).hexdigest()[:32]}"')


_listings = PerSnapshot(_build)
_autos = PerSnapshot(
    lambda snapshot, view: list(in_slices(auto_infos(snapshot, view, settings.GATEWAY_AUTO_OBJECTIVE)))
)
