"""Admits requests: checks everything that can refuse one on our side, and fixes the terms of its bill.

For automatic routing it finds the routes that can take a request, and the conversation by which to choose among equal
routes.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b
from typing import Any
from uuid import UUID

from django.conf import settings

from accounts import in_flight
from aliases.resolve import Resolution, resolve
from billing.ledger.unsettled import RouteTerms, terms_of
from catalogue.pricing import expected_units
from catalogue.routing import snapshot
from catalogue.routing.model_ids import AUTO
from catalogue.routing.plan import Needs
from catalogue.routing.routes import Route, Snapshot
from gateway.errors import NOTHING_BILLED, InsufficientCredits, InvalidRequest, step
from gateway.ids import generation_id
from gateway.observing.request_events import RequestEvent

from . import estimator
from .authentication import Payer
from .balance_and_budgets import purse_of_account, purses_of_budgets
from .call import Call, Shape
from .dialects import DIALECTS
from .dialects.base import Dialect, encoded
from .max_cost import within_max_cost
from .modality import ADAPTERS, FITTING, NAMES, ShapeAdapter
from .wire_forms.base import WireForm

IMAGES = frozenset({"image_url", "image", "input_image"})
ASKING = frozenset({"system", "developer", "user"})  # any other role answers an earlier turn


@dataclass(frozen=True, slots=True)
class AdmittedRequest:
    """Holds a request that has passed all checks of ours, with the terms of its bill.

    `call` is the client's call, `upstream_call` the same in the shape of the route. `attempted` lists the slugs of the
    providers tried so far; the last serves the current route.
    """

    form: WireForm
    call: Call
    upstream_call: Call
    dialect: Dialect
    payer: Payer
    resolution: Resolution
    terms: RouteTerms
    attempted: tuple[str, ...]
    event: RequestEvent
    fallback_reason: str | None = None
    estimated_prompt: int | None = None  # tokens; set once the content has been dropped
    created: int = field(default_factory=lambda: int(time.time()))
    started: float = field(default_factory=time.monotonic)

    @property
    def route(self) -> Route:
        return self.resolution.plan.route

    @property
    def id(self) -> UUID:
        return self.event.id

    @property
    def public_id(self) -> str:
        """Returns the generation id as the client sees it."""
        return generation_id(self.id)

    @property
    def answer_id(self) -> str:
        """Returns the generation id with the prefix that the wire form uses in answers."""
        return generation_id(self.id, self.form.id_prefix)

    @property
    def prompt_tokens(self) -> int:
        """Estimates the prompt's tokens, for when no upstream counts them."""
        return estimator.prompt_tokens(self.call) if self.estimated_prompt is None else self.estimated_prompt

    def without_content(self) -> "AdmittedRequest":
        """Frees the content of both calls and returns a copy that keeps the estimate of the prompt's tokens."""
        kept = replace(self, estimated_prompt=self.prompt_tokens)
        self.call.drop_content()
        self.upstream_call.drop_content()
        return kept

    @property
    def adapter(self) -> ShapeAdapter | None:
        """Returns the adapter that turns answers back into the form's shape; None if the route has that shape."""
        return ADAPTERS.get((self.form.shape, self.route.modality))


@dataclass(slots=True)
class CallFitter:
    """Fits a call to a route, and holds the route's form, the call in the route's shape, and the terms of the bill."""

    form: WireForm
    call: Call
    catalogue: Snapshot
    currency: str
    upstream_call: Call = field(init=False)
    terms: RouteTerms = field(init=False)

    def translate(self, route: Route) -> None:
        """Translates the call for the route. Raises InvalidRequest if the route cannot take it."""
        self.form = self.form.over(route)
        self.upstream_call = upstream_call_of(self.form, self.call, route)

    def limit_cost(self, route: Route, payer: Payer) -> None:
        """Raises MaxCostExceeded if the call could cost more on the route than a policy or the client allows."""
        if (payer.policies or self.call.max_cost is not None) and not self.call.is_count:
            self.upstream_call = within_max_cost(self.call, self.upstream_call, route, self.terms, payer)

    def fix_terms(self, route: Route) -> None:
        """Fixes the terms of the bill. Raises UnpricedRoute if a price or an exchange rate is unknown."""
        self.terms = terms_of(self.catalogue, route, self.currency)


def admit(form: WireForm, call: Call, payer: Payer, event: RequestEvent) -> AdmittedRequest:
    """Checks a request in this order: balance, routing, modality, fields, credentials, price, max_cost, reservation.

    Raises the ApiError of the first check that fails. The reservation fails if the balance does not cover the request
    in addition to those in flight; a request that only counts tokens needs none.
    """
    # 1. Check the balance.
    if payer.balance <= 0:
        raise InsufficientCredits
    # 2. Plan the route. This also translates the call for it and fixes the terms, each in its place of the order.
    with step("routing the request", NOTHING_BILLED):
        fitter = CallFitter(form, call, snapshot.current(), payer.currency)
        if call.shape == Shape.EMBEDDING and call.model.startswith(f"{AUTO}/"):
            raise InvalidRequest.of_field(
                "model", "must be a full model id: automatic routing is not available for embeddings."
            )
        resolution = resolve(
            call.model,
            account_id=payer.account_id,
            needs=needs_of(form, call, payer, fitter),
            snapshot=fitter.catalogue,
            now=datetime.now(UTC),
            event=event,
        )
        fitter.limit_cost(resolution.plan.route, payer)
    upstream = resolution.plan.route.upstream
    admitted = AdmittedRequest(
        form=fitter.form,
        call=call,
        upstream_call=fitter.upstream_call,
        dialect=DIALECTS[upstream.dialect],
        payer=payer,
        resolution=resolution,
        terms=fitter.terms,
        attempted=(upstream.slug,),
        event=event,
        fallback_reason=resolution.plan.fallback_reason,
    )
    # 3. Reserve its cost.
    if not call.is_count:
        _reserve(admitted)
    return admitted


def _reserve(admitted: AdmittedRequest) -> None:
    """Reserves the cost of the prompt and an ordinary answer while the request runs (docs/operations.md#overdrafts).

    It is reserved in the account's balance and in each budget. Raises BudgetExceeded if one is spent, TooManyInFlight
    if one does not cover all reservations, and the error of a purse that is empty by now.
    """
    call, payer, terms, event = admitted.call, admitted.payer, admitted.terms, admitted.event
    purses = [purse_of_account(payer)]
    if payer.policies:
        purses += purses_of_budgets(payer)
    in_flight.require_room(purses[0].name)
    ordinary = settings.GATEWAY_EXPECTED_ANSWER_TOKENS
    answer = min(ordinary, call.max_tokens or ordinary) * call.choices
    prompt = estimator.tokens_in(event.body_bytes)
    units = expected_units(terms.price, terms.rates, prompt, answer) if ordinary else 0
    is_fresh = not units or time.monotonic() - payer.read_at < in_flight.FRESH_SECONDS
    is_estimated = False
    for purse in purses:
        if is_fresh and in_flight.begin(event, purse, units):
            continue
        if units and not is_estimated:  # estimate again without pictures and files, which are in the body's bytes
            units, is_estimated = expected_units(terms.price, terms.rates, admitted.prompt_tokens, answer), True
        if not (is_fresh and in_flight.begin(event, purse, units)):
            with step("checking the balance", NOTHING_BILLED):
                in_flight.begin_within(event, purse, units)


def readmit(admitted: AdmittedRequest, route: Route, *, reason: str) -> AdmittedRequest:
    """Admits the request on `route`, the next of its plan's `others`, after the last route failed for `reason`.

    The reservation is renewed, since the request may cost more there. Raises like `admit`.
    """
    with step("routing the request", NOTHING_BILLED):
        fitter = CallFitter(admitted.form, admitted.call, snapshot.current(), admitted.payer.currency)
        fitter.translate(route)
        fitter.fix_terms(route)
        fitter.limit_cost(route, admitted.payer)
    admitted.event.route, admitted.event.provider = route.id, route.upstream.slug
    readmitted = replace(
        admitted,
        form=fitter.form,
        upstream_call=fitter.upstream_call,
        dialect=DIALECTS[route.upstream.dialect],
        resolution=replace(admitted.resolution, plan=replace(admitted.resolution.plan, route=route)),
        terms=fitter.terms,
        attempted=(*admitted.attempted, route.upstream.slug),
        fallback_reason=admitted.fallback_reason or reason,
    )
    in_flight.end(admitted.event)
    _reserve(readmitted)
    return readmitted


def needs_of(form: WireForm, call: Call, payer: Payer, fitter: CallFitter | None = None) -> Needs:
    """Returns what a call needs of its route. A `fitter` is given if the route is going to be called."""
    return Needs(
        FITTING[call.shape],
        NAMES[call.shape],
        partial(unable_routes, form, call),
        partial(conversation, call, payer),
        None if fitter is None else fitter.translate,
        None if fitter is None else fitter.fix_terms,
        may_probe=not call.is_count,
        policies=payer.policies,
        currency=payer.currency,
    )


def upstream_call_of(form: WireForm, call: Call, route: Route) -> Call:
    """Translates the call into the shape that the route takes. `form` is the one that serves over this route.

    Raises InvalidRequest if the route cannot take the call.
    """
    if call.stream and not route.can_stream:
        raise InvalidRequest.of_field("stream", f"must be false: model {route.id!r} cannot stream.")
    upstream_call = form.upstream_call(call, route)
    adapter = ADAPTERS.get((form.shape, route.modality))
    if adapter is not None:
        upstream_call = adapter.call(upstream_call)
    DIALECTS[route.upstream.dialect].check(upstream_call, route)
    return upstream_call


def unable_routes(form: WireForm, call: Call, routes: Sequence[Route]) -> dict[int, InvalidRequest]:
    """Returns why routes cannot take the call, by region id.

    A route cannot take it if its model is known to lack tools or images that the call needs, or if its dialect cannot
    translate the call. The translation is tried once for all regions of an offer.
    """
    wants_tools = bool(call.body.get("tools") or call.body.get("functions"))
    shows_images = any(block["type"] in IMAGES for block in _blocks(call.body.get("messages", ())))
    unable: dict[int, InvalidRequest] = {}
    translated: set[str] = set()
    for route in routes:
        try:
            upstream_call = upstream_call_of(form.over(route), call, route)
            if wants_tools and not route.can_call_functions:
                raise InvalidRequest.of_field("tools", f"must be absent: model {route.id!r} takes none.")
            if shows_images and not route.can_take_images:
                raise InvalidRequest.of_field("messages", f"must be without images: model {route.id!r} takes none.")
            if route.upstream.slug not in translated:
                DIALECTS[route.upstream.dialect].check_form(upstream_call, route)
                translated.add(route.upstream.slug)
        except InvalidRequest as error:
            unable[route.region_id] = error
    return unable


def conversation(call: Call, payer: Payer) -> bytes | None:
    """Returns 32 bytes that identify the owner of a prompt cache, the same in every process; None for a single turn.

    They are a hash of the API key with the client's `prompt_cache_key`, or else with the beginning of the conversation.
    A request that only counts tokens never gets None: equal routes take turns at single turns, and it would use up the
    turn of the request that follows it.
    """
    messages = call.body.get("messages", ())
    shared: dict[str, Any]
    if cache_key := call.body.get("prompt_cache_key"):
        shared = {"prompt_cache_key": cache_key}
    elif call.is_count or any(message["role"] not in ASKING for message in messages):
        shared = {"messages": list(_beginning(messages))}
    else:
        return None
    return blake2b(payer.key_id.bytes + encoded(shared), digest_size=32).digest()


def _blocks(messages: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for message in messages:
        if isinstance(content := message.get("content"), list):
            yield from content


def _beginning(messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yields the roles and contents up to the first user's message, without `cache_control`.

    Clients move these marks on with each turn, and may send a text that has lost its mark as a plain string.
    """
    for message in messages:
        content = message.get("content") or []
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        bare = [{name: value for name, value in block.items() if name != "cache_control"} for block in blocks]
        yield message["role"], bare
        if message["role"] == "user":
            return
