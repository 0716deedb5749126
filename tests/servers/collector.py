"""Runs an OTLP collector over HTTP, which decodes what is sent to `/v1/traces` by the official protobuf."""

import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1 import trace_pb2

from tests.patience import eventually


@dataclass(frozen=True, slots=True)
class CollectedSpan:
    """Holds a span as it was received, with ids in hex. `raw` is the whole span in protobuf's bytes."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    trace_state: str
    starts_at: int
    ends_at: int
    status: str
    attributes: dict[str, Any]
    events: dict[str, int]
    resource: dict[str, Any]
    raw: bytes


class Collector:
    """Runs a collector on a port of its own."""

    def __init__(self) -> None:
        self.spans: list[CollectedSpan] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:  # http.server calls it by this name
                body = self.rfile.read(int(self.headers["Content-Length"]))
                accepted = self.path == "/v1/traces" and self.headers["Content-Type"] == "application/x-protobuf"
                if accepted:
                    collector.spans += _spans_of(ExportTraceServiceRequest.FromString(body))
                self.send_response(200 if accepted else 404)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Turns off http.server's log."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def start(self) -> Self:
        """Serves from now on, in a thread."""
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def of_request(self, request_id: str) -> tuple[CollectedSpan, list[CollectedSpan]]:
        """Waits for a request's server span and returns it with the client spans below it, by their starts.

        A request's spans arrive together, the server span last.
        """
        found: list[CollectedSpan] = []

        def is_there() -> bool:
            found[:] = [span for span in self.spans if span.attributes.get("gateway.request.id") == request_id]
            return bool(found)

        assert eventually(is_there)
        (server,) = found
        below = [span for span in self.spans if span.parent_id == server.span_id]
        return server, sorted(below, key=lambda span: span.starts_at)


def _spans_of(sent: ExportTraceServiceRequest) -> list[CollectedSpan]:
    return [
        CollectedSpan(
            name=span.name,
            kind=trace_pb2.Span.SpanKind.Name(span.kind),
            trace_id=span.trace_id.hex(),
            span_id=span.span_id.hex(),
            parent_id=span.parent_span_id.hex(),
            trace_state=span.trace_state,
            starts_at=span.start_time_unix_nano,
            ends_at=span.end_time_unix_nano,
            status=trace_pb2.Status.StatusCode.Name(span.status.code),
            attributes=_values(span.attributes),
            events={event.name: event.time_unix_nano for event in span.events},
            resource=_values(of_resource.resource.attributes),
            raw=span.SerializeToString(),
        )
        for of_resource in sent.resource_spans
        for of_scope in of_resource.scope_spans
        for span in of_scope.spans
    ]


def _values(attributes: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in attributes}
