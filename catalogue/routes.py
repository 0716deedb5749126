"""The catalogue as routing sees it: immutable values, built once per version by `catalogue.snapshot`."""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal

from .carbon import EnergyFactors
from .pricing import Price

EMBEDDING = "embedding"
EU_MEMBERS = frozenset(
    "AT BE BG CY CZ DE DK EE ES FI FR GR HR HU IE IT LT LU LV MT NL PL PT RO SE SI SK".split()  # noqa: SIM905
)


@dataclass(frozen=True, slots=True)
class Upstream:
    """A provider, with what it takes to call it. `credential` is held in memory only and never printed.

    `refused_parameters` are fields of a request that it answers with an error.
    """

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
    status_override: str
    configured: bool
    credential: str | None = field(repr=False)
    disabled_reason: str = ""  # why staff have taken it out of service; empty: they have not


@dataclass(frozen=True, slots=True)
class Place:
    """Where a route is served from, by UN/LOCODE."""

    code: str
    name: str
    country: str
    eu: bool
    eea: bool
    grid_zone: str = ""  # of its electricity, where that is not the country


@dataclass(frozen=True, slots=True)
class PublishedPricing:
    """A region's prices as the catalogue lists them, per 1,000,000 tokens. None is unknown.

    `tiers`, by ascending threshold, are the prices of prompts of more than `above_prompt_tokens` tokens.
    """

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
    """One offer in one place. `price` is None where it cannot be billed."""

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
    can_stream: bool  # not known to lack it, as the two below
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
        """The resolved 4-part id."""
        return f"{self.upstream.slug}/{self.canonical_id}/{self.locode}"


@dataclass(frozen=True, slots=True)
class Offer:
    """One provider's service of one model: its routes by region label, `global` first, then the default region."""

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
        """The 3-part id."""
        return f"{self.upstream.slug}/{self.canonical_id}"

    def is_disabled(self, today: date) -> bool:
        """Fully disabled by its state, or past the day it retires on."""
        return self.state == "disabled" or (self.retires_on is not None and today > self.retires_on)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole catalogue at one version, with the grid intensities of one hour; they hold until `grid_until`."""

    version: int
    offers: Mapping[tuple[str, str], Offer]
    by_canonical_id: Mapping[str, tuple[Offer, ...]]
    upstreams: Mapping[str, Upstream]
    units_per_eur: Mapping[str, Decimal]
    with_quota: tuple[Route, ...]
    grid_until: datetime | None = None
    serial: int = field(default_factory=itertools.count().__next__)  # tells two snapshots of this worker apart


def is_eu_sovereign(route: Route) -> bool:
    """An EU provider, not controlled from outside and beyond the reach of US law, serving from an EU or EEA region."""
    upstream, place = route.upstream, route.place
    return (
        upstream.eu_native
        and not upstream.us_legal_reach
        and upstream.country in EU_MEMBERS
        and place is not None
        and (place.eu or place.eea)
    )


# The three filters of the catalogue: beyond US law, EU sovereignty, and where a route is; `global` is no place.
JURISDICTIONS: dict[str, Callable[[Route], bool]] = {
    "cloud-act-free": lambda route: not route.upstream.us_legal_reach,
    "eu-sovereign": is_eu_sovereign,
    "eu-hosted": lambda route: route.place is not None and route.place.eu,
}
