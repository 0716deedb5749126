"""Serves a request: admits it, dispatches it upstream, delivers the answer and settles it.

docs/architecture.md#the-path-of-a-completion describes the steps. If its plan fails over, a request whose upstream
fails goes to the next candidate (`with_failover`); the plan of an explicit id never fails over.
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
    MaxCostExceeded,
    ProviderRateLimited,
    ProviderTimeout,
    UnpricedRoute,
    UpstreamFailed,
    UpstreamRejected,
    step,
)
from gateway.fastpath.client_watch import Client
from gateway.fastpath.faults import BrokenAnswer, Unreachable, UpstreamFault
from gateway.fastpath.http_client import Deadlines, UpstreamCall
from gateway.observing.request_events import RequestEvent
from gateway.upstreams import upstream_call

from . import credentials, estimator
from .admission import AdmittedRequest, admit, readmit
from .authentication import Payer
from .call import Call, Shape
from .dialects.base import encoded, parse_object
from .dialects.errors import CONTEXT_OVERFLOW, REJECTED_STATUSES, report_of_body
from .failures import error_of_fault, error_of_status, note_in_health, noted_failure
from .generation import Delivery, Ending, settle
from .reader import ByteSource, StreamReader
from .sse import is_event_stream, is_json, may_be_event_stream
from .stream import BilledStream
from .unstreamed import RewoundUpstream, as_stream
from .wire_forms.base import WireForm

Served = TypeVar("Served")

REFUSED_CREDENTIAL = frozenset({401, 403})
DOES_NOT_COUNT = frozenset({404, 405, 501})  # the upstream lacks the endpoint that counts tokens
# A completion may exceed its cap: some upstreams do not cap reasoning, nor report it separately, and some count
# rejected predictions.
COMPLETION_FACTOR = 8
COMPLETION_SLACK = 4096  # tokens
ORDINARY_PROMPT_TOKENS = 32_000  # GATEWAY_FIRST_BYTE_TIMEOUT is enough for a prompt of this length
PROMPT_FACTOR = 2  # of the context length: a provider may enlarge the window before the catalogue is updated


@dataclass(frozen=True, slots=True)
class SettledAnswer:
    """Holds a settled whole answer. `adjusted` names the parameters that were changed or dropped for the upstream."""

    generation_id: str
    body: dict[str, Any]
    adjusted: tuple[str, ...]


def complete(form: WireForm, call: Call, payer: Payer, client: Client, event: RequestEvent) -> SettledAnswer:
    """Serves a whole answer and settles it. Raises the ApiErrors of `admit` and `dispatch`, and ClientLeft."""
    return with_failover(admit(form, call, payer, event), lambda admitted: _complete(admitted, client))


def stream(form: WireForm, call: Call, payer: Payer, client: Client, event: RequestEvent) -> BilledStream:
    """Returns a stream that has read its first output. Raises like `complete`."""
    return with_failover(admit(form, call, payer, event), lambda admitted: _stream(admitted, client))


def count(form: WireForm, call: Call, payer: Payer, client: Client, event: RequestEvent) -> int:
    """Counts the tokens of a prompt, unbilled: by the upstream if it can count, else by an estimate.

    Raises like `complete`.
    """
    admitted = admit(form, call, payer, event)
    if not form.counts_upstream:
        return estimator.prompt_tokens(call)
    if admitted.upstream_call.shape != Shape.MESSAGES:
        encoded(call.body)  # raises if the body is nested too deeply
        return estimator.most_prompt_tokens(call)
    try:
        upstream = dispatch(admitted, admitted.upstream_call, client)
    except (UpstreamFailed, UpstreamRejected):
        if event.attempts[-1].status in DOES_NOT_COUNT:
            return estimator.most_prompt_tokens(call)
        raise
    try:
        tokens = parse_object(upstream.read_all()).get("input_tokens")
    except UpstreamFault as error:
        raise error_of_fault(error, admitted) from error
    finally:
        upstream.close()
    # A prompt is never empty, so an upstream that reports zero did not count.
    return tokens if type(tokens) is int and tokens > 0 else estimator.most_prompt_tokens(call)


def with_failover(admitted: AdmittedRequest, serve: Callable[[AdmittedRequest], Served]) -> Served:
    """Calls `serve` with one candidate after another until one succeeds, and returns its result.

    A stream has succeeded with its first output.

    A rejection is raised at once, since another provider would reject the request too. The exception is a request that
    is too long for the route: it goes to the candidates with a larger context window.

    Raises UpstreamRejected, or AllProvidersFailed once the last candidate has failed. That error is worth a retry if
    any of the failures is, and is AllProvidersRateLimited if all of these are rate limits. Without failover the first
    failure is raised unchanged.
    """
    plan = admitted.resolution.plan
    if not plan.fails_over:
        return serve(admitted)
    failures: list[UpstreamFailed | ProviderTimeout] = []
    others, overflowed = iter(plan.others), 0.0
    while True:
        last: UpstreamFailed | ProviderTimeout | UpstreamRejected
        try:
            return serve(admitted)
        except UpstreamRejected as error:
            if error.code != CONTEXT_OVERFLOW:
                raise
            last, overflowed = error, max(overflowed, admitted.route.context_length or math.inf)
        except (UpstreamFailed, ProviderTimeout) as error:
            last = error
            failures.append(error)
        following = _readmit_next(admitted, others, last.fallback_reason, window_above=overflowed)
        if following is None:
            break
        admitted = following
    if isinstance(last, UpstreamRejected):
        raise last
    worth_a_retry = [failure for failure in failures if failure.retry]
    limited = worth_a_retry and all(isinstance(failure, ProviderRateLimited) for failure in worth_a_retry)
    raise (AllProvidersRateLimited if limited else AllProvidersFailed)(
        last.message,
        retry=bool(worth_a_retry),
        providers_attempted=admitted.attempted,
        headers=_shortest_wait(worth_a_retry),
    ) from last


def _readmit_next(
    admitted: AdmittedRequest, others: Iterator[Route], reason: str, *, window_above: float
) -> AdmittedRequest | None:
    """Readmits the request on the next candidate whose context window is above `window_above`, if that is not 0.

    An unknown window counts as too small.
    """
    for route in others:
        if window_above and (route.context_length or 0) <= window_above:
            continue
        try:
            return readmit(admitted, route, reason=reason)
        except UnpricedRoute:
            continue  # the catalogue has lost the route's price or exchange rate since the candidates were chosen
        except MaxCostExceeded:
            continue  # the other route's failure is raised: the client could not have known what this one costs
    return None


def _shortest_wait(failures: list[UpstreamFailed | ProviderTimeout]) -> dict[str, str]:
    """Returns the smallest `Retry-After` if every failure has one."""
    waits = [failure.headers.get("Retry-After") for failure in failures]
    named = [int(wait) for wait in waits if wait is not None]
    return {"Retry-After": str(min(named))} if named and len(named) == len(waits) else {}


def dispatch(admitted: AdmittedRequest, call: Call, client: Client, *, is_sent_at_once: bool = False) -> UpstreamCall:
    """Sends `call`, which is in the upstream's shape, and waits for the head of a successful answer.

    If the answer `is_sent_at_once`, no byte comes before it is complete: only the overall timeout applies, not the
    budget for the first byte.

    Raises an ApiError if the upstream fails or rejects the request, ClientLeft and WorkerStopped.
    """
    # 1. Send the request, and again with the next credential if the first one is refused.
    client.raise_if_gone()  # the client may have left while we waited, for the database above all
    route = admitted.route
    upstream = _open_upstream(admitted, call, route, client, is_sent_at_once=is_sent_at_once)
    if upstream.status in REFUSED_CREDENTIAL and route.upstream.next_credential:
        upstream.close()
        credentials.note_refused(route.upstream.slug, upstream.status)
        upstream = _open_upstream(admitted, call, credentials.with_next(route), client, is_sent_at_once=is_sent_at_once)
    # 2. Turn an unsuccessful status into an ApiError.
    try:
        if not 200 <= upstream.status < 300:
            report = report_of_body(upstream.status, _error_body(upstream))
            error = error_of_status(report, admitted, retry_after=upstream.headers.get("retry-after", ""))
            note_in_health(route, error, report.status, report.trouble)
            raise error
    except UpstreamFault as fault:
        upstream.close()
        raise noted_failure(fault, admitted) from fault
    except BaseException:
        upstream.close()
        raise
    return upstream


def _open_upstream(
    admitted: AdmittedRequest, call: Call, route: Route, client: Client, *, is_sent_at_once: bool
) -> UpstreamCall:
    """Sends the request and returns the upstream once the head of its answer is there, with any status.

    Raises like `dispatch`.
    """
    with step("preparing the upstream request", NOTHING_BILLED):
        request = admitted.dialect.request(call, route)
    deadlines = Deadlines(_first_byte_seconds(len(request.body)))
    if is_sent_at_once:
        deadlines.whole_answer()
    upstream = upstream_call(request, deadlines, client, admitted.payer.account_id)
    del request  # so that the body is freed once it is sent
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


def _error_body(upstream: UpstreamCall) -> bytes:
    """Reads the body of an unsuccessful answer. If a rejection's body breaks off, its status alone counts."""
    if upstream.status < 400:
        return b""
    try:
        return upstream.read_error()
    except (Unreachable, BrokenAnswer):
        if upstream.status not in REJECTED_STATUSES:
            raise
        return b""


def _complete(admitted: AdmittedRequest, client: Client) -> SettledAnswer:
    # 1. Dispatch. An answer that may be long is streamed from the upstream if nothing is lost by it.
    is_long = may_be_long(admitted.upstream_call, admitted.route)
    aggregated = is_long and may_be_streamed(admitted.upstream_call, admitted.route)
    asked = replace(admitted.upstream_call, stream=aggregated)
    upstream = dispatch(admitted, asked, client, is_sent_at_once=is_long and not aggregated)
    # 2. Read the whole answer.
    try:
        if aggregated and _is_stream(upstream):
            answer, outcome = _read_aggregated(admitted, upstream, upstream)
        else:
            answer, outcome = _read_whole(admitted, upstream)
        if not ENDINGS[outcome.ending].is_billed:
            upstream.abort(ContradictoryUsage())
    except UpstreamFault as error:
        upstream.abort(error)
        raise noted_failure(error, admitted) from error
    finally:
        upstream.close()
    health.note(admitted.route.upstream.slug, failed=False)
    # 3. Settle, unless the client has left, and return the answer.
    client.raise_if_gone()
    with step("settling the charge", BILLED_ONCE_AT_MOST):
        report = settle(admitted, outcome)
    if not ENDINGS[outcome.ending].is_billed:
        raise error_of_fault(ContradictoryUsage(), admitted, record=admitted.public_id)
    adjusted = (*admitted.upstream_call.adjusted_fields, *upstream.adjusted)
    return SettledAnswer(admitted.public_id, admitted.form.answer(answer, admitted.call, report), adjusted)


def _stream(admitted: AdmittedRequest, client: Client) -> BilledStream:
    upstream = dispatch(admitted, admitted.upstream_call, client)
    return BilledStream(admitted, upstream, _reader(admitted, upstream, _source(admitted, upstream))).primed()


def _source(admitted: AdmittedRequest, upstream: UpstreamCall) -> ByteSource:
    """Returns the source of the stream's events: the upstream, or the whole answer that it sent instead of a stream."""
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
    """Tells whether the answer to a stream request is an event stream: by its first bytes, else its Content-Type."""
    first = upstream.peek()
    return is_event_stream(first) or not (upstream.content_type == "application/json" or is_json(first))


def may_be_long(call: Call, route: Route) -> bool:
    """Tells whether a whole answer could take longer than the first-byte timeout."""
    if call.shape == Shape.EMBEDDING:
        return False
    cap = call.max_tokens or route.max_output_tokens
    return cap is None or cap * call.choices > settings.GATEWAY_AGGREGATE_OVER_TOKENS


def may_be_streamed(call: Call, route: Route) -> bool:
    """Tells whether a whole answer can be put together from a stream without loss.

    That takes an upstream that reports usage in streams, and a request without what streams cannot carry: audio and the
    best of several choices.
    """
    if not (route.can_stream and route.aggregate and route.upstream.stream_options):
        return False
    modalities = call.body.get("modalities")
    speaks = "audio" in call.body or (isinstance(modalities, list) and "audio" in modalities)
    return not speaks and call.body.get("best_of", 1) == 1


def _reader(
    admitted: AdmittedRequest, upstream: UpstreamCall, source: ByteSource, *, joins_texts: bool = False
) -> StreamReader:
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


def _read_aggregated(
    admitted: AdmittedRequest, upstream: UpstreamCall, source: ByteSource
) -> tuple[dict[str, Any], Delivery]:
    """Reads a stream to its end and puts the answer together. The answer is empty if the usage is contradictory."""
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


def _read_whole(admitted: AdmittedRequest, upstream: UpstreamCall) -> tuple[dict[str, Any], Delivery]:
    """Reads a whole answer, or the stream that the upstream sent in its place.

    The answer is empty if the usage is contradictory.
    """
    # 1. Read it to its end.
    first = upstream.read()
    if may_be_event_stream(first) and admitted.call.shape != Shape.EMBEDDING:
        upstream.serve_alone("answered a whole request with a stream")
        return _read_aggregated(admitted, upstream, RewoundUpstream(upstream, first))
    upstream.deadlines.whole_answer()
    body = first + upstream.read_all() if first else first
    # 2. Decode and normalise it.
    try:
        reply = admitted.dialect.reply(body, admitted.upstream_call, admitted.route.upstream.total_includes)
    except ContradictoryUsage as error:
        unpriced = {} if error.answer is None else _in_shape(admitted, _adapted(admitted, error.answer))
        contradictory = Delivery(
            Ending.COST_UNRESOLVABLE, text_bytes=admitted.form.output_bytes(unpriced), reported=error.reported
        )
        return {}, contradictory
    answer = _in_shape(admitted, _adapted(admitted, reply.body))
    # 3. Check the reported usage against what was sent and delivered.
    usage = reply.usage
    if usage is not None and admitted.call.shape == Shape.EMBEDDING:
        usage = replace(usage, completion=0)  # only an embedding's input is billed, even if the upstream counts more
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


def _adapted(admitted: AdmittedRequest, answer: dict[str, Any]) -> dict[str, Any]:
    return answer if admitted.adapter is None else admitted.adapter.answer(answer)


def _in_shape(admitted: AdmittedRequest, answer: dict[str, Any]) -> dict[str, Any]:
    """Normalises an answer and sets the fields that the gateway owns."""
    return admitted.form.normalised(
        answer, admitted.call, id=admitted.answer_id, created=admitted.created, model=admitted.route.id
    )


def is_implausible(admitted: AdmittedRequest, sent_bytes: int, usage: Usage, output_bytes: int) -> bool:
    """Tells whether a usage counts more tokens than can be true (docs/api.md#contradictory-usage).

    A count is plausible up to the number of bytes that were sent (`sent_bytes` of the request body) or delivered
    (`output_bytes`), and beyond that up to several times what the request asked for.

    Reasoning that is reported separately is compared with the route's cap only, since some upstreams do not apply the
    call's cap to it.
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
    """Returns how long to wait for the first byte: longer for a long prompt, estimated from the request's length."""
    beyond = max(0, request_bytes // estimator.BYTES_PER_TOKEN - ORDINARY_PROMPT_TOKENS)
    longer: float = settings.GATEWAY_FIRST_BYTE_PER_1000_TOKENS * beyond / 1000
    return float(settings.GATEWAY_FIRST_BYTE_TIMEOUT) + longer
