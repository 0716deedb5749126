"""The conductor: admit, dispatch, deliver, settle (docs/architecture.md#the-path-of-a-completion).

Automatic failover, behind GATEWAY_AUTO_FAILOVER, dispatches to the next upstream where one fails: never for a pinned or
aliased request.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from django.conf import settings

from billing.ledger.endings import ENDINGS
from billing.models import IMPLAUSIBLE_USAGE, MALFORMED_EVENT
from catalogue.pricing import ContradictoryUsage, Usage
from catalogue.routing import health
from catalogue.routing.routes import Route
from gateway.errors import (
    BILLED_ONCE_AT_MOST,
    NOTHING_BILLED,
    AllProvidersFailed,
    AllProvidersRateLimited,
    ProviderRateLimited,
    ProviderTimeout,
    UnpricedRoute,
    UpstreamFailed,
    UpstreamRefused,
    step,
)
from gateway.fastpath.client_watch import Client
from gateway.fastpath.faults import BrokenAnswer, Unreachable, UpstreamFault
from gateway.fastpath.http_client import Deadlines, UpstreamCall
from gateway.observing.request_events import RequestEvent

from . import credentials, estimator
from .admission import Admitted, admit, readmit
from .authentication import Payer
from .call import Call, Shape
from .dialects.base import encoded, parse_object
from .dialects.errors import CONTEXT_OVERFLOW, REFUSED, report_of_body
from .failures import noted_failure, refusal, refusal_of_status, tell_health
from .generation import Delivery, Ending, settle
from .reader import (
    Source,
    StreamReader,
)
from .sse import (
    is_event_stream,
    is_json,
    may_be_event_stream,
)
from .stream import BilledStream
from .unstreamed import ReadAgain, as_stream
from .wire_forms.base import WireForm

Served = TypeVar("Served")

REFUSED_CREDENTIAL = frozenset({401, 403})
DOES_NOT_COUNT = frozenset({404, 405, 501})  # an upstream without the endpoint
# Over the cap: reasoning that caps leave out and that is not counted apart, predictions that were thrown away.
COMPLETION_FACTOR = 8
COMPLETION_SLACK = 4096  # tokens
ORDINARY_PROMPT_TOKENS = 32_000  # in the time that every first byte has
PROMPT_FACTOR = 2  # over the context length: a provider's window grows before the catalogue says so


@dataclass(frozen=True, slots=True)
class Answer:
    """A settled whole answer. `adjusted` names the parameters that the upstream did not get as they were sent."""

    generation_id: str
    body: dict[str, Any]
    adjusted: tuple[str, ...]


def complete(form: WireForm, call: Call, payer: Payer, client: Client, event: RequestEvent) -> Answer:
    """A whole answer, settled before it is returned. Raises what `admit` and the upstream refuse, and ClientLeft."""
    return with_failover(admit(form, call, payer, event), lambda admitted: _complete(admitted, client))


def stream(form: WireForm, call: Call, payer: Payer, client: Client, event: RequestEvent) -> BilledStream:
    """A stream that has its first output. Raises as `complete`."""
    return with_failover(admit(form, call, payer, event), lambda admitted: _stream(admitted, client))


def count(form: WireForm, call: Call, payer: Payer, client: Client, event: RequestEvent) -> int:
    """The tokens of a prompt, for nothing: as the upstream counts them where it does, else an estimate. Raises as
    `admit`."""
    admitted = admit(form, call, payer, event)
    if not form.counts_upstream:
        return estimator.prompt_tokens(call)
    if admitted.upstream_call.shape != Shape.MESSAGES:
        encoded(call.body)  # raises where it is nested too deeply
        return estimator.most_prompt_tokens(call)
    try:
        upstream = dispatch(admitted, admitted.upstream_call, client)
    except (UpstreamFailed, UpstreamRefused):
        if event.attempts[-1].status in DOES_NOT_COUNT:
            return estimator.most_prompt_tokens(call)
        raise
    try:
        tokens = parse_object(upstream.read_all()).get("input_tokens")
    except UpstreamFault as error:
        raise refusal(error, admitted) from error
    finally:
        upstream.close()
    # No prompt is empty: an upstream that says so has not counted.
    return tokens if type(tokens) is int and tokens > 0 else estimator.most_prompt_tokens(call)


def with_failover(admitted: Admitted, serve: Callable[[Admitted], Served]) -> Served:
    """What `serve` returns for the first candidate that does not fail before its first delivered byte.

    A refusal ends it, since the request would fare no better elsewhere, except for one that is too long for the route:
    then only candidates with a larger context window are left. Raises UpstreamRefused, and AllProvidersFailed when the
    last candidate has failed, worth a retry where one of them is; without failover, the one failure as it is.
    """
    if admitted.resolution.routing_mode != "auto" or not settings.GATEWAY_AUTO_FAILOVER:
        return serve(admitted)
    failures: list[UpstreamFailed | ProviderTimeout] = []
    others, overflowed = iter(admitted.resolution.others), 0.0
    while True:
        last: UpstreamFailed | ProviderTimeout | UpstreamRefused
        try:
            return serve(admitted)
        except UpstreamRefused as error:
            if error.code != CONTEXT_OVERFLOW:
                raise
            last, overflowed = error, max(overflowed, admitted.route.context_length or math.inf)
        except (UpstreamFailed, ProviderTimeout) as error:
            last = error
            failures.append(error)
        following = _next(admitted, others, last.fallback_reason, window_above=overflowed)
        if following is None:
            break
        admitted = following
    if isinstance(last, UpstreamRefused):
        raise last
    worth_a_retry = [failure for failure in failures if failure.retry]
    limited = worth_a_retry and all(isinstance(failure, ProviderRateLimited) for failure in worth_a_retry)
    raise (AllProvidersRateLimited if limited else AllProvidersFailed)(
        last.message,
        retry=bool(worth_a_retry),
        providers_attempted=admitted.attempted,
        headers=_shortest_wait(worth_a_retry),
    ) from last


def _next(admitted: Admitted, others: Iterator[Route], reason: str, *, window_above: float) -> Admitted | None:
    """The same request on the next candidate, all of which can take it; a window that is unknown is not above any."""
    for route in others:
        if window_above and (route.context_length or 0) <= window_above:
            continue
        try:
            return readmit(admitted, route, reason=reason)
        except UnpricedRoute:
            continue  # a change of the catalogue has taken its price or its rate since
    return None


def _shortest_wait(failures: list[UpstreamFailed | ProviderTimeout]) -> dict[str, str]:
    """`Retry-After` where each has named one: the soonest of them."""
    waits = [failure.headers.get("Retry-After") for failure in failures]
    named = [int(wait) for wait in waits if wait is not None]
    return {"Retry-After": str(min(named))} if named and len(named) == len(waits) else {}


def dispatch(admitted: Admitted, call: Call, client: Client, *, comes_at_once: bool = False) -> UpstreamCall:
    """Sends `call`, the admitted one in the upstream's shape, and waits for the head of a successful answer.

    An answer that `comes_at_once` sends no byte before it is complete, however long: it has the overall budget alone.

    Raises the ApiError of an upstream that fails or refuses, ClientLeft and WorkerStopped.
    """
    client.raise_if_gone()  # whoever has waited for long, for a database above all, may wait no more
    route = admitted.route
    upstream = _opened(admitted, call, route, client, comes_at_once=comes_at_once)
    if upstream.status in REFUSED_CREDENTIAL and route.upstream.next_credential:
        upstream.close()
        credentials.note_refused(route.upstream.slug, upstream.status)
        upstream = _opened(admitted, call, credentials.with_next(route), client, comes_at_once=comes_at_once)
    try:
        if not 200 <= upstream.status < 300:
            report = report_of_body(upstream.status, _refusal_body(upstream))
            refused = refusal_of_status(report, admitted, retry_after=upstream.headers.get("retry-after", ""))
            tell_health(route, refused, report.status, report.trouble)
            raise refused
    except UpstreamFault as fault:
        upstream.close()
        raise noted_failure(fault, admitted) from fault
    except BaseException:
        upstream.close()
        raise
    return upstream


def _opened(admitted: Admitted, call: Call, route: Route, client: Client, *, comes_at_once: bool) -> UpstreamCall:
    """An upstream that has answered, with whatever status. Raises as `dispatch`."""
    with step("preparing the upstream request", NOTHING_BILLED):
        request = admitted.dialect.request(call, route)
    deadlines = Deadlines(_first_byte_seconds(len(request.body)))
    if comes_at_once:
        deadlines.whole_answer()
    upstream = UpstreamCall(request, deadlines, client, admitted.payer.account_id)
    del request  # so that its body is freed when it is sent
    attempt = upstream.attempt
    attempt.provider, attempt.route, attempt.model = route.upstream.slug, route.id, route.upstream_model
    admitted.event.attempts.append(attempt)
    if admitted.event.trace is not None:
        upstream.trace_headers = admitted.event.trace.begin_attempt()
    try:
        upstream.open()
    except UpstreamFault as fault:
        upstream.close()
        raise noted_failure(fault, admitted) from fault
    except BaseException:
        upstream.close()
        raise
    return upstream


def _refusal_body(upstream: UpstreamCall) -> bytes:
    """The body of an answer that is no success. A refusal is one by its status, though its body breaks off."""
    if upstream.status < 400:
        return b""
    try:
        return upstream.read_error()
    except (Unreachable, BrokenAnswer):
        if upstream.status not in REFUSED:
            raise
        return b""


def _complete(admitted: Admitted, client: Client) -> Answer:
    is_long = may_be_long(admitted.upstream_call, admitted.route)
    aggregated = is_long and may_be_streamed(admitted.upstream_call, admitted.route)
    asked = replace(admitted.upstream_call, stream=aggregated)
    upstream = dispatch(admitted, asked, client, comes_at_once=is_long and not aggregated)
    try:
        if aggregated and _is_stream(upstream):
            answer, outcome = _aggregated(admitted, upstream, upstream)
        else:
            answer, outcome = _whole(admitted, upstream)
        if not ENDINGS[outcome.ending].is_billed:
            upstream.abort(ContradictoryUsage())
    except UpstreamFault as error:
        upstream.abort(error)
        raise noted_failure(error, admitted) from error
    finally:
        upstream.close()
    health.note(admitted.route.upstream.slug, failed=False)
    client.raise_if_gone()
    with step("settling the charge", BILLED_ONCE_AT_MOST):
        report = settle(admitted, outcome)
    if not ENDINGS[outcome.ending].is_billed:
        raise refusal(ContradictoryUsage(), admitted, record=admitted.public_id)
    adjusted = (*admitted.upstream_call.adjusted, *upstream.adjusted)
    return Answer(admitted.public_id, admitted.form.answer(answer, admitted.call, report), adjusted)


def _stream(admitted: Admitted, client: Client) -> BilledStream:
    upstream = dispatch(admitted, admitted.upstream_call, client)
    return BilledStream(admitted, upstream, _reader(admitted, upstream, _source(admitted, upstream))).primed()


def _source(admitted: Admitted, upstream: UpstreamCall) -> Source:
    """Returns what a stream is read from: the upstream, or the events of the whole answer that it sent."""
    try:
        return upstream if _is_stream(upstream) else as_stream(admitted, upstream)
    except UpstreamFault as error:
        upstream.abort(error)
        upstream.close()
        raise noted_failure(error, admitted) from error
    except BaseException:
        upstream.close()
        raise


def _is_stream(upstream: UpstreamCall) -> bool:
    """Tells whether the answer to a stream request is an event stream: by its first bytes, else by its label."""
    first = upstream.peek()
    return is_event_stream(first) or not (upstream.content_type == "application/json" or is_json(first))


def may_be_long(call: Call, route: Route) -> bool:
    """Whether a whole answer could outlast the first-byte budget."""
    if call.shape == Shape.EMBEDDING:
        return False
    cap = call.max_tokens or route.max_output_tokens
    return cap is None or cap * call.choices > settings.GATEWAY_AGGREGATE_OVER_TOKENS


def may_be_streamed(call: Call, route: Route) -> bool:
    """Whether a whole answer loses nothing where it is streamed and put together: neither the usage that it is billed
    by, nor what no stream carries (speech, the best of several)."""
    if not (route.can_stream and route.aggregate and route.upstream.stream_options):
        return False
    modalities = call.body.get("modalities")
    speaks = "audio" in call.body or (isinstance(modalities, list) and "audio" in modalities)
    return not speaks and call.body.get("best_of", 1) == 1


def _reader(admitted: Admitted, upstream: UpstreamCall, source: Source, *, joins_texts: bool = False) -> StreamReader:
    decoder = admitted.dialect.decoder(admitted.upstream_call, admitted.route.upstream.total_includes)
    call = admitted.upstream_call
    tools = (call.body.get("tools") or ()) if call.shape == Shape.CHAT else ()
    normaliser = admitted.form.normaliser(
        id=admitted.answer_id,
        created=admitted.created,
        model=admitted.route.id,
        choices=admitted.call.choices,
        tool_names=frozenset(tool[tool["type"]]["name"] for tool in tools),
    )
    believes = partial(is_implausible, admitted, upstream.sent_bytes)
    return StreamReader(source, decoder, normaliser, believes, joins_texts=joins_texts)


def _aggregated(admitted: Admitted, upstream: UpstreamCall, source: Source) -> tuple[dict[str, Any], Delivery]:
    """Reads a stream to its end and puts the answer together. Contradictory usage leaves it empty."""
    reader, whole = _reader(admitted, upstream, source, joins_texts=True), admitted.form.aggregate()
    try:
        while reader.ending is None:
            reader.advance()
            for delta in reader.take():
                whole.add(delta)
        for delta in reader.take_finishes():
            whole.add(delta)
    except ContradictoryUsage:
        return {}, reader.outcome(Ending.COST_UNRESOLVABLE)
    if reader.ending != Ending.FINISHED:
        raise UpstreamFault("ended its answer without finishing it")
    return _in_shape(admitted, whole.answer() | reader.normaliser.unsent), reader.outcome(Ending.FINISHED)


def _whole(admitted: Admitted, upstream: UpstreamCall) -> tuple[dict[str, Any], Delivery]:
    """Reads a whole answer, or the stream that the upstream sent in its place. Contradictory usage leaves it empty."""
    first = upstream.read()
    if may_be_event_stream(first) and admitted.call.shape != Shape.EMBEDDING:
        upstream.serve_alone("answered a whole request with a stream")
        return _aggregated(admitted, upstream, ReadAgain(upstream, first))
    upstream.deadlines.whole_answer()
    body = first + upstream.read_all() if first else first
    try:
        reply = admitted.dialect.reply(body, admitted.upstream_call, admitted.route.upstream.total_includes)
    except ContradictoryUsage as error:
        unpriced = {} if error.answer is None else _in_shape(admitted, _adapted(admitted, error.answer))
        contradictory = Delivery(
            Ending.COST_UNRESOLVABLE, text_bytes=admitted.form.output_bytes(unpriced), reported=error.reported
        )
        return {}, contradictory
    answer = _in_shape(admitted, _adapted(admitted, reply.body))
    usage = reply.usage
    if usage is not None and admitted.call.shape == Shape.EMBEDDING:
        usage = replace(usage, completion=0)  # only the input is billed, whatever else an upstream counts
    text_bytes, counted = admitted.form.output_bytes(answer), usage or reply.prompt_usage
    if counted is not None and is_implausible(admitted, upstream.sent_bytes, counted, text_bytes):
        flags = (IMPLAUSIBLE_USAGE,)
        return {}, Delivery(Ending.COST_UNRESOLVABLE, text_bytes=text_bytes, reported=reply.reported, flags=flags)
    outcome = Delivery(
        Ending.FINISHED,
        usage,
        reply.prompt_usage,
        text_bytes=text_bytes,
        reported=reply.reported,
        flags=(MALFORMED_EVENT,) if reply.is_malformed else (),
        measured_units=reply.measured_units,
    )
    return answer, outcome


def _adapted(admitted: Admitted, answer: dict[str, Any]) -> dict[str, Any]:
    return answer if admitted.adapter is None else admitted.adapter.answer(answer)


def _in_shape(admitted: Admitted, answer: dict[str, Any]) -> dict[str, Any]:
    """The normalised answer, with what the gateway owns in it."""
    return admitted.form.normalised(
        answer, admitted.call, id=admitted.answer_id, created=admitted.created, model=admitted.route.id
    )


def is_implausible(admitted: Admitted, sent_bytes: int, usage: Usage, output_bytes: int) -> bool:
    """Whether a usage contradicts itself by what it counts (docs/api.md#contradictory-usage).

    An upstream may count tokens up to the bytes that were sent and delivered (`sent_bytes` of the request's body,
    `output_bytes` of the output), and beyond those up to several times what was asked for.

    Reasoning that is counted apart is held against the route's cap alone: some upstreams leave it out of the call's.
    """
    route, call = admitted.route, admitted.upstream_call
    window = route.context_length
    if window is not None and usage.prompt > max(sent_bytes, PROMPT_FACTOR * window):
        return True
    if usage.completion <= output_bytes + COMPLETION_SLACK:
        return False
    best_of = call.body.get("best_of")
    factor = COMPLETION_FACTOR * max(call.choices, best_of if isinstance(best_of, int) else 1)
    cap, most = call.max_tokens, route.max_output_tokens or window
    if cap is not None and usage.completion - (usage.reasoning or 0) > factor * cap + COMPLETION_SLACK:
        return True
    return most is not None and usage.completion > factor * max(cap or 0, most) + COMPLETION_SLACK


def _first_byte_seconds(request_bytes: int) -> float:
    """The budget of the first byte: a long prompt, estimated by the length of the request's body, has more of it."""
    beyond = max(0, request_bytes // estimator.BYTES_PER_TOKEN - ORDINARY_PROMPT_TOKENS)
    longer: float = settings.GATEWAY_FIRST_BYTE_PER_1000_TOKENS * beyond / 1000
    return float(settings.GATEWAY_FIRST_BYTE_TIMEOUT) + longer
