"""Finds the route of an explicit id, and checks that a route can serve."""

from datetime import date

from gateway.errors import (
    InvalidRequest,
    ModelDisabled,
    ModelUnavailable,
    NotFound,
    ProviderNotConfigured,
    ProviderUnavailable,
    UnpricedRoute,
)

from ..pricing import Price, Rates, rates_between
from .model_ids import GLOBAL, ExplicitId, shown
from .nearest import suggestion
from .routes import Offer, Route, Snapshot

ENDPOINTS = {  # by modality
    "chat": "POST /v1/chat/completions",
    "completion": "POST /v1/completions",
    "embedding": "POST /v1/embeddings",
    "responses": "POST /v1/responses",
}


def pin(snapshot: Snapshot, wanted: ExplicitId, today: date, *, even_unavailable: bool = False) -> Route:
    """Returns the route that an explicit id names, and never another one.

    Raises NotFound, ModelDisabled, ModelUnavailable or ProviderUnavailable.
    """
    offer = snapshot.offers.get((wanted.provider, wanted.canonical_id))
    if offer is None:
        asked = f"{wanted.provider}/{wanted.canonical_id}"
        raise NotFound(
            f"Provider {shown(wanted.provider)!r} does not offer model {shown(wanted.canonical_id)!r}. "
            f"{suggestion(snapshot, asked)}",
            param="model",
        )
    if offer.is_disabled(today):
        raise ModelDisabled(f"Model {offer.id!r} is disabled.")
    if offer.state == "unavailable" and not even_unavailable:
        reason = f": {offer.unavailable_reason}" if offer.unavailable_reason else "."
        raise ModelUnavailable(f"Model {offer.id!r} is unavailable{reason}")
    return _in_region(offer, wanted.locode or offer.default_locode)


def _in_region(offer: Offer, locode: str) -> Route:
    route = offer.routes.get(locode)
    if route is None and locode == GLOBAL:
        raise NotFound(
            f"Model {offer.id!r} is served only in specific regions ({_served_regions(offer)}), not as 'global'. "
            f"Name one of them; the model's default is {offer.default_locode}.",
            param="model",
        )
    if route is None or not route.is_served:
        raise ProviderUnavailable(
            f"Model {offer.id!r} is not available in region {shown(locode)!r}. "
            f"Available regions: {_served_regions(offer) or 'none'}.",
            param="model",
        )
    return route


def _served_regions(offer: Offer) -> str:
    return ", ".join(route.locode for route in offer.routes.values() if route.is_served)


def require_modality(route: Route, fitting: tuple[str, ...], endpoint: str) -> None:
    """Raises InvalidRequest if the endpoint does not serve models of this kind."""
    if route.modality not in fitting:
        modality = f"the modality {route.modality!r}" if route.modality else "an unknown modality"
        own = ENDPOINTS.get(route.modality or "")
        fault = f"Model {route.id!r} has {modality}, which cannot be used with {endpoint}."
        raise InvalidRequest(f"{fault} Use {own}." if own else fault, param="model")


def require_configured(route: Route) -> None:
    """Raises ProviderNotConfigured if the provider's credential is not set."""
    if not route.upstream.configured:
        raise ProviderNotConfigured(f"Provider {route.upstream.slug!r} has no credentials configured on this gateway.")


def require_price(snapshot: Snapshot, route: Route, account_currency: str) -> tuple[Price, Rates]:
    """Returns the price and the exchange rates to freeze. Raises UnpricedRoute if one is unknown."""
    if route.price is None:
        raise UnpricedRoute(f"Provider {route.upstream.slug!r}: model {route.id!r} has no price and cannot be served.")
    rates = rates_between(route.price.currency, account_currency, snapshot.units_per_eur)
    if rates is None:
        raise UnpricedRoute(
            f"Provider {route.upstream.slug!r}: model {route.id!r} cannot be priced: there is no exchange rate from "
            f"{route.price.currency} to {account_currency}."
        )
    return route.price, rates
