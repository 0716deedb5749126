"""Prepares routes for pages: prices, footprint, status, problems; and suggests a model to try."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from types import MappingProxyType
from uuid import UUID

from django.conf import settings
from django.utils import timezone

from accounts.models import Account
from accounts.policies import policies_of_account, policies_of_key
from billing.models import Generation, RequestFailure
from billing.usage.route_hours import RouteFigures, RouteKey
from catalogue.listing import View, auto_info, is_allowed, listed, servable, served_now
from catalogue.models import PER_MILLION, WITH_ENDPOINT, Modality, Status
from catalogue.pricing import MILLION, carbon_per_token, rates_between
from catalogue.routing import health, quota, snapshot
from catalogue.routing.health import RecentCalls
from catalogue.routing.model_ids import AUTO
from catalogue.routing.routes import EMBEDDING, JURISDICTIONS, Offer, PublishedPricing, Route, Snapshot, is_eu_sovereign
from catalogue.routing.selection import cost_in_eur
from gateway.errors import ServiceUnavailable
from gateway.server.turns import take_turns

from .speed import NOTHING_MEASURED, RouteSpeed, speed_of

CHATS = frozenset({Generation.Endpoint.CHAT, Generation.Endpoint.RESPONSES, Generation.Endpoint.MESSAGES})
PLACEHOLDER_MODEL = "provider/creator/model"
# Prices that have a column of their own, and further ones, which are listed if the provider states them.
MAIN_PRICES = {"prompt": "Prompt", "completion": "Completion", "cache_read": "Cached prompt"}
FURTHER_PRICES = {
    "cache_write": "Cache write",
    "cache_write_1h": "Cache write, 1 hour",
    "batch_prompt": "Prompt in a batch",
    "batch_completion": "Completion in a batch",
}
FIELD_OF_PRICE = re.compile(rf"(?:tiers\[(?P<above>\d+)\]\.)?(?P<name>\w+){PER_MILLION}")


@dataclass(frozen=True, slots=True)
class ShownPrice:
    """Holds a price per 1,000,000 tokens, in the account's currency if possible. `title` follows the exact amount."""

    amount: Decimal
    currency: str
    title: str


@dataclass(frozen=True, slots=True)
class RouteLine:
    """Holds a route as the account sees it. `rate` converts the route's currency to the account's; None is unknown."""

    offer: Offer
    route: Route
    currency: str
    rate: Decimal | None
    status: Status
    calls: RecentCalls
    problems: tuple[str, ...]
    speed: RouteSpeed = NOTHING_MEASURED

    @property
    def shown_status(self) -> str:
        return health.shown_status(self.offer.upstream.status_override, self.calls.minutes)

    @property
    def is_eu_sovereign(self) -> bool:
        return is_eu_sovereign(self.route)

    @property
    def is_eu_hosted(self) -> bool:
        return JURISDICTIONS["eu-hosted"](self.route)

    @property
    def has_endpoint(self) -> bool:
        return self.offer.modality in WITH_ENDPOINT

    @property
    def is_default(self) -> bool:
        return self.route.locode == self.offer.default_locode and len(self.offer.routes) > 1

    @property
    def carbon(self) -> Decimal | None:
        """Returns gCO2e per 1,000,000 output tokens; None is unknown."""
        grams = carbon_per_token(self.route.energy)
        return None if grams is None else grams * MILLION

    @property
    def energy(self) -> Decimal | None:
        per_token = self.route.energy.per_token_wh
        return None if per_token is None else per_token * MILLION

    @property
    def own_currency(self) -> str:
        return self.route.published.currency if self.route.published else ""

    @property
    def is_converted(self) -> bool:
        return self.rate is not None and self.own_currency != self.currency

    @property
    def prompt(self) -> ShownPrice | None:
        return self._price(self.route.published, "prompt")

    @property
    def completion(self) -> ShownPrice | None:
        # An embedding has no completion, whose price a catalogue may state as 0.
        price = self._price(self.route.published, "completion")
        is_none = self.route.modality == EMBEDDING and price is not None and not price.amount
        return None if is_none else price

    @property
    def cached_prompt(self) -> ShownPrice | None:
        return self._price(self.route.published, "cache_read")

    @property
    def completes(self) -> bool:
        return self.route.modality != EMBEDDING or self.completion is not None

    @property
    def further_prices(self) -> Iterator[tuple[str, ShownPrice]]:
        """Yields labels and prices of FURTHER_PRICES, and then all prices for longer prompts."""
        published = self.route.published
        if published is not None:
            yield from self._stated(published, FURTHER_PRICES)
            for tier in published.tiers:
                for label, price in self._stated(tier, MAIN_PRICES | FURTHER_PRICES):
                    yield _of_tier(label, tier.above_prompt_tokens), price

    def comparable(self, price: ShownPrice | None) -> ShownPrice | None:
        return price if price is not None and price.currency == self.currency else None

    def _stated(self, published: PublishedPricing, names: Mapping[str, str]) -> Iterator[tuple[str, ShownPrice]]:
        for name, label in names.items():
            price = self._price(published, name)
            if price is not None:
                yield label, price

    def _price(self, published: PublishedPricing | None, name: str) -> ShownPrice | None:
        price: Decimal | None = None if published is None else getattr(published, name)
        if price is None:
            return None
        own = self.own_currency
        if self.rate is None:
            return ShownPrice(price, own, f" {own}, no exchange rate")
        if not self.is_converted:
            return ShownPrice(price, own, f" {own}")
        rate = f"1 {own} = {self.rate.normalize():f} {self.currency}"
        return ShownPrice(price * self.rate, self.currency, f" {self.currency} for {price.normalize():f} {own}, {rate}")


def price_label(field: str) -> str:
    """Returns the label of a field of `catalogue.price_history`."""
    found = FIELD_OF_PRICE.fullmatch(field)
    if found is None:
        return field
    label = (MAIN_PRICES | FURTHER_PRICES)[found["name"]]
    return _of_tier(label, int(found["above"])) if found["above"] else label


def _of_tier(label: str, above: int) -> str:
    return f"{label}, prompts above {above:,} tokens"


def lines_of(
    routes: Iterable[tuple[Offer, Route]],
    catalogue: Snapshot,
    view: View,
    currency: str,
    recent_calls: Mapping[str, RecentCalls],
    figures: Mapping[RouteKey, RouteFigures] = MappingProxyType({}),
) -> Iterator[RouteLine]:
    """Makes the lines of routes, with prices in `currency`."""
    rates: dict[str, Decimal | None] = {}
    for offer, route in routes:
        take_turns()
        own = route.published.currency if route.published else ""
        if own not in rates:
            known = rates_between(own, currency, catalogue.units_per_eur)
            rates[own] = None if known is None else known.account
        calls = recent_calls.get(offer.upstream.slug, RecentCalls())
        measured = figures.get(RouteKey(offer.upstream.slug, offer.canonical_id, route.locode))
        yield RouteLine(
            offer=offer,
            route=route,
            currency=currency,
            rate=rates[own],
            status=health.status_of(offer.upstream.status_override, calls.minutes)[0],
            calls=calls,
            problems=tuple(
                dict.fromkeys([*_problems_of_offer(offer, view.today), *_problems_of_route(catalogue, view, route)])
            ),
            speed=NOTHING_MEASURED if measured is None else speed_of(measured),
        )


def _problems_of_offer(offer: Offer, today: date) -> Iterator[str]:
    if not offer.upstream.configured:
        yield "not configured"
    if offer.state == "disabled":
        yield "disabled"
    elif offer.is_disabled(today):
        yield f"retired after {offer.retires_on:%Y-%m-%d}"
    if offer.state == "unavailable":
        yield f"unavailable: {offer.unavailable_reason}" if offer.unavailable_reason else "unavailable"


def _problems_of_route(catalogue: Snapshot, view: View, route: Route) -> Iterator[str]:
    if not route.is_served:
        yield "disabled"
    if route.region_id in view.held:
        yield "held until midnight UTC"
    if route.price is None:
        yield "no price"
    elif rates_between(route.price.currency, "EUR", catalogue.units_per_eur) is None:
        yield f"no exchange rate for {route.price.currency}"


def listed_models(requests: Iterable[Generation | RequestFailure]) -> set[str]:
    """Returns the canonical ids of the requests' models that have a page now."""
    if not snapshot.is_loaded():
        return set()
    catalogue, today = snapshot.current(), timezone.now().date()
    view = View(today, quota.held(catalogue.with_quota, today))
    wanted = {request.model for request in requests} & catalogue.by_canonical_id.keys()
    return {id_ for id_ in wanted if any(servable(offer, view) for offer in catalogue.by_canonical_id[id_])}


def view_of(catalogue: Snapshot, now: datetime, account: Account | None = None, key_id: UUID | None = None) -> View:
    """Returns the view of what is served now and, if it is for a key or an account, what their policies allow."""
    today = quota.day_of(now)
    view = View(today, quota.held(catalogue.with_quota, today))
    if account is None:
        return view
    policies = policies_of_key(key_id) if key_id else policies_of_account(account.pk)
    return replace(view, policies=policies, currency=account.currency)


def other_routes(failure: RequestFailure, account: Account, now: datetime) -> list[RouteLine]:
    """Returns the other routes of a failed request's model that its key may use now, in automatic routing's order."""
    if not snapshot.is_loaded():
        return []
    catalogue = snapshot.current()
    view = view_of(catalogue, now, account, failure.key_id)
    auto = auto_info(catalogue, failure.model, view, settings.GATEWAY_AUTO_OBJECTIVE)
    preferred = [] if auto is None else auto["auto_routing"]["candidates"]
    routes = [
        (offer, route)
        for offer in catalogue.by_canonical_id.get(failure.model, ())
        for route in servable(offer, view)
        if route.id != failure.route_id and is_allowed(catalogue, view, route)
    ]
    routes.sort(key=lambda found: preferred.index(found[1].id) if found[1].id in preferred else len(preferred))
    return list(lines_of(routes, catalogue, view, account.currency, health.recent_calls(now)))


def model_for_example(newest: Iterable[Generation | RequestFailure], account: Account, now: datetime) -> str:
    """Returns the model of an account's newest request that is a chat and would be answered now, or one to try."""
    try:
        catalogue = snapshot.current()
    except ServiceUnavailable:
        return PLACEHOLDER_MODEL
    view = view_of(catalogue, now, account)
    for record in newest:
        offer = catalogue.offers.get((record.provider, record.model)) if isinstance(record, Generation) else None
        if record.endpoint not in CHATS or offer is None or offer.modality != Modality.CHAT:
            continue
        if _answers(offer, catalogue, view):
            return offer.id
    return model_to_try(now, account)


def model_to_try(now: datetime, account: Account | None = None, key_id: UUID | None = None) -> str:
    """Returns a chat model that would answer now: the cheapest EU-sovereign one as `auto/…`, else any offer's id.

    The policies of the account, or of its key, allow the model.
    """
    try:
        catalogue = snapshot.current()
    except ServiceUnavailable:
        return PLACEHOLDER_MODEL
    view = view_of(catalogue, now, account, key_id)
    sovereign = [
        (cost, offer.canonical_id)
        for offer, routes in listed(
            catalogue, replace(view, jurisdiction="eu-sovereign", modality=Modality.CHAT, policies=())
        )
        for route in routes
        if (cost := cost_in_eur(catalogue.units_per_eur, route)) is not None
        and is_allowed(catalogue, view, route, f"{AUTO}/{offer.canonical_id}")
    ]
    if sovereign:
        return f"{AUTO}/{min(sovereign)[1]}"
    for offer in catalogue.offers.values():
        if offer.modality == Modality.CHAT and _answers(offer, catalogue, view):
            return offer.id
    return PLACEHOLDER_MODEL


def _answers(offer: Offer, catalogue: Snapshot, view: View) -> bool:
    """Tells whether a request for an offer's id, which its default region serves, would be answered."""
    default = (route for route in served_now(offer, view) if route.locode == offer.default_locode)
    return any(route.price is not None and is_allowed(catalogue, view, route) for route in default)
