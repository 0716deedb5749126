"""Admission: all that can refuse a request on our side, and the freezing of the terms of its bill.

Automatic routing asks here which routes can take a request, and which conversation stays on one of equal ones.
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
from aliases.resolve import Purpose, Resolution, resolve
from billing.ledger.unsettled import Terms, terms_of
from catalogue.pricing import expected_units
from catalogue.routing import routes as routing
from catalogue.routing import snapshot
from catalogue.routing.routes import AUTO, Route
from gateway.errors import NOTHING_BILLED, InsufficientCredits, InvalidRequest, step
from gateway.ids import generation_id
from gateway.observing.request_events import RequestEvent

from . import estimator
from .authentication import Payer, balance_of
from .call import Call, Shape
from .dialects import DIALECTS
from .dialects.base import Dialect, encoded
from .modality import ADAPTERS, FITTING, NAMES, ShapeAdapter
from .wire_forms.base import WireForm

IMAGES = frozenset({"image_url", "image", "input_image"})
ASKING = frozenset({"system", "developer", "user"})  # whoever else speaks answers an earlier turn


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request that nothing of ours refuses any more, its terms frozen.

    `call` is the client's, `upstream_call` the same in the shape of its route. `attempted`: the providers tried, the
    route's own last.
    """

    form: WireForm
    call: Call
    upstream_call: Call
    dialect: Dialect
    payer: Payer
    resolution: Resolution
    terms: Terms
    attempted: tuple[str, ...]
    event: RequestEvent
    fallback_reason: str | None = None
    estimated_prompt: int | None = None  # tokens, where the content is gone
    created: int = field(default_factory=lambda: int(time.time()))
    started: float = field(default_factory=time.monotonic)

    @property
    def route(self) -> Route:
        return self.resolution.route

    @property
    def id(self) -> UUID:
        return self.event.id

    @property
    def public_id(self) -> str:
        """The generation id as the client sees it."""
        return generation_id(self.id)

    @property
    def answer_id(self) -> str:
        """The same, as the answer holds it."""
        return generation_id(self.id, self.form.id_prefix)

    @property
    def prompt_tokens(self) -> int:
        """An estimate, for where no upstream counts."""
        return estimator.prompt_tokens(self.call) if self.estimated_prompt is None else self.estimated_prompt

    def without_content(self) -> "Admitted":
        """The same, its content freed."""
        kept = replace(self, estimated_prompt=self.prompt_tokens)
        self.call.drop_content()
        self.upstream_call.drop_content()
        return kept

    @property
    def adapter(self) -> ShapeAdapter | None:
        """The way of answers back to the form's shape; None where the route has it."""
        return ADAPTERS.get((self.form.shape, self.route.modality))


def admit(form: WireForm, call: Call, payer: Payer, event: RequestEvent) -> Admitted:
    """Refuses in this order: balance, routing, modality, what the dialect cannot pass, credentials, price, and a
    balance that does not cover it beside the requests in flight."""
    if payer.balance <= 0:
        raise InsufficientCredits
    with step("routing the request", NOTHING_BILLED):
        catalogue = snapshot.current()
        if call.shape == Shape.EMBEDDING and call.model.startswith(f"{AUTO}/"):
            raise InvalidRequest.of_field("model", "must name a provider: embeddings have no automatic routing.")
        resolution = resolve(
            call.model,
            account_id=payer.account_id,
            purpose=purpose_of(form, call, payer),
            snapshot=catalogue,
            now=datetime.now(UTC),
            event=event,
        )
        route = resolution.route
        event.route, event.provider = route.id, route.upstream.slug
        form = form.over(route)
        upstream_call = upstream_call_of(form, call, route)
        routing.require_configured(route)
        terms = terms_of(catalogue, route, payer.currency)
    admitted = Admitted(
        form=form,
        call=call,
        upstream_call=upstream_call,
        dialect=DIALECTS[route.upstream.dialect],
        payer=payer,
        resolution=resolution,
        terms=terms,
        attempted=(route.upstream.slug,),
        event=event,
    )
    if not call.counts:
        _reserve(admitted)
    return admitted


def _reserve(admitted: Admitted) -> None:
    """Counts it in flight, with the cost of its prompt and an ordinary answer (docs/operations.md#overdrafts)."""
    call, payer, terms, event = admitted.call, admitted.payer, admitted.terms, admitted.event
    ordinary = settings.GATEWAY_EXPECTED_ANSWER_TOKENS
    answer = min(ordinary, call.max_tokens or ordinary) * call.choices
    prompt = estimator.tokens_in(event.body_bytes)
    units = expected_units(terms.price, terms.rates, prompt, answer) if ordinary else 0
    is_fresh = not units or time.monotonic() - payer.read_at < in_flight.FRESH_SECONDS
    if is_fresh and in_flight.begin(event, payer.account_id, units, payer.balance):
        return
    if units:  # pictures and files are bytes of a body, but not of a prompt
        units = expected_units(terms.price, terms.rates, admitted.prompt_tokens, answer)
    if not (is_fresh and in_flight.begin(event, payer.account_id, units, payer.balance)):
        with step("checking the balance", NOTHING_BILLED):
            in_flight.begin_within(event, payer.account_id, units, payer.balance, balance_of)


def readmit(admitted: Admitted, route: Route, *, reason: str) -> Admitted:
    """The same request on the next candidate, after the first failed for `reason`. It may cost more there, so its
    reservation is made anew."""
    with step("routing the request", NOTHING_BILLED):
        form = admitted.form.over(route)
        upstream_call = upstream_call_of(form, admitted.call, route)
        terms = terms_of(snapshot.current(), route, admitted.payer.currency)
    admitted.event.route, admitted.event.provider = route.id, route.upstream.slug
    readmitted = replace(
        admitted,
        form=form,
        upstream_call=upstream_call,
        dialect=DIALECTS[route.upstream.dialect],
        resolution=replace(admitted.resolution, route=route),
        terms=terms,
        attempted=(*admitted.attempted, route.upstream.slug),
        fallback_reason=admitted.fallback_reason or reason,
    )
    in_flight.end(admitted.event)
    _reserve(readmitted)
    return readmitted


def purpose_of(form: WireForm, call: Call, payer: Payer) -> Purpose:
    """The demands of a call on its route."""
    return Purpose(
        FITTING[call.shape],
        NAMES[call.shape],
        partial(refusals, form, call),
        partial(conversation, call, payer),
        may_probe=not call.counts,
    )


def upstream_call_of(form: WireForm, call: Call, route: Route) -> Call:
    """The call in the shape that the route takes; `form` is the one over it. Raises InvalidRequest."""
    routing.require_modality(route, FITTING[call.shape], NAMES[call.shape])
    if call.stream and not route.can_stream:
        raise InvalidRequest.of_field("stream", f"must be false: model {route.id!r} cannot stream.")
    upstream_call = form.upstream_call(call, route)
    adapter = ADAPTERS.get((form.shape, route.modality))
    if adapter is not None:
        upstream_call = adapter.call(upstream_call)
    DIALECTS[route.upstream.dialect].check(upstream_call, route)
    return upstream_call


def refusals(form: WireForm, call: Call, routes: Sequence[Route]) -> dict[int, InvalidRequest]:
    """The refusals of routes that cannot take the call, by region id.

    A model that is known to lack tools or images is passed by, and the call must have a form in the dialect: that takes
    a translation, made once for all regions of an offer.
    """
    wants_tools = bool(call.body.get("tools") or call.body.get("functions"))
    shows_images = any(block["type"] in IMAGES for block in _blocks(call.body.get("messages", ())))
    refused: dict[int, InvalidRequest] = {}
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
        except InvalidRequest as refusal:
            refused[route.region_id] = refusal
    return refused


def conversation(call: Call, payer: Payer) -> bytes | None:
    """The owner of a prompt cache, as 32 bytes that are the same in every process: the key with the client's
    `prompt_cache_key`, else with the beginning of what is said. None for a single turn.

    A count is no turn: it would take that of the request which follows.
    """
    messages = call.body.get("messages", ())
    shared: dict[str, Any]
    if cache_key := call.body.get("prompt_cache_key"):
        shared = {"prompt_cache_key": cache_key}
    elif call.counts or any(message["role"] not in ASKING for message in messages):
        shared = {"messages": list(_beginning(messages))}
    else:
        return None
    return blake2b(payer.key_id.bytes + encoded(shared), digest_size=32).digest()


def _blocks(messages: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for message in messages:
        if isinstance(content := message.get("content"), list):
            yield from content


def _beginning(messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Roles and contents up to the first user's, without the marks of caching, which clients move on with each turn: a
    text that loses its mark may become a string."""
    for message in messages:
        content = message.get("content") or []
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        bare = [{name: value for name, value in block.items() if name != "cache_control"} for block in blocks]
        yield message["role"], bare
        if message["role"] == "user":
            return
