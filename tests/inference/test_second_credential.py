"""Rotating a provider's credential refuses no request: `ACME_API_KEY_NEXT` is used if `ACME_API_KEY` is refused."""

import json
import socket
from collections.abc import Iterator

import pytest

from tests import bills
from tests.catalogue import catalogue_for, model, provider
from tests.chat import Stream, ask
from tests.conftest import OpenAccount, StartGateway
from tests.inference.odd_upstream import http
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer
from tests.servers.listener import Listener, read_request
from tests.servers.simulator import Simulator

FIRST, SECOND = "acme-first-that-must-not-leak", "acme-second-that-must-not-leak"
USAGE = {"prompt_tokens": 2, "completion_tokens": 1}
ANSWER = {"id": "x", "choices": [{"index": 0, "message": {"content": "Hi"}, "finish_reason": "stop"}], "usage": USAGE}
CHUNK = {"id": "x", "choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}], "usage": USAGE}


class Rotating:
    """Accepts the credentials in `taken`, and refuses others with a status and a message that quotes them."""

    def __init__(self) -> None:
        self.taken, self.status = {FIRST}, "401 Unauthorized"
        self.asked: list[str] = []
        self._listener = Listener(self._answer)
        self.url = f"http://127.0.0.1:{self._listener.port}/v1"
        self.close = self._listener.close

    def _answer(self, talk: socket.socket) -> None:
        request = read_request(talk)
        credential = request.headers["authorization"].removeprefix("Bearer ")
        self.asked.append(credential)
        if credential not in self.taken:
            refusal = {"error": {"message": f"Not taken: {credential}"}}
            talk.sendall(http(self.status, json.dumps(refusal).encode(), "Content-Type: application/json"))
        elif request.body.get("stream"):
            frames = f"data: {json.dumps(CHUNK)}\n\ndata: [DONE]\n\n".encode()
            talk.sendall(http("200 OK", frames, "Content-Type: text/event-stream"))
        else:
            talk.sendall(http("200 OK", json.dumps(ANSWER).encode(), "Content-Type: application/json"))


@pytest.fixture
def acme() -> Iterator[Rotating]:
    upstream = Rotating()
    yield upstream
    upstream.close()


@pytest.fixture
def rotating(start_gateway: StartGateway, simulator: Simulator, acme: Rotating) -> GatewayServer:
    content = catalogue_for(simulator.url, model("m", provider="acme"))
    content["providers"].append(provider("acme", acme.url, credential_env="ACME_API_KEY"))
    return start_gateway(catalogue=content, ACME_API_KEY=FIRST, ACME_API_KEY_NEXT=SECOND)


@pytest.fixture
def customer(rotating: GatewayServer, open_account: OpenAccount) -> Customer:
    return open_account(rotating)


def test_the_second_is_tried_if_the_first_is_refused(
    customer: Customer, acme: Rotating, rotating: GatewayServer
) -> None:
    assert ask(customer, "acme/test/m").status_code == 200
    assert acme.asked == [FIRST], "a request with a working credential must reach the provider once"
    for acme.status in ("401 Unauthorized", "403 Forbidden"):
        acme.taken, acme.asked[:] = {SECOND}, []
        assert ask(customer, "acme/test/m", max_tokens=9).status_code == 200
        assert Stream.of(ask(customer, "acme/test/m", stream=True)).text == "Hi"
        assert acme.asked == [FIRST, SECOND] * 2
    assert len(bills.records(customer)) == 5, "each request must be billed once"
    line = "provider acme refuses its credential, so the one in _NEXT is used: HTTP 401"
    assert rotating.log.count(line) == 1, "the line must be logged at most once a minute"
    acme.taken = set()
    reply = ask(customer, "acme/test/m")
    assert reply.status_code == 503
    assert acme.asked[-2:] == [FIRST, SECOND]
    for secret in (FIRST, SECOND):
        assert secret not in reply.text + rotating.log
