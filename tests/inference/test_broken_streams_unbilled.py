"""With GATEWAY_BILL_BROKEN_STREAMS=false a stream that its provider breaks costs nothing (docs/api.md#endings)."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests import bills
from tests.catalogue import catalogue_for, model, provider
from tests.chat import HELLO, Stream
from tests.conftest import OpenAccount, StartGateway
from tests.inference.messages.events import Events as MessageEvents
from tests.inference.odd_answers import NONSENSE, SSE, chunk, usage
from tests.inference.odd_upstream import WAIT, OddUpstream, Script, listening
from tests.inference.responses.events import Events as ResponseEvents
from tests.inference.shapes import CHAT
from tests.patience import eventually
from tests.rawhttp import connect
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer
from tests.servers.simulator import Simulator

Json = dict[str, Any]
ODD = "odd-breaks"
HEAD = f"HTTP/1.1 200 OK\r\n{SSE}\r\nConnection: close\r\n\r\n".encode()
HELLO_THERE = [chunk({"content": "hello"}), chunk({"content": " there"})]


def at(odd: OddUpstream) -> Json:
    return provider(ODD, f"http://127.0.0.1:{odd.port}/v1")


def data(*events: Json) -> bytes:
    return b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events)


ERROR = data({"error": {"message": "No more.", "code": 500}})
COUNTED = {**chunk({"content": "hello there"}), "usage": {"prompt_tokens": 10, "completion_tokens": 5}}
# Providers break these streams after some output.
BROKEN: dict[str, Script] = {
    "cut": HEAD + data(*HELLO_THERE),
    "cut-counted": HEAD + data(COUNTED),
    "nonsense": HEAD + data(*HELLO_THERE) + NONSENSE * 2,
    "error": HEAD + data(*HELLO_THERE) + ERROR,
    "failure": HEAD + data(*HELLO_THERE, chunk({}, "error")),
    "silent": (HEAD + data(*HELLO_THERE), WAIT),
}
SCRIPTS: dict[str, Script] = {
    **BROKEN,
    "whole": HEAD + data(*HELLO_THERE, chunk({}, "stop"), usage()) + b"data: [DONE]\n\n",
    "endless": (HEAD, *(data(chunk({"content": "on "})),) * 1000),
}


@pytest.fixture(scope="module")
def odd() -> Iterator[OddUpstream]:
    with listening(SCRIPTS) as upstream:
        yield upstream
        upstream.may_go_on.set()


@pytest.fixture(scope="module")
def forgiving(simulator: Simulator, odd: OddUpstream, start_shared_gateway: StartGateway) -> GatewayServer:
    catalogue = catalogue_for(simulator.url, *(model(name, provider=ODD, upstream_model=name) for name in SCRIPTS))
    catalogue["providers"].append(at(odd))
    budgets = {"GATEWAY_STREAM_IDLE_TIMEOUT": "0.5", "GATEWAY_OVERALL_TIMEOUT": "2"}
    return start_shared_gateway(catalogue=catalogue, GATEWAY_BILL_BROKEN_STREAMS="false", **budgets).stocked()


@pytest.fixture
def customer(forgiving: GatewayServer, open_account: OpenAccount) -> Customer:
    return open_account(forgiving)


def stream(customer: Customer, name: str, **fields: Any) -> Stream:
    body = {"model": f"{ODD}/test/{name}", "messages": HELLO, "stream": True, **fields}
    return Stream.of(customer.http.post(CHAT, json=body))


@pytest.mark.parametrize("name", BROKEN)
def test_a_stream_that_its_provider_breaks_costs_nothing(customer: Customer, name: str) -> None:
    broken = stream(customer, name)
    assert broken.text == "hello there"
    (record,) = bills.records(customer)
    assert record.ending == ("stalled" if name == "silent" else "upstream_broke")
    assert (record.cost, record.interrupted) == (None, True)
    assert record.completion_tokens == (5 if name == "cut-counted" else 3)
    assert bills.debits(customer) == []
    assert bills.balance(customer) == 100


def test_the_error_says_that_nothing_was_billed(customer: Customer) -> None:
    (error,) = stream(customer, "cut").errors
    assert error["message"].endswith("Nothing was billed.")


def test_a_stream_that_fell_silent_closes_without_a_cost(customer: Customer) -> None:
    broken = stream(customer, "silent")
    assert broken.done
    assert {"cost", "remaining_balance"} & broken.chunks[-1]["usage"].keys() == set()


def test_messages_and_responses_say_it_too(customer: Customer) -> None:
    body: Json = {"model": f"{ODD}/test/cut", "stream": True}
    message = customer.http.post("/v1/messages", json={**body, "messages": HELLO, "max_tokens": 16})
    assert MessageEvents.of(message).last["error"]["message"].endswith("Nothing was billed.")
    response = ResponseEvents.of(customer.http.post("/v1/responses", json={**body, "input": "hi"})).final
    assert response["error"]["message"].endswith("Nothing was billed.")
    assert "cost" not in response["usage"]
    assert [record.cost for record in bills.records(customer)] == [None, None]


def test_a_record_without_a_cost_is_one_everywhere(customer: Customer) -> None:
    broken = stream(customer, "cut-counted")
    kept = customer.http.get(f"/v1/generations/{broken.frames[0]['id']}").json()
    assert "cost" not in kept
    assert stream(customer, "whole").done
    assert [record.cost is None for record in bills.records(customer)] == [True, False]
    assert len(bills.debits(customer)) == 1


def test_a_stream_that_ends_well_is_billed(customer: Customer) -> None:
    assert stream(customer, "whole").chunks[-1]["usage"]["cost"] > 0
    assert len(bills.debits(customer)) == 1


def test_a_stream_that_outlasts_the_overall_budget_is_billed(customer: Customer) -> None:
    assert stream(customer, "endless").chunks[-1]["usage"]["cost"] > 0
    (record,) = bills.records(customer)
    assert (record.ending, bills.debits(customer)) == ("stalled", [record.cost])


def test_a_client_that_left_is_billed(customer: Customer, odd: OddUpstream) -> None:
    body = json.dumps({"model": f"{ODD}/test/endless", "messages": HELLO, "stream": True}).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {customer.key}\r\n"
    with connect(customer.gateway) as raw:
        raw.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        while b"data: " not in raw.recv(65536):
            pass
    assert eventually(lambda: bool(bills.records(customer)), within=20)
    (record,) = bills.records(customer)
    assert (record.ending, bills.debits(customer)) == ("client_left", [record.cost])


def test_broken_streams_are_billed_unless_the_operator_says_otherwise(
    gateway: GatewayServer, account: Customer, odd: OddUpstream
) -> None:
    gateway.offer(providers=[at(odd)], models=[model("cut", provider=ODD, upstream_model="cut")])
    (error,) = stream(account, "cut").errors
    assert error["message"].endswith("What was delivered is billed.")
    (record,) = bills.records(account)
    assert bills.debits(account) == [record.cost]
