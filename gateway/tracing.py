"""OpenTelemetry traces, where OTEL_EXPORTER_OTLP_ENDPOINT is set; nothing imports this module otherwise.

A request of the API is a server span, and each call of an upstream a client span below it, with the attributes of the
HTTP and GenAI conventions; never content. Spans begin with what they are about, so that upstreams are told of them
(`traceparent`), and get their attributes and ends from the request's event. The beat sends them to the collector:
OpenTelemetry's own batches come from a thread that gevent's patching breaks.
"""

import logging
from collections import deque
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import gevent
from django.conf import settings
from gevent.lock import BoundedSemaphore
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.trace import Span, SpanKind, StatusCode, format_trace_id, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from . import request_events
from .hooks import Periodic, worker_hooks
from .money import UNITS
from .outages import Outage
from .request_events import Outcome, RequestEvent, UpstreamAttempt

logger = logging.getLogger(__name__)
MOST_WAITING = 4096
MOST_AT_ONCE = 100  # encoding them takes 6 ms, in which the worker does nothing else
EXPORT_SECONDS = 1.0
STOP_SECONDS = 3.0  # given to a stopping worker's last spans
OPERATIONS = {
    "chat/completions": "chat",
    "completions": "text_completion",
    "embeddings": "embeddings",
    "messages": "chat",
    "responses": "chat",
}
# The conventions' names of providers that the catalogue calls otherwise.
PROVIDERS = {
    "aws-bedrock": "aws.bedrock",
    "azure-openai": "azure.ai.openai",
    "google-vertex": "gcp.vertex_ai",
    "mistral": "mistral_ai",
}
SERVICE_NAME = "inference-gateway"
OTHER = "_OTHER"  # the conventions' word for an error without a name
HEADERS = {"traceparent": "HTTP_TRACEPARENT", "tracestate": "HTTP_TRACESTATE"}
Attributes = Mapping[str, Any]

_propagator = TraceContextTextMapPropagator()


def register() -> None:
    """Traces this worker's requests from now on."""
    waiting = WaitingSpans()
    resource = Resource({"service.name": SERVICE_NAME}).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(waiting)
    tracer = provider.get_tracer("gateway")
    request_events.begin_trace = lambda meta: RequestTrace(tracer, meta)
    request_events.observers.append(end)
    worker_hooks.beat.append(Periodic(EXPORT_SECONDS, waiting.export))
    worker_hooks.stop.append(waiting.finish)


class WaitingSpans(SpanProcessor):
    """Ended spans of a worker that the collector does not have yet. Beyond MOST_WAITING they are counted and let go."""

    def __init__(self) -> None:
        self._spans: deque[ReadableSpan] = deque()
        self._left_out = 0
        self._exporter = OTLPSpanExporter()
        self._exporting = BoundedSemaphore()
        self._outage = Outage("traces cannot be exported", logger.warning)

    def on_end(self, span: ReadableSpan) -> None:
        if span.context is None or not span.context.trace_flags.sampled:
            return
        if len(self._spans) < MOST_WAITING:
            self._spans.append(span)
        else:
            self._left_out += 1

    def export(self) -> None:
        """Sends what waits. What a collector does not take is let go: the next spans matter more."""
        with self._exporting:
            while self._spans:
                batch = [self._spans.popleft() for _ in range(min(MOST_AT_ONCE, len(self._spans)))]
                if self._exporter.export(batch) is not SpanExportResult.SUCCESS:
                    self._outage.failed(f"{len(batch)} spans are lost: the collector is away, slow, or refuses them")
                    return
                self._outage.worked()
        if self._left_out:
            left_out, self._left_out = self._left_out, 0
            logger.warning("spans beyond those that may wait for the collector: %d are lost", left_out)

    def finish(self) -> None:
        """Sends the last ones, while the worker stops."""
        with gevent.Timeout(STOP_SECONDS, False):
            self.export()


class RequestTrace:
    """The spans of one request. See `request_events.Trace`."""

    __slots__ = ("_tracer", "attempts", "span")

    def __init__(self, tracer: Any, meta: Mapping[str, Any]) -> None:
        self._tracer = tracer
        carrier = {name: meta[variable] for name, variable in HEADERS.items() if variable in meta}
        parent = _propagator.extract(carrier, Context())
        self.span: Span = tracer.start_span(meta["REQUEST_METHOD"], parent, SpanKind.SERVER)
        self.attempts: list[Span] = []

    @property
    def trace_id(self) -> str:
        """As 32 hex digits."""
        return format_trace_id(self.span.get_span_context().trace_id)

    def begin_attempt(self, attempt: UpstreamAttempt) -> bytes:
        context = set_span_in_context(self.span, Context())
        span: Span = self._tracer.start_span(attempt.provider, context, SpanKind.CLIENT)
        self.attempts.append(span)
        headers: dict[str, str] = {}
        _propagator.inject(headers, set_span_in_context(span, Context()))
        return "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode("latin-1")


def end(event: RequestEvent) -> None:
    """Completes the spans of a request: an observer of events."""
    trace = event.trace
    if not isinstance(trace, RequestTrace):
        return
    since = event.began_at - event.started  # from the monotonic clock to seconds since the epoch
    for number, (attempt, span) in enumerate(zip(event.attempts, trace.attempts, strict=True), 1):
        _end_attempt(event, attempt, span, since, is_last=number == len(event.attempts))
    route = f"/v1/{event.endpoint}" if event.endpoint else ""
    trace.span.update_name(f"{event.method} {route}".rstrip())
    _describe(trace.span, _of_request(event, route))
    if event.status >= 500 or event.outcome == Outcome.BROKEN:
        trace.span.set_status(StatusCode.ERROR)
        trace.span.set_attribute("error.type", event.code or str(event.status))
    trace.span.end(_nanoseconds(event.ended_at + since))


def _end_attempt(event: RequestEvent, attempt: UpstreamAttempt, span: Span, since: float, *, is_last: bool) -> None:
    operation = OPERATIONS.get(event.endpoint, "")
    span.update_name(f"{operation} {attempt.model}".strip())
    _describe(span, _of_attempt(event, attempt, operation))
    for name, moment in (("connected", attempt.connected_at), ("head", attempt.head_at)):
        if moment:
            span.add_event(name, timestamp=_nanoseconds(moment + since))
    error = _error_of_attempt(event, attempt, is_last=is_last)
    if error is not None:
        span.set_status(StatusCode.ERROR)
        span.set_attribute("error.type", error)
    elif is_last:
        _describe(span, _of_answer(event, attempt))
    span.end(_nanoseconds((attempt.ended_at or event.ended_at) + since))


def _error_of_attempt(event: RequestEvent, attempt: UpstreamAttempt, *, is_last: bool) -> str | None:
    """What it failed with, if it failed: another one follows only where it did."""
    if attempt.status >= 300:
        return str(attempt.status)
    if is_last and event.status < 500 and event.outcome != Outcome.BROKEN:
        return None
    return (event.code if is_last else None) or OTHER


def _of_request(event: RequestEvent, route: str) -> Attributes:
    settled = event.settled
    known_model = event.model if event.route else ""  # a name that is none may be anything
    return {
        "http.request.method": event.method,
        "http.route": route,
        "http.response.status_code": event.status or None,
        "url.scheme": urlsplit(settings.PUBLIC_URL).scheme,
        "url.path": "" if "<" in route else route,
        "gen_ai.operation.name": OPERATIONS.get(event.endpoint) if event.route else None,
        "gen_ai.provider.name": PROVIDERS.get(event.provider, event.provider),
        "gen_ai.request.model": known_model,
        "gateway.request.id": event.request_id,
        "gateway.outcome": event.outcome.value,
        "gateway.error.code": event.code,
        "gateway.account.id": event.account_id and str(event.account_id),
        "gateway.key.id": event.key_id and str(event.key_id),
        "gateway.alias.id": event.alias_id and str(event.alias_id),
        "gateway.provider": event.provider,
        "gateway.region": event.region,
        "gateway.cost": settled and _units(settled.cost),
        "gateway.currency": event.currency if settled else None,
        "gateway.energy_wh": settled and _units(settled.energy_wh),
        "gateway.carbon_gco2e": settled and _units(settled.carbon_gco2e),
        **_ids_of_answer(event),
    }


def _of_attempt(event: RequestEvent, attempt: UpstreamAttempt, operation: str) -> Attributes:
    return {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": PROVIDERS.get(attempt.provider, attempt.provider),
        "gen_ai.request.model": attempt.model,
        "gen_ai.request.stream": event.is_stream,
        "server.address": attempt.host,
        "server.port": attempt.port or None,
        "http.response.status_code": attempt.status or None,
        "gateway.provider": attempt.provider,
        "gateway.route": attempt.route,
    }


def _of_answer(event: RequestEvent, attempt: UpstreamAttempt) -> Attributes:
    """What the answer says. Tokens stand here alone, beside the call that took them, and so are counted once."""
    settled, first = event.settled, event.first_output_at
    if settled is None:
        return {}
    return {
        "gen_ai.usage.input_tokens": settled.prompt_tokens,
        "gen_ai.usage.output_tokens": settled.completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": settled.cache_read_tokens,
        "gen_ai.usage.cache_creation.input_tokens": settled.cache_write_tokens,
        "gen_ai.usage.reasoning.output_tokens": settled.reasoning_tokens,
        "gen_ai.response.time_to_first_chunk": first - attempt.began_at if event.is_stream and first else None,
        **_ids_of_answer(event),
    }


def _ids_of_answer(event: RequestEvent) -> Attributes:
    """As the client's answer has them."""
    if event.generation_id is None:
        return {}
    return {"gen_ai.response.id": f"gen-{event.generation_id.hex}", "gen_ai.response.model": event.route}


def _describe(span: Span, attributes: Attributes) -> None:
    """Sets what is known of these."""
    span.set_attributes({name: value for name, value in attributes.items() if value not in (None, "")})


def _units(figure: int | None) -> float | None:
    return None if figure is None else figure / UNITS


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
