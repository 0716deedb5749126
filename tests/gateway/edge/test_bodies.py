"""Large bodies are refused before or while they are read, and those within the bound cost little memory."""

import contextlib
import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import requests

from tests import bills
from tests.chat import PATH
from tests.conftest import OpenAccount, StartGateway
from tests.envelope import message, refusal
from tests.patience import eventually
from tests.rawhttp import connect, read_response
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer
from tests.servers.simulator import Simulator

pytestmark = pytest.mark.also_fastpath_off

MIB = 1024 * 1024
LIMIT = 32 * MIB
TOO_LARGE = (413, "invalid_request_error", "request_too_large", None)
INVALID = (400, "invalid_request_error", "invalid_request_error", "messages")
PATHS = [PATH, "/v1/completions", "/v1/embeddings", "/api/v1/chat/completions"]


def head(customer: Customer, framing: str, path: str = PATH) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {customer.key}", framing, "", ""]
    return "\r\n".join(lines).encode()


def chunks(size: int, count: int) -> Iterator[bytes]:
    """Yields `count` chunks of `size` bytes, and the end of the body."""
    for _ in range(count):
        yield b"%x\r\n%s\r\n" % (size, b" " * size)
    yield b"0\r\n\r\n"


def answer_to(gateway: GatewayServer, parts: Iterator[bytes] | list[bytes]) -> requests.Response:
    """Sends everything, reads the answer, and checks that the connection is closed without a reset."""
    with connect(gateway) as raw, raw.makefile("rb") as answers:
        for part in parts:
            raw.sendall(part)
        reply = read_response(answers)
        raw.shutdown(socket.SHUT_WR)
        assert answers.read() == b""
    return reply


@pytest.mark.parametrize("path", PATHS)
def test_a_declared_body_above_32_mib_is_refused_before_a_byte_of_it(
    gateway: GatewayServer, account: Customer, path: str
) -> None:
    with connect(gateway) as raw, raw.makefile("rb") as answers:
        raw.sendall(head(account, f"Content-Length: {LIMIT + 1}", path))
        reply = read_response(answers)
    assert refusal(reply) == TOO_LARGE
    assert str(LIMIT) in message(reply)
    assert reply.headers["Connection"] == "close"


@pytest.mark.parametrize("path", PATHS)
def test_an_expect_continue_for_too_large_a_body_is_refused_at_once(
    gateway: GatewayServer, account: Customer, path: str
) -> None:
    with connect(gateway) as raw, raw.makefile("rb") as answers:
        raw.sendall(head(account, f"Content-Length: {LIMIT + 1}\r\nExpect: 100-continue", path))
        assert answers.readline().split()[1] == b"413"
        assert b"100 Continue" not in answers.read()


def test_a_refused_upload_gets_its_answer_and_not_a_reset(gateway: GatewayServer, account: Customer) -> None:
    """The client sends everything before it reads."""
    declared = [head(account, f"Content-Length: {40 * MIB}"), *[b" " * MIB] * 40]
    assert refusal(answer_to(gateway, declared)) == TOO_LARGE


def test_a_chunked_body_is_counted(gateway: GatewayServer, account: Customer) -> None:
    chunked = [head(account, "Transfer-Encoding: chunked"), *chunks(MIB, 40)]
    reply = answer_to(gateway, chunked)
    assert refusal(reply) == TOO_LARGE
    assert str(LIMIT) in message(reply)


@pytest.mark.parametrize("path", PATHS)
def test_a_chunked_body_needs_no_length(account: Customer, path: str) -> None:
    """The body has a hundred small pieces; with an iterator the client library sends no Content-Length."""
    asked = {
        "completions": {"model": "sim/test/echo", "prompt": "hi"},
        "embeddings": {"model": "sim/test/embedding", "input": "hi"},
        "chat/completions": {"model": "sim/test/echo", "messages": [{"role": "user", "content": "hi"}]},
    }
    content = json.dumps(asked[path.partition("v1/")[2]]).encode()
    pieces = (content[at : at + 3] for at in range(0, len(content), 3))
    assert account.http.post(path, data=pieces).status_code == 200


@pytest.mark.parametrize("path", PATHS)
def test_a_body_of_very_many_fields_is_refused_before_anything_looks_at_them(account: Customer, path: str) -> None:
    body = {"model": "sim/test/echo", **{f"k{number}": 1 for number in range(30_000)}}
    reply = account.http.post(path, data=json.dumps(body).encode())
    assert refusal(reply) == (400, "invalid_request_error", "invalid_request_error", None)
    assert "more than 500 fields" in message(reply)


def messages_body(count: int, size: int, **fields: object) -> bytes:
    """Builds a chat of `count` messages, each of `size` bytes."""
    messages = [{"role": "user", "content": f"{number} ".ljust(size - 40, "x")} for number in range(count)]
    return json.dumps({"model": "sim/test/echo", "messages": messages, "max_tokens": 2, **fields}).encode()


class Measured(NamedTuple):
    """Holds a gateway for requests with one number of messages, and its worker's memory before them."""

    server: GatewayServer
    messages: int
    before: int


@pytest.fixture(
    scope="module",
    params=[pytest.param(8_000, id="8 MB"), pytest.param(31_000, marks=pytest.mark.campaign, id="31 MB")],
)
def measured(request: pytest.FixtureRequest, start_shared_gateway: StartGateway) -> Measured:
    server = start_shared_gateway()
    with contextlib.closing(Customer.open(server)) as customer:
        assert customer.http.post(PATH, data=messages_body(1, 1000)).status_code == 200
    return Measured(server, request.param, peak_bytes(server))


@pytest.mark.parametrize("framing", ["declared", "chunked"])
def test_a_request_of_small_messages_takes_less_than_five_times_its_size(
    measured: Measured, open_account: OpenAccount, framing: str
) -> None:
    server, count, before = measured
    customer = open_account(server)
    content = messages_body(count, 1000)
    pieces = (content[at : at + MIB] for at in range(0, len(content), MIB))
    forget_peak(server)
    reply = customer.http.post(PATH, data=content if framing == "declared" else pieces)
    assert reply.status_code == 200, reply.text
    assert reply.json()["choices"][0]["message"]["content"].startswith(f"{count - 1} x")
    assert peak_bytes(server) - before < 5 * len(content)


def forget_peak(server: GatewayServer) -> None:
    """Resets Linux's measurement of the worker's peak memory."""
    (worker,) = server.worker_pids()
    Path(f"/proc/{worker}/clear_refs").write_text("5")


def peak_bytes(server: GatewayServer) -> int:
    """Returns the worker's peak memory, as Linux measured it."""
    return worker_bytes(server, "VmHWM")


def worker_bytes(server: GatewayServer, figure: str) -> int:
    """Returns a figure of the worker's memory, as Linux reports it."""
    (worker,) = server.worker_pids()
    found = re.search(rf"{figure}:\s+(\d+) kB", Path(f"/proc/{worker}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def asked_with(customer: Customer, slug: str, size: int, **fields: object) -> requests.Response:
    """Sends a text of `size` bytes and returns the answer; a stream's is returned as soon as it begins."""
    messages = [{"role": "system", "content": "x" * size}, {"role": "user", "content": "hello there"}]
    body = {"model": f"sim/test/{slug}", "messages": messages, **fields}
    return customer.http.post(PATH, json=body, stream=bool(fields))


@pytest.mark.campaign
def test_open_streams_hold_no_bodies(start_gateway: StartGateway, open_account: OpenAccount) -> None:
    server = start_gateway()
    customer = open_account(server)
    size = 16 * MIB
    with contextlib.ExitStack() as stack:

        def opened() -> int:
            reply = stack.enter_context(asked_with(customer, "stall", size, stream=True))
            assert next(reply.iter_lines()).startswith(b"data: ")
            return worker_bytes(server, "VmRSS")

        before = opened()
        # The allocator keeps up to two freed bodies. If the four streams held their bodies, there would be four more.
        assert max(opened() for _ in range(4)) - before < 3 * size
    assert eventually(lambda: len(bills.records(customer)) == 5)
    assert {record.prompt_tokens for record in bills.records(customer)} == {size // 4 + 11}


def test_the_bodies_that_a_worker_holds_are_bounded(
    start_gateway: StartGateway, open_account: OpenAccount, simulator: Simulator
) -> None:
    server = start_gateway(GATEWAY_MAX_BODY_BYTES=str(MIB), GATEWAY_MAX_BODIES_BYTES=str(MIB))
    customer = open_account(server)
    size = MIB // 2
    body = json.dumps(
        {"model": "sim/test/stall-at-once", "messages": [{"role": "user", "content": "x" * size}], "stream": True}
    ).encode()

    def called() -> int:
        return simulator.stats("stall:0")["calls"]

    before = called()
    with connect(server) as waiting:
        waiting.sendall(head(customer, f"Content-Length: {len(body)}") + body)
        assert eventually(lambda: called() > before)  # before it is held whole, the next one may be admitted first
        refused = asked_with(customer, "echo", size)
        assert refusal(refused) == (503, "internal_server_error", "service_unavailable", None)
        assert refused.headers["Retry-After"] == "5"
        assert asked_with(customer, "echo", 1000).status_code == 200
    assert eventually(lambda: asked_with(customer, "echo", size).status_code == 200)


def test_the_number_of_messages_is_capped(account: Customer) -> None:
    """Parsing a body of tiny messages takes many times its size."""
    reply = account.http.post(PATH, data=messages_body(50_001, 45))
    assert refusal(reply) == INVALID
    assert "50000" in message(reply)


def test_the_number_of_values_is_capped_whoever_asks(gateway: GatewayServer, open_account: OpenAccount) -> None:
    """Otherwise an account without credit could make a worker parse millions of numbers before its refusal."""
    content = b'{"model": "sim/test/embedding", "input": [257' + b",257" * 1_000_001 + b"]}"
    reply = open_account(gateway, credit=None).http.post("/v1/embeddings", data=content)
    assert refusal(reply) == (*INVALID[:3], None)
    assert "1000000" in message(reply)


def test_a_text_of_32_mib_may_be_full_of_commas(account: Customer) -> None:
    frame = messages_body(1, 42)
    content = frame.replace(b'"0 ', b'"' + b"and, " * ((LIMIT - len(frame)) // 5))
    assert content.count(b",") > 1_000_000
    assert account.http.post(PATH, data=content).status_code == 200
