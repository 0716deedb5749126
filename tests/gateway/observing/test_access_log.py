"""A server writes its log in the form of ACCESS_LOG and LOG_FORMAT (docs/operations.md#the-log)."""

import json
from typing import Any

import pytest
import requests

from gateway.errors import MissingAuthorization
from gateway.observing.access_log import MOST_WAITING, AccessLines
from gateway.observing.request_events import RequestEvent
from tests.chat import HELLO
from tests.conftest import OpenAccount, StartGateway
from tests.patience import eventually
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer


@pytest.fixture(scope="module")
def server(start_shared_gateway: StartGateway) -> GatewayServer:
    return start_shared_gateway(LOG_FORMAT="json", ACCESS_LOG="all")


def line_of(server: GatewayServer, request_id: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = []

    def is_there() -> bool:
        found.extend(line for line in lines(server) if line.get("request") == request_id)
        return bool(found)

    eventually(is_there)
    assert len(found) == 1
    return found[0]


def lines(server: GatewayServer) -> list[dict[str, Any]]:
    return [json.loads(line) for line in server.log.splitlines()]


def test_every_line_of_the_log_is_json(server: GatewayServer, open_account: OpenAccount) -> None:
    open_account(server).http.get("/v1/models")
    assert eventually(lambda: {"gunicorn.error", "gateway.access"} <= {line["logger"] for line in lines(server)})


def test_an_answer_is_a_line_of_ids_tokens_cost_and_times(server: GatewayServer, open_account: OpenAccount) -> None:
    customer = open_account(server)
    reply = customer.http.post("/v1/chat/completions", json={"model": "sim/test/echo", "messages": HELLO})
    line = line_of(server, reply.headers["X-Request-Id"])
    usage = reply.json()["usage"]
    assert line["generation"] == reply.json()["id"]
    assert (line["endpoint"], line["status"], line["outcome"]) == ("chat/completions", 200, "served")
    assert line["prompt_tokens"] == usage["prompt_tokens"]
    assert line["completion_tokens"] == usage["completion_tokens"]
    assert float(line["cost"]) == pytest.approx(usage["cost"])
    assert line["route"].startswith("sim/test/echo/")
    assert line["account"]
    assert line["key"]
    assert 0 < line["upstream_head_ms"] <= line["duration_ms"]
    assert "alias" not in line
    assert "stream" not in line


def test_a_request_by_alias_has_the_alias_id(server: GatewayServer, open_account: OpenAccount) -> None:
    customer = open_account(server)
    alias = customer.http.post("/v1/aliases", json={"name": "house", "target": "sim/test/echo/FRPAR"}).json()
    reply = customer.http.post("/v1/chat/completions", json={"model": "alias/house", "messages": HELLO})
    assert line_of(server, reply.headers["X-Request-Id"])["alias"] == alias["id"]


def test_a_stream_is_a_line_once_it_is_closed(server: GatewayServer, open_account: OpenAccount) -> None:
    asked = {"model": "sim/test/echo", "messages": HELLO, "stream": True}
    reply = open_account(server).http.post("/v1/chat/completions", json=asked)
    line = line_of(server, reply.headers["X-Request-Id"])
    assert line["outcome"] == "served"
    assert line["generation"] == reply.headers["X-Generation-Id"]
    assert line["stream"] is True
    assert 0 < line["first_output_ms"] <= line["duration_ms"]


def test_a_refusal_says_its_code_and_nothing_that_was_sent(server: GatewayServer, open_account: OpenAccount) -> None:
    asked = {"model": "secret-model", "messages": [{"role": "user", "content": "secret-words"}]}
    reply = open_account(server).http.post("/v1/chat/completions", json=asked)
    line = line_of(server, reply.headers["X-Request-Id"])
    assert (line["status"], line["outcome"], line["code"]) == (
        reply.status_code,
        "refused",
        reply.json()["error"]["code"],
    )
    assert "secret" not in server.log


def test_who_is_unknown_has_no_account(server: GatewayServer) -> None:
    key = "sk-gw-" + "x" * 43
    reply = requests.post(f"{server.base_url}/chat/completions", headers={"Authorization": f"Bearer {key}"}, timeout=9)
    line = line_of(server, reply.headers["X-Request-Id"])
    assert (line["status"], line["code"]) == (401, "api_key_not_registered")
    assert "account" not in line
    assert key not in server.log


@pytest.mark.parametrize(
    ("path", "endpoint", "status"),
    [
        ("/v1/generations", "generations", 200),
        ("/v1/generation/gen-unknown", "generation/<generation_id>", 404),
        ("/api/v1/models/", "models", 200),
        ("/v1/nothing/here", None, 404),
    ],
)
def test_other_endpoints_are_lines_without_ids(
    server: GatewayServer, open_account: OpenAccount, path: str, endpoint: str | None, status: int
) -> None:
    customer = open_account(server)
    reply = customer.http.get(path)
    line = line_of(server, reply.headers["X-Request-Id"])
    assert (line.get("endpoint"), line["status"]) == (endpoint, status)


def test_errors_only_unless_it_is_said_otherwise(account: Customer) -> None:
    server, http = account.gateway, account.http
    served, refused = http.get("/v1/models"), http.get("/v1/generation/gen-unknown")
    assert eventually(lambda: refused.headers["X-Request-Id"] in server.log)
    assert served.headers["X-Request-Id"] not in server.log
    line = next(line for line in server.log.splitlines() if refused.headers["X-Request-Id"] in line)
    assert "INFO gateway.access request=req-" in line
    assert "status=404" in line


def test_a_flood_of_requests_writes_a_limited_number_of_lines_and_counts_the_rest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lines = AccessLines()
    for _ in range(MOST_WAITING + 7):
        event = RequestEvent("POST", "chat/completions")
        event.answered(401, MissingAuthorization())
        event.complete()
        lines.note(event)
    with caplog.at_level("INFO", "gateway.access"):
        lines.write()
        lines.write()
    assert len(caplog.messages) == MOST_WAITING + 1
    assert caplog.messages[-1] == "requests without a line of their own: 7"
