"""Traces arrive at a collector by OTLP (docs/operations.md#traces)."""

import contextlib
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv.attributes import error_attributes, http_attributes, server_attributes, url_attributes

from gateway.observing.request_events import RequestEvent
from gateway.observing.tracing import MOST_AT_ONCE, MOST_WAITING, PROVIDERS, Traces
from tests.chat import HELLO, PATH, question
from tests.conftest import OpenAccount, StartGateway
from tests.inference.auto import catalogue
from tests.servers.collector import Collector
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer
from tests.servers.process import free_port
from tests.servers.simulator import Simulator

TRACE_ID, PARENT_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED = {"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-01", "tracestate": "acme=t61rcWkgMzE,else=1"}
CONVENTIONS = {
    value
    for module in (gen_ai_attributes, error_attributes, http_attributes, server_attributes, url_attributes)
    for name, value in vars(module).items()
    if name.isupper() and isinstance(value, str)
}


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with contextlib.closing(Collector().start()) as running:
        yield running


@pytest.fixture(scope="module")
def server(start_shared_gateway: StartGateway, simulator: Simulator, collector: Collector) -> GatewayServer:
    return start_shared_gateway(
        catalogue=catalogue(simulator.url),
        GATEWAY_AUTO_FAILOVER="true",
        LOG_FORMAT="json",
        ACCESS_LOG="all",
        OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
        OTEL_RESOURCE_ATTRIBUTES="deployment.environment.name=test",
    )


@pytest.fixture
def customer(server: GatewayServer, open_account: OpenAccount) -> Customer:
    return open_account(server)


def ask(customer: Customer, slug: str, headers: dict[str, str] | None = None, **fields: Any) -> tuple[str, Any]:
    """Sends a question; returns the request's id and the response."""
    reply = customer.http.post(PATH, json=question(slug, **fields), headers=headers)
    return reply.headers["X-Request-Id"], reply


def test_a_request_and_its_upstream_call_continue_the_clients_trace(customer: Customer, collector: Collector) -> None:
    request_id, reply = ask(customer, "describe", SAMPLED, max_tokens=16)
    server, (client,) = collector.of_request(request_id)
    assert (server.trace_id, server.parent_id, server.trace_state) == (TRACE_ID, PARENT_ID, SAMPLED["tracestate"])
    assert (client.trace_id, client.parent_id) == (TRACE_ID, server.span_id)
    got = json.loads(reply.json()["choices"][0]["message"]["content"])["headers"]
    assert got["traceparent"] == f"00-{TRACE_ID}-{client.span_id}-01"
    assert got["tracestate"] == SAMPLED["tracestate"]
    assert (server.kind, client.kind) == ("SPAN_KIND_SERVER", "SPAN_KIND_CLIENT")
    assert server.starts_at <= client.starts_at <= client.events["connected"] <= client.events["head"]
    assert client.events["head"] <= client.ends_at <= server.ends_at


def test_a_whole_answers_span_follows_the_conventions(
    customer: Customer, collector: Collector, simulator: Simulator
) -> None:
    request_id, reply = ask(customer, "echo")
    body = reply.json()
    server, (client,) = collector.of_request(request_id)
    assert (server.name, client.name) == ("POST /v1/chat/completions", "chat echo")
    assert (server.status, client.status) == ("STATUS_CODE_UNSET", "STATUS_CODE_UNSET")
    assert server.parent_id == ""
    shared = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "sim",
        "gen_ai.response.id": body["id"],
        "gen_ai.response.model": body["model"],
        "gateway.provider": "sim",
        "http.response.status_code": 200,
    }
    assert client.attributes == shared | {
        "gen_ai.request.model": "echo",
        "gen_ai.request.stream": False,
        "gen_ai.usage.input_tokens": body["usage"]["prompt_tokens"],
        "gen_ai.usage.output_tokens": body["usage"]["completion_tokens"],
        "gen_ai.usage.cache_read.input_tokens": 0,
        "gen_ai.usage.reasoning.output_tokens": 0,
        "server.address": "127.0.0.1",
        "server.port": int(simulator.origin.rpartition(":")[2]),
        "gateway.route": body["model"],
    }
    key_id = server.attributes.pop("gateway.key.id")
    assert server.attributes == shared | {
        "http.request.method": "POST",
        "http.route": "/v1/chat/completions",
        "url.path": "/v1/chat/completions",
        "url.scheme": "http",
        "gen_ai.request.model": "sim/test/echo",
        "gateway.request.id": request_id,
        "gateway.outcome": "served",
        "gateway.account.id": customer.id,
        "gateway.region": body["model"].rpartition("/")[2],
        "gateway.cost": pytest.approx(body["usage"]["cost"]),
        "gateway.currency": "EUR",
        "gateway.energy_wh": pytest.approx(body["gateway_metadata"]["energy_wh"]),
        "gateway.carbon_gco2e": pytest.approx(body["gateway_metadata"]["carbon_gco2e"]),
    }
    own = {name for name in {**server.attributes, **client.attributes} if not name.startswith("gateway.")}
    assert own <= CONVENTIONS
    assert server.resource["service.name"] == "inference-gateway"
    assert server.resource["deployment.environment.name"] == "test"
    for span in (server, client):
        assert HELLO[0]["content"].encode() not in span.raw
        assert customer.key.encode() not in span.raw
    lines = [json.loads(line) for line in customer.gateway.log.splitlines()]
    assert [line["trace"] for line in lines if line.get("request") == request_id] == [server.trace_id]
    assert key_id in {line.get("key") for line in lines}


def test_a_stream_is_a_span_to_its_last_frame(customer: Customer, collector: Collector) -> None:
    (request_id, _), (broken, _) = ask(customer, "echo", stream=True), ask(customer, "breaks", stream=True)
    server, (client,) = collector.of_request(request_id)
    first = client.attributes["gen_ai.response.time_to_first_chunk"]
    assert 0 < first <= (client.ends_at - client.starts_at) / 1e9
    assert client.attributes["gen_ai.request.stream"] is True
    assert client.attributes["gen_ai.usage.output_tokens"] == 2
    assert server.attributes["gateway.outcome"] == "served"

    server, (client,) = collector.of_request(broken)
    for span in (server, client):
        assert (span.status, span.attributes["error.type"]) == ("STATUS_CODE_ERROR", "provider_error")
        assert span.attributes["http.response.status_code"] == 200
    assert server.attributes["gateway.outcome"] == "broken"


def test_each_candidate_that_is_tried_is_a_span(customer: Customer, collector: Collector) -> None:
    errors = {"first-status-503": "503", "first-refused": "_OTHER", "first-malformed-0": "_OTHER"}
    asked = {slug: ask(customer, f"auto/test/{slug}") for slug in errors}
    for slug, (request_id, reply) in asked.items():
        server, (first, second) = collector.of_request(request_id)
        assert (first.status, first.attributes["error.type"]) == ("STATUS_CODE_ERROR", errors[slug])
        assert "gen_ai.usage.output_tokens" not in first.attributes
        assert (server.status, second.status) == ("STATUS_CODE_UNSET", "STATUS_CODE_UNSET")
        assert second.attributes["gen_ai.response.id"] == reply.json()["id"]
        assert server.attributes["gen_ai.request.model"] == f"auto/test/{slug}"
        assert server.attributes["gen_ai.response.model"] == f"second/test/{slug}/FRPAR"
        assert second.starts_at >= first.starts_at


def test_failures_are_errors_and_refusals_are_not(customer: Customer, collector: Collector) -> None:
    failed, _ = ask(customer, "status-503")
    refused, refusal = ask(customer, "my secret")
    missed = customer.http.get("/v1/generation/gen-01a201f7fff47eca80e0921f6d834a0e")

    server, (client,) = collector.of_request(failed)
    assert (server.status, server.attributes["error.type"]) == ("STATUS_CODE_ERROR", "provider_error")
    assert (client.status, client.attributes["error.type"]) == ("STATUS_CODE_ERROR", "503")

    server, below = collector.of_request(refused)
    assert (below, server.status) == ([], "STATUS_CODE_UNSET")
    assert server.attributes["http.response.status_code"] == refusal.status_code
    assert server.attributes["gateway.error.code"] == refusal.json()["error"]["code"]
    assert b"secret" not in server.raw  # a name that is not a model may be a secret

    server, below = collector.of_request(missed.headers["X-Request-Id"])
    assert (server.name, below) == ("GET /v1/generation/<generation_id>", [])
    assert not {"url.path", "gen_ai.operation.name", "error.type"} & set(server.attributes)
    assert server.attributes["http.response.status_code"] == 404


def test_what_the_client_does_not_sample_is_passed_on_and_not_collected(
    customer: Customer, collector: Collector
) -> None:
    unsampled = {"traceparent": f"00-{'ab' * 16}-{PARENT_ID}-00"}
    _, reply = ask(customer, "describe", unsampled, max_tokens=16)
    got = json.loads(reply.json()["choices"][0]["message"]["content"])["headers"]
    assert got["traceparent"].startswith(f"00-{'ab' * 16}-")
    assert got["traceparent"].endswith("-00")
    request_id, _ = ask(customer, "echo", {"traceparent": "nonsense\t00", "tracestate": "a=1"})
    server, _ = collector.of_request(request_id)
    assert (server.parent_id, server.trace_state) == ("", "")
    assert "ab" * 16 not in {span.trace_id for span in collector.spans}


def test_a_worker_that_stops_sends_what_it_still_has(
    server: GatewayServer, customer: Customer, collector: Collector
) -> None:
    request_ids = [ask(customer, "echo")[0] for _ in range(3)]
    server.stop()
    sent = {span.attributes.get("gateway.request.id") for span in collector.spans}
    server.start()
    assert sent.issuperset(request_ids)


def test_without_a_collector_nothing_is_traced_and_nothing_passed_on(account: Customer) -> None:
    _, reply = ask(account, "describe", SAMPLED, max_tokens=16)
    got = json.loads(reply.json()["choices"][0]["message"]["content"])["headers"]
    assert not {"traceparent", "tracestate"} & set(got)
    # The redis package imports parts of `opentelemetry` if it finds them.
    names = "('gateway.observing.tracing', 'opentelemetry.sdk.trace', 'opentelemetry.exporter')"
    loaded = f"import sys; print([name for name in sys.modules if name.startswith({names})])"
    assert account.gateway.manage("shell", "-v0", "-c", loaded).ok() == "[]"


def test_a_collector_that_is_away_costs_spans_and_a_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.01")
    caplog.set_level(logging.WARNING, "gateway.observing.tracing")
    traces = Traces()
    for _ in range(MOST_WAITING + 3):
        event = RequestEvent("GET", trace=traces.begin({"REQUEST_METHOD": "GET"}))
        event.complete()
        traces.note(event)
    for _ in range(MOST_WAITING // MOST_AT_ONCE + 1):
        traces.export()
    assert [record.getMessage() for record in caplog.records] == [
        "traces cannot be exported: 50 spans are lost: the collector is away, slow, or refuses them",
        "requests beyond those that may wait for the collector: 3 have no trace",
    ]


def test_providers_are_named_as_the_conventions_name_them() -> None:
    known = {name.value for name in gen_ai_attributes.GenAiProviderNameValues}
    assert set(PROVIDERS.values()) <= known
