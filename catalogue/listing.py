"""The catalogue as clients read it (spec: ModelInfo). What is unknown is absent, never zero."""

from datetime import date
from typing import Any

from gateway.errors import NotFound
from gateway.money import to_json

from .carbon import carbon_per_token
from .model_ids import GLOBAL, ExplicitId
from .routes import Offer, PublishedPricing, Route, Snapshot

GLOBAL_LABEL = "GLOBAL-AVERAGE"


def list_models(snapshot: Snapshot, today: date) -> list[dict[str, Any]]:
    """Every offer that can be served now, in the order of its id."""
    listed = (_listed(offer, today) for _, offer in sorted(snapshot.offers.items()))
    return [info for info in listed if info is not None]


def find_model(snapshot: Snapshot, wanted: ExplicitId, today: date) -> dict[str, Any]:
    """One offer by its 3-part id, or by a 4-part id with that region alone. Raises NotFound for what is not listed."""
    offer = snapshot.offers.get((wanted.provider, wanted.canonical_id))
    info = None if offer is None else _listed(offer, today, only=wanted.locode)
    if info is None:
        raise NotFound("The catalogue lists no such model.", param="model")
    return info


def _listed(offer: Offer, today: date, only: str | None = None) -> dict[str, Any] | None:
    """A ModelInfo; None where nothing of the offer can be served now."""
    if offer.state != "served" or offer.is_disabled(today) or not offer.upstream.configured:
        return None
    routes = [route for route in offer.routes.values() if route.is_served and only in (None, route.locode)]
    return model_info(offer, routes) if routes else None


def model_info(offer: Offer, routes: list[Route]) -> dict[str, Any]:
    """The ModelInfo of an offer, with these of its routes as regions."""
    info: dict[str, Any] = {
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
    return _known(info)


def _capabilities(offer: Offer) -> dict[str, bool] | None:
    if offer.streaming is None:
        return None
    return _known({"streaming": offer.streaming, "function_calling": offer.function_calling})


def _region(route: Route) -> dict[str, Any]:
    return _known(
        {
            "id": route.id,
            "locode": route.locode,
            "pricing": None if route.published is None else _pricing(route.published),
            "carbon_metrics": _carbon_metrics(route),
        }
    )


def _pricing(published: PublishedPricing) -> dict[str, Any] | None:
    prices = {
        "prompt_per_1m_tokens": published.prompt,
        "completion_per_1m_tokens": published.completion,
        "cache_read_per_1m_tokens": published.cache_read,
        "cache_write_per_1m_tokens": published.cache_write,
        "batch_prompt_per_1m_tokens": published.batch_prompt,
        "batch_completion_per_1m_tokens": published.batch_completion,
    }
    known = {name: to_json(price) for name, price in prices.items() if price is not None}
    return {**known, "currency": published.currency} if known else None


def _carbon_metrics(route: Route) -> dict[str, Any] | None:
    """Keyed by region label; `global` is published under the name of what it is, a world average."""
    energy = route.energy
    grams = carbon_per_token(energy)
    metrics = _known(
        {
            "energy_per_token_wh": None if energy.per_token_wh is None else float(energy.per_token_wh),
            "carbon_per_token_gco2e": None if grams is None else float(grams),
            "grid_carbon_intensity_gco2_per_kwh": energy.intensity_gco2_per_kwh,
        }
    )
    label = GLOBAL_LABEL if route.locode == GLOBAL else route.locode
    return {label: metrics} if metrics else None


def _known(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
