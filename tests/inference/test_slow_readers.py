"""A client that neither reads nor sends for GATEWAY_STREAM_IDLE_TIMEOUT is disconnected, and logged in a line."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests import bills
from tests.chat import PATH, question
from tests.conftest import OpenAccount, StartGateway
from tests.patience import eventually
from tests.rawhttp import TIMEOUT_SECONDS
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer
from tests.servers.pauses import SHORT, paused
from tests.servers.simulator import Simulator

IDLE_SECONDS = 1
# The answer has more bytes than the sockets between gateway and client hold.
LONG_WORDS, LONG_WORD = 3_000, "word" * 1000
TOO_SLOW = "took nothing of its answer for"


@pytest.fixture(scope="module")
def server(start_shared_gateway: StartGateway) -> GatewayServer:
    return start_shared_gateway(catalogue=None, GATEWAY_STREAM_IDLE_TIMEOUT=str(IDLE_SECONDS), **paused(SHORT))


@pytest.fixture
def customer(server: GatewayServer, open_account: OpenAccount) -> Customer:
    return open_account(server)


@contextmanager
def unread(customer: Customer, slug: str, word: str, words: int, **fields: object) -> Iterator[socket.socket]:
    """Asks for a long answer on a connection from which nothing is read."""
    messages = [{"role": "user", "content": f"{word} " * words}]
    body = json.dumps(question(slug, max_tokens=words, **fields) | {"messages": messages}).encode()
    head = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {customer.key}\r\n"
    with socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.settimeout(TIMEOUT_SECONDS)
        raw.connect(("127.0.0.1", customer.gateway.port))
        raw.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        yield raw


def logged_since(server: GatewayServer, before: str) -> str:
    """Returns what the gateway has logged since."""
    return server.log.removeprefix(before)


def test_a_stream_that_is_not_read_is_billed_for_what_the_sockets_took(
    server: GatewayServer, customer: Customer, simulator: Simulator
) -> None:
    before, cut = server.log, simulator.stats("endless")["cut"]
    with unread(customer, "endless", LONG_WORD, 1, stream=True) as raw:
        assert eventually(lambda: [record.ending for record in bills.records(customer)] == ["client_left"], within=30)
        taken = b"".join(iter(lambda: raw.recv(65536), b""))
    (record,) = bills.records(customer)
    assert (record.interrupted, record.usage_estimated) == (True, True)
    assert bills.debits(customer) == [record.cost]
    assert 0 < record.completion_tokens <= taken.count(b'"content":') * len(LONG_WORD)
    assert b"[DONE]" not in taken
    assert eventually(lambda: simulator.stats("endless")["cut"] == cut + 1)
    assert eventually(lambda: TOO_SLOW in logged_since(server, before), within=30)
    assert "Traceback" not in logged_since(server, before)


def test_a_whole_answer_that_is_not_read_ends_its_connection(server: GatewayServer, customer: Customer) -> None:
    before = server.log
    with unread(customer, "echo", LONG_WORD, LONG_WORDS):
        assert eventually(lambda: TOO_SLOW in logged_since(server, before), within=30)
    assert "Traceback" not in logged_since(server, before)


@pytest.mark.parametrize(
    ("sent", "answered"),
    [(b"", b""), (b"POST /v1/chat/completions HTTP/1.1\r\nHost: localh", b"HTTP/1.1 408")],
    ids=["nothing", "half"],
)
def test_a_client_that_never_finishes_its_head_is_let_go(server: GatewayServer, sent: bytes, answered: bytes) -> None:
    before = server.log
    with socket.create_connection(("127.0.0.1", server.port), timeout=TIMEOUT_SECONDS) as raw:
        raw.sendall(sent)
        assert raw.recv(12) == answered
    written = [line for line in logged_since(server, before).splitlines() if " gateway.access " not in line]
    assert written == []
