"""Defines the immutable values that routing reads."""

import itertools
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Generic, TypeVar

from ..pricing import EnergyFactors, GridBasis, Price

EMBEDDING = "embedding"
EU = "EU"
T = TypeVar("T")
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
class Fact(Generic[T]):
    """Holds a fact on what a provider does with data, where the provider states it, and when that was read."""

    value: T
    source: str = ""
    as_of: date | None = None


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
    # Each is None if it is unknown.
    retention: Fact[int] | None = None  # for how many days it keeps prompts and answers
    storage: Fact[tuple[str, ...]] | None = None  # countries where it keeps anything, sorted
    transfer: Fact[str] | None = None  # the legal basis on which data leaves the EU and EEA
    confidential: Fact[str] | None = None  # the kind of confidential computing


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
    # Facts of the provider, of which the model may state another retention. Each is None if it is unknown.
    retention_days: int | None = None
    storage: frozenset[str] | None = None
    transfer: str | None = None
    confidential: str | None = None

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
    own_retention: Fact[int] | None = None  # if it differs from the provider's

    @property
    def id(self) -> str:
        """Returns the id of three segments."""
        return f"{self.upstream.slug}/{self.canonical_id}"

    @property
    def retention(self) -> Fact[int] | None:
        return self.own_retention or self.upstream.retention

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
    grid: Mapping[str, tuple[int, GridBasis]] = field(default_factory=dict)  # by name (`snapshot.grid_names`)
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


def keeps_nothing(route: Route) -> bool:
    """Tells whether the provider is known to keep no prompts and answers."""
    return route.retention_days == 0


def is_stored_within(route: Route, places: Collection[str]) -> bool:
    """Tells whether everything that the provider keeps is in these countries; `EU` stands for all of its members."""
    if route.storage is None:
        return False
    return route.storage <= {*places, *(EU_MEMBERS if EU in places else ())}


def is_confidential(route: Route) -> bool:
    """Tells whether the provider is known to serve the route by confidential computing."""
    return route.confidential not in (None, "none")
