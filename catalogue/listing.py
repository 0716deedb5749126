"""The catalogue as clients read it (docs/api.md#models). What is unknown is absent, never zero."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any

from gateway.money import to_json

from .carbon import carbon_per_token
from .jurisdiction import FILTERS
from .model_ids import GLOBAL
from .routes import Offer, PublishedPricing, Route, Snapshot

GLOBAL_LABEL = "GLOBAL-AVERAGE"
Info = dict[str, Any]


@dataclass(frozen=True, slots=True)
class View:
    """What of the catalogue is shown: today's date and spent quotas (by region id), and the client's filters."""

    today: date
    held: Collection[int] = ()
    jurisdiction: str | None = None
    modality: str | None = None

    @property
    def passes(self) -> Callable[[Route], bool]:
        """Whether a route is within the jurisdiction asked for."""
        return _any_route if self.jurisdiction is None else FILTERS[self.jurisdiction]


def _any_route(_route: Route) -> bool:
    return True


def listed(snapshot: Snapshot, view: View) -> Iterator[tuple[Offer, list[Route]]]:
    """Every offer that can be served now, in the order of its id, with its routes that pass the filters."""
    for _, offer in sorted(snapshot.offers.items()):
        if view.modality is None or offer.modality == view.modality:
            routes = servable(offer, view)
            if routes:
                yield offer, routes


def servable(offer: Offer, view: View) -> list[Route]:
    """The routes of an offer that can be served now and pass the jurisdiction filter."""
    return [route for route in served_now(offer, view) if view.passes(route)]


def served_now(offer: Offer, view: View) -> list[Route]:
    """The routes of an offer that can be served now, whatever the filters."""
    if offer.state != "served" or offer.is_disabled(view.today) or not offer.upstream.configured:
        return []
    return [route for route in offer.routes.values() if route.is_served and route.region_id not in view.held]


def model_info(offer: Offer, routes: list[Route]) -> Info:
    """The ModelInfo of an offer, with these of its routes as regions."""
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
        "capabilities": _capabilities(offer),
        "regions": [_region(route) for route in routes],
    }
    return known(info)


def providers(snapshot: Snapshot, view: View, status_of: Callable[[str, str], str]) -> list[Info]:
    """Every configured provider with what it serves now; under a jurisdiction filter only those with a region left.

    `status_of` tells a provider's status from its slug and its staff override.
    """
    regions: dict[str, set[str]] = {}
    counts: dict[str, int] = {}
    for offer, routes in listed(snapshot, view):
        slug = offer.upstream.slug
        regions.setdefault(slug, set()).update(route.locode for route in routes)
        counts[slug] = counts.get(slug, 0) + 1
    shown = [u for u in snapshot.upstreams.values() if u.configured and (not view.jurisdiction or u.slug in counts)]
    return [
        {
            "name": upstream.slug,
            "status": status_of(upstream.slug, upstream.status_override),
            "regions": sorted(regions.get(upstream.slug, ()), key=lambda code: (code != GLOBAL, code)),
            "model_count": counts.get(upstream.slug, 0),
        }
        for upstream in sorted(shown, key=lambda upstream: upstream.slug)
    ]


def _capabilities(offer: Offer) -> Info | None:
    if offer.streaming is None:
        return None
    return known({"streaming": offer.streaming, "function_calling": offer.function_calling})


def _region(route: Route) -> Info:
    return known(
        {
            "id": route.id,
            "locode": route.locode,
            "pricing": None if route.published is None else _pricing(route.published),
            "carbon_metrics": _carbon_metrics(route),
        }
    )


def _pricing(published: PublishedPricing) -> Info | None:
    stated = _prices(published)
    if not stated:
        return None
    tiers = [{"above_prompt_tokens": tier.above_prompt_tokens, **_prices(tier)} for tier in published.tiers]
    return {**stated, "currency": published.currency, **({"tiers": tiers} if tiers else {})}


def _prices(published: PublishedPricing) -> dict[str, float]:
    prices = {
        "prompt_per_1m_tokens": published.prompt,
        "completion_per_1m_tokens": published.completion,
        "cache_read_per_1m_tokens": published.cache_read,
        "cache_write_per_1m_tokens": published.cache_write,
        "batch_prompt_per_1m_tokens": published.batch_prompt,
        "batch_completion_per_1m_tokens": published.batch_completion,
    }
    return {name: to_json(price) for name, price in prices.items() if price is not None}


def _carbon_metrics(route: Route) -> Info | None:
    """Keyed by region label; `global` is published under the name of what it is, a world average."""
    energy = route.energy
    grams = carbon_per_token(energy)
    metrics = known(
        {
            "energy_per_token_wh": None if energy.per_token_wh is None else float(energy.per_token_wh),
            "carbon_per_token_gco2e": None if grams is None else float(grams),
            "grid_carbon_intensity_gco2_per_kwh": energy.intensity_gco2_per_kwh,
        }
    )
    label = GLOBAL_LABEL if route.locode == GLOBAL else route.locode
    return {label: metrics} if metrics else None


def known(values: Info) -> Info:
    """The fields that have a value."""
    return {name: value for name, value in values.items() if value is not None}
