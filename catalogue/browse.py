"""What the Models page reads: what the API lists, searched; for staff also what is not served, and why."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from . import listing_cache
from .carbon import carbon_per_token
from .jurisdiction import is_eu_sovereign
from .listing import Info, View, listed
from .model_ids import AUTO
from .models import WITH_ENDPOINT, Status
from .pricing import MILLION, rates_between
from .routes import EMBEDDING, Offer, PublishedPricing, Route, Snapshot

AUTO_NAME = "Automatic routing"
MAIN_PRICES = (("Prompt", "prompt"), ("Completion", "completion"))
FURTHER_PRICES = (
    ("Cache read", "cache_read"),
    ("Cache write", "cache_write"),
    ("Cache write, 1 hour", "cache_write_1h"),
    ("Prompt in a batch", "batch_prompt"),
    ("Completion in a batch", "batch_completion"),
)
Served = tuple[Offer, list[Route]]


@dataclass(frozen=True, slots=True)
class Search:
    """What is looked for: each word in id, name or provider, in lowercase; a provider's slug or `auto`; empty is any.

    `everything` also finds what is not served now.
    """

    words: tuple[str, ...] = ()
    provider: str = ""
    everything: bool = False

    def finds(self, *texts: str) -> bool:
        """Whether every word occurs in what these texts say."""
        text = " ".join(texts).lower()
        return all(word in text for word in self.words)


@dataclass(frozen=True, slots=True)
class RegionLine:
    """A route in the list: grams of CO2e per 1,000,000 output tokens (None: unknown), and why it is not served."""

    route: Route
    carbon: Decimal | None
    is_eu_sovereign: bool
    troubles: Sequence[str]

    @property
    def currency(self) -> str:
        """Of the prices; empty where none is known."""
        return self.route.published.currency if self.route.published else ""

    @property
    def prompt(self) -> Decimal | None:
        """Price per 1,000,000 tokens; None is unknown."""
        return self.route.published.prompt if self.route.published else None

    @property
    def completion(self) -> Decimal | None:
        """Price per 1,000,000 tokens; None is unknown."""
        return self.route.published.completion if self.route.published else None

    @property
    def completes(self) -> bool:
        """Whether there is anything that a completion price could be for: embeddings have none."""
        return self.route.modality != EMBEDDING or self.completion is not None

    @property
    def further_prices(self) -> Iterator[tuple[str, Decimal]]:
        """What else has a price per 1,000,000 tokens, and the price; last those of longer prompts."""
        published = self.route.published
        if published is not None:
            yield from _stated(published, FURTHER_PRICES)
            for tier in published.tiers:
                for label, price in _stated(tier, MAIN_PRICES + FURTHER_PRICES):
                    yield f"{label}, prompts above {tier.above_prompt_tokens:,} tokens", price


def _stated(published: PublishedPricing, names: Iterable[tuple[str, str]]) -> Iterator[tuple[str, Decimal]]:
    for label, name in names:
        price: Decimal | None = getattr(published, name)
        if price is not None:
            yield label, price


@dataclass(frozen=True, slots=True)
class ModelLine:
    """An offer in the list. `lead` is the region that its id stands for, and that its figures are of."""

    offer: Offer
    id: str
    lead: RegionLine
    regions: Sequence[RegionLine]
    status: Status
    troubles: Sequence[str]

    @property
    def is_pinned(self) -> bool:
        """Whether the id names a region because the model's default region is not among those shown."""
        return self.id != self.offer.id

    @property
    def has_endpoint(self) -> bool:
        """Whether any endpoint of the gateway serves models of this kind: a request of others is refused."""
        return self.offer.modality in WITH_ENDPOINT


@dataclass(frozen=True, slots=True)
class AutoLine:
    """An `auto/…` entry. Ranges are (least, most): EUR, and grams of CO2e, per 1,000,000 tokens; None is unknown."""

    info: Info
    context_length: int | None
    prompt: tuple[Decimal, Decimal] | None
    completion: tuple[Decimal, Decimal] | None
    carbon: tuple[Decimal, Decimal] | None


def providers(snapshot: Snapshot, view: View, *, everything: bool) -> dict[str, str]:
    """Slug to name of every provider that has something in the list, before any filter."""
    unfiltered = View(view.today, view.held)
    offers = snapshot.offers.values() if everything else (offer for offer, _ in listed(snapshot, unfiltered))
    names = {offer.upstream.slug: offer.upstream.name for offer in offers}
    return dict(sorted(names.items(), key=lambda item: item[1].lower()))


def find_models(snapshot: Snapshot, view: View, search: Search) -> list[Served]:
    """The offers found, in the order of their ids, each with those of its routes that pass the filters."""
    offers = _all(snapshot, view) if search.everything else listed(snapshot, view)
    return [
        (offer, routes)
        for offer, routes in offers
        if search.provider in ("", offer.upstream.slug)
        and search.finds(offer.id, offer.name, offer.upstream.name, offer.upstream.slug)
    ]


def find_autos(snapshot: Snapshot, view: View, search: Search) -> list[Info]:
    """The `auto/…` entries found, in the order of their ids."""
    if search.provider not in ("", AUTO):
        return []
    return [info for info in listing_cache.autos(snapshot, view) if search.finds(info["id"], info["name"], AUTO_NAME)]


def model_line(snapshot: Snapshot, view: View, served: Served, status_of: Callable[[str, str], Status]) -> ModelLine:
    """How an offer is shown. `status_of` tells a provider's status from its slug and its staff override."""
    offer, routes = served
    regions = [_region_line(snapshot, view, route) for route in routes]
    default = next((line for line in regions if line.route.locode == offer.default_locode), None)
    lead = default or regions[0]
    shared = [trouble for trouble in lead.troubles if all(trouble in line.troubles for line in regions)]
    return ModelLine(
        offer=offer,
        id=offer.id if default else lead.route.id,
        lead=lead,
        regions=regions,
        status=status_of(offer.upstream.slug, offer.upstream.status_override),
        troubles=[*_troubles(offer, view.today), *shared],
    )


def auto_line(info: Info) -> AutoLine:
    """How an `auto/…` entry is shown."""
    pricing: Mapping[str, Any] = info["auto_routing"].get("pricing_range", {})
    carbon: Mapping[str, Any] = info["auto_routing"].get("carbon_range", {})
    return AutoLine(
        info=info,
        context_length=info.get("context_length"),
        prompt=_range(pricing.get("prompt_per_1m_tokens")),
        completion=_range(pricing.get("completion_per_1m_tokens")),
        carbon=_range(carbon.get("carbon_per_token_gco2e"), times=MILLION),
    )


def _all(snapshot: Snapshot, view: View) -> Iterator[Served]:
    for _, offer in sorted(snapshot.offers.items()):
        if view.modality is None or offer.modality == view.modality:
            routes = [route for route in offer.routes.values() if view.passes(route)]
            if routes:
                yield offer, routes


def _region_line(snapshot: Snapshot, view: View, route: Route) -> RegionLine:
    grams = carbon_per_token(route.energy)
    return RegionLine(
        route=route,
        carbon=None if grams is None else grams * MILLION,
        is_eu_sovereign=is_eu_sovereign(route),
        troubles=list(_troubles_of_route(snapshot, view, route)),
    )


def _troubles(offer: Offer, today: date) -> Iterator[str]:
    if not offer.upstream.configured:
        yield "not configured"
    if offer.state == "disabled":
        yield "disabled"
    elif offer.is_disabled(today):
        yield f"retired after {offer.retires_on:%Y-%m-%d}"
    if offer.state == "unavailable":
        yield f"unavailable: {offer.unavailable_reason}" if offer.unavailable_reason else "unavailable"


def _troubles_of_route(snapshot: Snapshot, view: View, route: Route) -> Iterator[str]:
    if not route.is_served:
        yield "disabled"
    if route.region_id in view.held:
        yield "held until midnight UTC"
    if route.price is None:
        yield "no price"
    elif rates_between(route.price.currency, "EUR", snapshot.units_per_eur) is None:
        yield f"no exchange rate for {route.price.currency}"


def _range(found: Mapping[str, float] | None, times: Decimal = Decimal(1)) -> tuple[Decimal, Decimal] | None:
    return None if found is None else (Decimal(str(found["min"])) * times, Decimal(str(found["max"])) * times)
