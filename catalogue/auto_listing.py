"""The `auto/{creator}/{model}` entries of the catalogue (docs/api.md#models)."""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

from .carbon import carbon_per_token
from .listing import Info, View, known, served_now
from .model_ids import AUTO
from .pricing import rates_between
from .ranking import Ranking, cost_in_eur, rank
from .routes import Offer, Route, Snapshot

MODALITIES = ("chat", "completion")


def auto_infos(snapshot: Snapshot, view: View, objective: str) -> Iterator[Info]:
    """An entry for each canonical model with an eligible route, in the order of its id.

    Under a filter an entry is listed only where all its candidates pass it: choosing must not leave the filter.
    """
    for canonical_id in sorted(snapshot.by_canonical_id):
        info = auto_info(snapshot, canonical_id, view, objective)
        if info is not None:
            yield info


def auto_info(snapshot: Snapshot, canonical_id: str, view: View, objective: str) -> Info | None:
    """The entry of one canonical model; None where it has no eligible route, or the filters leave one out."""
    offers = [offer for offer in snapshot.by_canonical_id.get(canonical_id, ()) if offer.modality in MODALITIES]
    routes = [route for offer in offers for route in served_now(offer, view)]
    eligible = [route for route in routes if cost_in_eur(snapshot.units_per_eur, route) is not None]
    if not eligible or not all(view.passes(route) for route in eligible):
        return None
    taking_part = {route.region_id for route in eligible}
    offers = [o for o in offers if any(route.region_id in taking_part for route in o.routes.values())]
    modality = _common([offer.modality for offer in offers])
    if view.modality is not None and modality != view.modality:
        return None
    ranking = rank(eligible, snapshot.units_per_eur, objective)
    all_priced = len(eligible) == len(routes)
    return known(
        {
            "id": f"{AUTO}/{canonical_id}",
            "object": "model",
            "created": min(offer.created for offer in offers),
            "owned_by": canonical_id.split("/", maxsplit=1)[0],
            "name": offers[0].name,
            "provider": AUTO,
            "context_length": _smallest([offer.context_length for offer in offers]),
            "max_output_tokens": _smallest([offer.max_output_tokens for offer in offers]),
            "modality": modality,
            "capabilities": _capabilities(offers),
            "auto_routing": _envelope(snapshot, ranking, all_priced=all_priced),
        }
    )


def _envelope(snapshot: Snapshot, ranking: Ranking, *, all_priced: bool) -> Info:
    routes = ranking.routes
    return known(
        {
            "candidates": [route.id for route in routes],
            "pricing_range": _pricing_range(snapshot, routes) if all_priced else None,
            "carbon_range": _carbon_range(routes),
        }
    )


def _pricing_range(snapshot: Snapshot, routes: Sequence[Route]) -> Info:
    """Prices in EUR per 1,000,000 tokens. Eligible routes are priced, in a currency with a rate."""
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
    grams = [carbon_per_token(route.energy) for route in routes]
    intensities = [route.energy.intensity_gco2_per_kwh for route in routes]
    known_grams = [gram for gram in grams if gram is not None]
    known_intensities = [intensity for intensity in intensities if intensity is not None]
    if len(known_grams) < len(routes):
        return None
    return {
        "carbon_per_token_gco2e": _float_range(known_grams),
        "grid_carbon_intensity_gco2_per_kwh": {"min": min(known_intensities), "max": max(known_intensities)},
    }


def _float_range(values: Sequence[Decimal]) -> dict[str, float]:
    return {"min": float(min(values)), "max": float(max(values))}


def _capabilities(offers: Sequence[Offer]) -> Info | None:
    """What any candidate can do, since a request goes to one that can; unknown where none is known to and one is
    unknown."""
    streaming = _any_of([offer.streaming for offer in offers])
    if streaming is None:
        return None
    return known({"streaming": streaming, "function_calling": _any_of([offer.function_calling for offer in offers])})


def _any_of(values: Sequence[bool | None]) -> bool | None:
    if True in values:
        return True
    return None if None in values else False


def _smallest(values: Sequence[int | None]) -> int | None:
    stated = [value for value in values if value is not None]
    return min(stated) if len(stated) == len(values) else None


def _common(values: Sequence[Any]) -> Any:
    return values[0] if len(set(values)) == 1 else None
