"""Defines the immutable values that routing reads, and finds the route of an explicit id."""

import itertools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal

from gateway.errors import (
    InvalidAliasName,
    InvalidRequest,
    ModelNotFound,
    ModelUnavailable,
    NotFound,
    ProviderNotConfigured,
    ProviderUnavailable,
    UnpricedRoute,
)

from ..pricing import EnergyFactors, Price, Rates, rates_between

GLOBAL = "global"
AUTO = "auto"
ALIAS = "alias"
ALIAS_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
ALIAS_RULE = "1-64 characters of lowercase a-z, 0-9, '-' or '_', starting with a letter or digit"
EMBEDDING = "embedding"
EU_MEMBERS = frozenset(
    {
        "AT",
        "BE",
        "BG",
        "CY",
        "CZ",
        "DE",
        "DK",
        "EE",
        "ES",
        "FI",
        "FR",
        "GR",
        "HR",
        "HU",
        "IE",
        "IT",
        "LT",
        "LU",
        "LV",
        "MT",
        "NL",
        "PL",
        "PT",
        "RO",
        "SE",
        "SI",
        "SK",
    }
)


@dataclass(frozen=True, slots=True)
class Upstream:
    """Holds a provider, and what is needed to call it."""

    slug: str
    name: str
    country: str
    eu_native: bool
    us_legal_reach: bool
    dialect: str
    base_url: str
    auth_header: str
    auth_scheme: str
    extra_headers: Mapping[str, str]
    stream_options: bool
    developer_role: bool
    reasoning_content: bool
    refused_parameters: frozenset[str]
    total_includes: frozenset[str]  # kinds of tokens (`REASONING`, `AUDIO_PROMPTS`) counted only in the total
    status_override: str
    configured: bool
    credential: str | None = field(repr=False)
    next_credential: str | None = field(default=None, repr=False)  # tried if the first is refused
    disabled_reason: str = ""  # why staff disabled it; empty if they did not
    retention_days: int | None = None  # how long it keeps prompts and answers; None is unknown
    retention_source: str = ""
    retention_as_of: date | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Holds a place from which routes are served, by its UN/LOCODE."""

    code: str
    name: str
    country: str
    eu: bool
    eea: bool
    grid_zone: str = ""  # the zone of its electricity, if that is not the country


@dataclass(frozen=True, slots=True)
class PublishedPricing:
    """Holds a region's published prices per 1,000,000 tokens. None is unknown."""

    currency: str
    prompt: Decimal | None
    completion: Decimal | None
    cache_read: Decimal | None
    cache_write: Decimal | None
    cache_write_1h: Decimal | None
    batch_prompt: Decimal | None
    batch_completion: Decimal | None
    above_prompt_tokens: int = 0
    tiers: tuple["PublishedPricing", ...] = ()


@dataclass(frozen=True, slots=True)
class Route:
    """Holds an offer in a place. Without a `price` it is not served (`require_price`)."""

    region_id: int
    upstream: Upstream
    canonical_id: str
    locode: str
    place: Place | None
    is_served: bool
    modality: str | None
    upstream_model: str
    base_url: str
    max_tokens_field: str
    context_length: int | None
    max_output_tokens: int | None
    can_stream: bool  # True unless the catalogue says otherwise, as for the next two
    can_call_functions: bool
    can_take_images: bool
    aggregate: bool
    thinking: str
    published: PublishedPricing | None
    price: Price | None
    energy: EnergyFactors
    daily_token_quota: int

    @property
    def id(self) -> str:
        return f"{self.upstream.slug}/{self.canonical_id}/{self.locode}"


@dataclass(frozen=True, slots=True)
class Offer:
    """Holds a model that a provider serves. `routes` start with `global`, if there is one, then the default."""

    upstream: Upstream
    canonical_id: str
    name: str
    modality: str | None
    context_length: int | None
    max_output_tokens: int | None
    streaming: bool | None
    function_calling: bool | None
    image_input: bool | None
    state: str
    unavailable_reason: str
    retires_on: date | None
    created: int
    owned_by: str
    default_locode: str
    routes: Mapping[str, Route]

    @property
    def id(self) -> str:
        """Returns the id of three segments."""
        return f"{self.upstream.slug}/{self.canonical_id}"

    def is_disabled(self, today: date) -> bool:
        return self.state == "disabled" or (self.retires_on is not None and today > self.retires_on)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Holds the catalogue at one version. It is valid until `grid_until`, when carbon intensities change."""

    version: int
    offers: Mapping[tuple[str, str], Offer]
    by_canonical_id: Mapping[str, tuple[Offer, ...]]
    upstreams: Mapping[str, Upstream]
    units_per_eur: Mapping[str, Decimal]
    with_quota: tuple[Route, ...]
    grid_until: datetime | None = None
    serial: int = field(default_factory=itertools.count().__next__)  # distinguishes the snapshots of this worker


def is_eu_sovereign(route: Route) -> bool:
    """Tells whether an EU provider without foreign control serves the route in the EU or EEA."""
    upstream, place = route.upstream, route.place
    return (
        upstream.eu_native
        and not upstream.us_legal_reach
        and upstream.country in EU_MEMBERS
        and place is not None
        and (place.eu or place.eea)
    )


# The catalogue's filters by jurisdiction. A `global` route has no place, so it is not EU-hosted.
JURISDICTIONS: dict[str, Callable[[Route], bool]] = {
    "cloud-act-free": lambda route: not route.upstream.us_legal_reach,
    "eu-sovereign": is_eu_sovereign,
    "eu-hosted": lambda route: route.place is not None and route.place.eu,
}


@dataclass(frozen=True, slots=True)
class ExplicitId:
    """Names one route; without a `locode`, in the model's default region."""

    provider: str
    canonical_id: str
    locode: str | None


@dataclass(frozen=True, slots=True)
class AutoId:
    """Names a canonical model, and leaves the route to automatic routing."""

    canonical_id: str

    def __str__(self) -> str:
        return f"{AUTO}/{self.canonical_id}"


@dataclass(frozen=True, slots=True)
class AliasId:
    """Names a route by an account's alias."""

    name: str

    def __str__(self) -> str:
        return f"{ALIAS}/{self.name}"


def parse_model_id(text: str) -> ExplicitId | AutoId | AliasId:
    """Parses a `model` string. Raises InvalidRequest and InvalidAliasName."""
    segments = text.split("/")
    if segments[0] == ALIAS:
        name = text.removeprefix(f"{ALIAS}/")
        if name == text or not ALIAS_NAME.fullmatch(name):
            words = f"must have {ALIAS_RULE} after alias/, and {shown(text)!r} does not."
            raise InvalidAliasName.of_field("model", words)
        return AliasId(name)
    if "" in segments or len(segments) not in (3, 4):
        raise InvalidRequest.of_field(
            "model",
            f"must match {{provider}}/{{creator}}/{{model}}[/{{locode}}], and {shown(text)!r} does not: "
            f"received {len(segments)} segment{'' if len(segments) == 1 else 's'}"
            f"{' (an empty one among them)' if '' in segments else ''}.",
        )
    if segments[0] == AUTO:
        if len(segments) == 4:
            raise InvalidRequest.of_field(
                "model", "must match auto/{creator}/{model}: received 4 segments. To pin a region, name a provider."
            )
        return AutoId("/".join(segments[1:]))
    return ExplicitId(segments[0], "/".join(segments[1:3]), region_label(segments[3]) if len(segments) == 4 else None)


def pin(snapshot: Snapshot, wanted: ExplicitId, today: date, *, even_unavailable: bool = False) -> Route:
    """Returns the route that an explicit id names, and never another one.

    Raises NotFound, ModelNotFound, ModelUnavailable or ProviderUnavailable.
    """
    offer = snapshot.offers.get((wanted.provider, wanted.canonical_id))
    if offer is None:
        from .nearest import suggestion  # noqa: PLC0415  # it imports this module

        asked = f"{wanted.provider}/{wanted.canonical_id}"
        raise NotFound(
            f"Model {shown(wanted.canonical_id)!r} is not offered by provider {shown(wanted.provider)!r}. "
            f"{suggestion(snapshot, asked)}",
            param="model",
        )
    if offer.is_disabled(today):
        raise ModelNotFound(f"Model {offer.id!r} is disabled.")
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
            f"Region {shown(locode)!r} is not served for model {offer.id!r}; there is no substitution. "
            f"Served: {_served_regions(offer) or 'none'}.",
            param="model",
        )
    return route


def _served_regions(offer: Offer) -> str:
    return ", ".join(route.locode for route in offer.routes.values() if route.is_served)


def require_modality(route: Route, fitting: tuple[str, ...], endpoint: str) -> None:
    """Raises InvalidRequest if the endpoint does not serve models of this kind."""
    if route.modality not in fitting:
        raise InvalidRequest(
            f"Model {route.id!r} has modality {route.modality or 'unknown'!r} and cannot serve {endpoint}.",
            param="model",
        )


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


def region_label(text: str) -> str:
    """Returns a region in the catalogue's spelling."""
    if not text.isascii():  # in upper case the long s, for example, would become an ordinary one
        return text
    return GLOBAL if text.lower() == GLOBAL else text.upper()


def shown(text: str) -> str:
    """Shortens a client's text for a message."""
    return text if len(text) <= 200 else text[:200] + "…"
