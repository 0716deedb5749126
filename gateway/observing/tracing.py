"""Sends OpenTelemetry traces. It is imported only if OTEL_EXPORTER_OTLP_ENDPOINT is set."""
# A request is a server span, and each call of an upstream is a client span below it. Ids are made when these begin, so
# that they can be sent upstream; the beat makes the spans from the request's event. OpenTelemetry's own batches use a
# thread, which gevent's patching breaks (docs/decisions/0008-traces-from-events.md).

import logging
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import gevent
from django.conf import settings
from gevent.lock import BoundedSemaphore
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    format_trace_id,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ..db.outages import Outage
from ..fastpath.http_client import UpstreamAttempt
from ..money import UNITS
from ..server.hooks import Periodic, worker_hooks
from . import request_events
from .request_events import OPERATIONS, Outcome, RequestEvent
from .write_behind import WriteBehind

logger = logging.getLogger(__name__)
MOST_WAITING = 2000
MOST_AT_ONCE = 50  # requests; making and encoding their spans blocks the worker for milliseconds
EXPORT_SECONDS = 1.0
STOP_SECONDS = 3.0  # for the last spans of a worker that stops
# OpenTelemetry's names for providers that have other names in the catalogue.
PROVIDERS = {
    "aws-bedrock": "aws.bedrock",
    "azure-openai": "azure.ai.openai",
    "google-vertex": "gcp.vertex_ai",
    "mistral": "mistral_ai",
}
SERVICE_NAME = "inference-gateway"
OTHER = "_OTHER"  # OpenTelemetry's word for an error without a name
HEADERS = {"traceparent": "HTTP_TRACEPARENT", "tracestate": "HTTP_TRACESTATE"}

_propagator = TraceContextTextMapPropagator()
_scope = InstrumentationScope("gateway")


def register() -> None:
    """Traces this worker's requests from now on."""
    traces = Traces()
    request_events.begin_trace = traces.begin
    request_events.observers.append(traces.note)
    worker_hooks.beat.append(Periodic(EXPORT_SECONDS, traces.export))
    worker_hooks.stop.append(traces.finish)


class RequestTrace:
    """Holds the ids of a request's spans, and whether they are sampled."""

    __slots__ = ("_provider", "attempts", "context", "parent")

    def __init__(self, provider: TracerProvider, meta: Mapping[str, Any]) -> None:
        self._provider = provider
        carrier = {name: meta[variable] for name, variable in HEADERS.items() if variable in meta}
        continued = _propagator.extract(carrier, Context())
        parent = get_current_span(continued).get_span_context()
        self.parent = parent if parent.is_valid else None
        trace_id = parent.trace_id if parent.is_valid else provider.id_generator.generate_trace_id()
        sampling = provider.sampler.should_sample(continued, trace_id, meta["REQUEST_METHOD"], SpanKind.SERVER)
        flags = TraceFlags(
            TraceFlags.SAMPLED if sampling.decision == Decision.RECORD_AND_SAMPLE else TraceFlags.DEFAULT
        )
        span_id = provider.id_generator.generate_span_id()
        self.context = SpanContext(trace_id, span_id, False, flags, sampling.trace_state)
        self.attempts: list[SpanContext] = []

    @property
    def trace_id(self) -> str:
        return format_trace_id(self.context.trace_id)

    def begin_attempt(self) -> bytes:
        own, span_id = self.context, self._provider.id_generator.generate_span_id()
        context = SpanContext(own.trace_id, span_id, False, own.trace_flags, own.trace_state)
        self.attempts.append(context)
        headers: dict[str, str] = {}
        _propagator.inject(headers, set_span_in_context(NonRecordingSpan(context), Context()))
        return "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode("latin-1")


class SpansNotSent(Exception):
    """Is raised if the collector did not accept spans."""


class Traces:
    """Collects sampled requests, and exports their spans."""

    def __init__(self) -> None:
        resource = Resource({"service.name": SERVICE_NAME}).merge(OTELResourceDetector().detect())
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._noted: WriteBehind[int, tuple[RequestEvent, RequestTrace]] = WriteBehind(
            self._send, most=MOST_WAITING, at_once=MOST_AT_ONCE
        )
        self._exporter = OTLPSpanExporter()
        self._exporting = BoundedSemaphore()
        self._outage = Outage("traces cannot be exported", logger.warning)

    def begin(self, meta: Mapping[str, Any]) -> RequestTrace:
        return RequestTrace(self._provider, meta)

    def note(self, event: RequestEvent) -> None:
        trace = event.trace
        if isinstance(trace, RequestTrace) and trace.context.trace_flags.sampled:
            self._noted.note(trace.context.span_id, (event, trace))

    def export(self) -> None:
        # stops at the first batch that the collector does not accept
        with self._exporting:
            try:
                self._noted.flush()
            except SpansNotSent as error:
                self._outage.failed(str(error))
            else:
                if left_out := self._noted.left_out():
                    logger.warning("requests beyond those that may wait for the collector: %d have no trace", left_out)

    def finish(self) -> None:
        with gevent.Timeout(STOP_SECONDS, False):
            self.export()

    def _send(self, batch: dict[int, tuple[RequestEvent, RequestTrace]]) -> None:
        resource = self._provider.resource
        spans = [span for event, trace in batch.values() for span in _spans_of(event, trace, resource)]
        if self._exporter.export(spans) is not SpanExportResult.SUCCESS:
            # The batch is dropped: newer requests matter more.
            raise SpansNotSent(f"{len(spans)} spans are lost: the collector is away, slow, or refuses them")
        self._outage.worked()


def _spans_of(event: RequestEvent, trace: RequestTrace, resource: Resource) -> Iterator[ReadableSpan]:
    since = event.began_at - event.started  # converts the monotonic clock to seconds since the epoch
    operation = OPERATIONS.get(event.endpoint, "")
    for number, (attempt, context) in enumerate(zip(event.attempts, trace.attempts, strict=True), 1):
        is_last = number == len(event.attempts)
        error = _error_of_attempt(event, attempt, is_last=is_last)
        answer = _of_answer(event, attempt) if is_last and error is None else {}
        phases = (("connected", attempt.connected_at), ("head", attempt.head_at))
        yield ReadableSpan(
            f"{operation} {attempt.model}".strip(),
            context,
            trace.context,
            resource,
            _known(_of_attempt(event, attempt, operation) | answer | {"error.type": error}),
            [Event(name, timestamp=_nanoseconds(moment + since)) for name, moment in phases if moment],
            kind=SpanKind.CLIENT,
            status=_status(error),
            start_time=_nanoseconds(attempt.began_at + since),
            end_time=_nanoseconds((attempt.ended_at or event.ended_at) + since),
            instrumentation_scope=_scope,
        )
    route = f"/v1/{event.endpoint}" if event.endpoint else ""
    failed = event.status >= 500 or event.outcome == Outcome.BROKEN
    error = (event.code or str(event.status)) if failed else None
    yield ReadableSpan(
        f"{event.method} {route}".rstrip(),
        trace.context,
        trace.parent,
        resource,
        _known(_of_request(event, route) | {"error.type": error}),
        kind=SpanKind.SERVER,
        status=_status(error),
        start_time=_nanoseconds(event.began_at),
        end_time=_nanoseconds(event.ended_at + since),
        instrumentation_scope=_scope,
    )


def _status(error: str | None) -> Status:
    return Status(StatusCode.UNSET if error is None else StatusCode.ERROR)


def _error_of_attempt(event: RequestEvent, attempt: UpstreamAttempt, *, is_last: bool) -> str | None:
    # Another attempt follows only if this one failed.
    if attempt.status >= 300:
        return str(attempt.status)
    if is_last and event.status < 500 and event.outcome != Outcome.BROKEN:
        return None
    return (event.code if is_last else None) or OTHER


def _of_request(event: RequestEvent, route: str) -> dict[str, Any]:
    settled = event.settled
    known_model = event.model if event.route else ""  # an unknown name may hold anything
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


def _of_attempt(event: RequestEvent, attempt: UpstreamAttempt, operation: str) -> dict[str, Any]:
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


def _of_answer(event: RequestEvent, attempt: UpstreamAttempt) -> dict[str, Any]:
    # Tokens are only on the span of the call that used them, so that they are counted once.
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


def _ids_of_answer(event: RequestEvent) -> dict[str, Any]:
    if event.generation_id is None:
        return {}
    return {"gen_ai.response.id": f"gen-{event.generation_id.hex}", "gen_ai.response.model": event.route}


def _known(attributes: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value not in (None, "")}


def _units(figure: int | None) -> float | None:
    return None if figure is None else figure / UNITS


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
