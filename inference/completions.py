"""The conductor: admit, dispatch, deliver, settle (design section 1)."""

import socket
from dataclasses import dataclass
from typing import Any

from django.utils import timezone

from aliases.resolve import resolve
from billing.settlement import settle_shielded
from catalogue import routing, snapshot
from catalogue.pricing import ContradictoryUsage, Usage
from gateway.errors import InsufficientCredits
from gateway.steps import step

from . import estimator
from .admission import Payer
from .answers import chat_answer, output_bytes
from .call import Call
from .deadlines import Deadlines
from .dialects import DIALECTS
from .dialects.base import Reply, UpstreamFault
from .dialects.http import UpstreamCall
from .failures import refusal, refusal_of_status
from .records import Admission, Ending, Outcome, record
from .stream import Metered
from .watch import ClientLeft, ClientWatch
from .wire import metadata_of, usage_of

CHAT_MODALITIES = ("chat", "completion")


@dataclass(frozen=True, slots=True)
class Answer:
    """A settled whole answer."""

    generation_id: str
    body: dict[str, Any]


def admit(call: Call, payer: Payer) -> Admission:
    """Everything that can still refuse, in the contract's order: balance, routing, modality, credentials, price."""
    if payer.balance <= 0:
        raise InsufficientCredits
    with step("routing the request"):
        catalogue = snapshot.current()
        today = timezone.now().date()
        resolution = resolve(call.model, snapshot=catalogue, today=today)
        routing.require_modality(resolution.route, CHAT_MODALITIES, "chat completions")
        routing.require_configured(resolution.route)
        price, rates = routing.require_price(catalogue, resolution.route, payer.currency)
        DIALECTS[resolution.route.upstream.dialect].check(call)
    return Admission(call=call, payer=payer, resolution=resolution, price=price, rates=rates)


def complete(admission: Admission, client: socket.socket | None) -> Answer:
    """A whole answer, settled before it is returned. Raises the refusals of the upstream, and ClientLeft."""
    upstream, watch = _dispatch(admission, client)
    try:
        answer, outcome = _whole(admission, upstream)
    except UpstreamFault as error:
        raise refusal(error, admission.route) from error
    finally:
        watch.stop()
        upstream.close()
    with step("settling the charge"):
        generation = record(admission, outcome)
        settlement = settle_shielded(generation)
    if outcome.ending == Ending.COST_UNRESOLVABLE:
        raise refusal(ContradictoryUsage(), admission.route)
    report = {"usage": usage_of(generation, settlement), "gateway_metadata": metadata_of(generation)}
    return Answer(admission.public_id, answer | report)


def stream(admission: Admission, client: socket.socket | None) -> Metered:
    """A stream that has its first output. Raises as `complete`."""
    upstream, watch = _dispatch(admission, client)
    decoder = DIALECTS[admission.route.upstream.dialect].decoder(admission.call)
    return Metered(admission, upstream, decoder, watch).primed()


def _dispatch(admission: Admission, client: socket.socket | None) -> tuple[UpstreamCall, ClientWatch]:
    """Calls the upstream and returns once it has answered with success; the client is watched from the start."""
    route = admission.route
    dialect = DIALECTS[route.upstream.dialect]
    with step("preparing the upstream request"):
        request = dialect.request(admission.call, route)
    upstream = UpstreamCall(request, Deadlines())
    watch = ClientWatch(client, lambda: upstream.abort(ClientLeft()))
    try:
        upstream.open()
        if not 200 <= upstream.status < 300:
            words = dialect.error_message(upstream.read_all()) if upstream.status >= 400 else ""
            raise refusal_of_status(upstream.status, words, route)
    except BaseException as error:
        watch.stop()
        upstream.close()
        if isinstance(error, UpstreamFault):
            raise refusal(error, route) from error
        raise
    return upstream, watch


def _whole(admission: Admission, upstream: UpstreamCall) -> tuple[dict[str, Any], Outcome]:
    """Reads a whole answer and what it used. Contradictory usage leaves the answer empty."""
    first = upstream.read()
    upstream.deadlines.whole_answer()
    body = first + upstream.read_all() if first else first
    try:
        reply = DIALECTS[admission.route.upstream.dialect].reply(body, admission.call)
    except ContradictoryUsage:
        return {}, Outcome(_estimate(admission, 0), Ending.COST_UNRESOLVABLE, usage_estimated=True)
    answer = chat_answer(reply.body, id=admission.public_id, created=admission.created, model=admission.route.id)
    return answer, _outcome(admission, reply, answer)


def _outcome(admission: Admission, reply: Reply, answer: dict[str, Any]) -> Outcome:
    if reply.usage is not None:
        return Outcome(reply.usage, Ending.FINISHED)
    return Outcome(_estimate(admission, output_bytes(answer)), Ending.FINISHED, usage_estimated=True)


def _estimate(admission: Admission, text_bytes: int) -> Usage:
    return Usage(
        uncached_prompt=estimator.prompt_tokens(admission.call.body), completion=estimator.tokens_in(text_bytes)
    )
