"""The inference endpoints answer the same with and without the fast path, byte for byte."""

import functools
import itertools
import json
import re
import socket
from http.client import parse_headers
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.chat import HELLO, PATH
from tests.conftest import OpenAccount, StartGateway
from tests.rawhttp import connect, read_response
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer

# These parts differ from request to request.
PASSING = re.compile(rb'(gen-|req-)[0-9a-f]{32}|"created":\d+|(?<=in )\d+(?= second)')
LIMIT_HEADERS = frozenset({"x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"})
PASSING_HEADERS = frozenset({"Date", "X-Request-Id", "request-id", "X-Generation-Id", "Retry-After"}) | LIMIT_HEADERS
LIMIT = 3
CHAT = {"model": "sim/test/echo", "messages": HELLO}
MESSAGES = "/v1/messages"
addresses = itertools.count(1)


class Response(NamedTuple):
    """Holds a status line, the headers in their order, and the body without chunked encoding."""

    status: bytes
    headers: list[tuple[str, str]]
    body: bytes


@pytest.fixture(scope="module")
def both(start_shared_gateway: StartGateway) -> tuple[Customer, Customer]:
    """Opens an account on a gateway with the fast path, and one on a gateway without it."""
    start = functools.partial(
        start_shared_gateway,
        GATEWAY_IP_RATE=f"{LIMIT}/h",
        GATEWAY_TRUSTED_PROXIES="1",
        GATEWAY_KEY_RPM="9000",
        GATEWAY_MAX_BODY_BYTES="5000",
        GATEWAY_FIRST_BYTE_TIMEOUT="1",
    )
    short, django = start(GATEWAY_FASTPATH="on"), start(GATEWAY_FASTPATH="off")
    return Customer.open(short), Customer.open(django)


def send(customer: Customer, request: bytes, address: str) -> Response:
    head, separator, body = request.partition(b"\r\n")
    own = f"Authorization: Bearer {customer.key}\r\nX-Forwarded-For: {address}\r\n"
    if b"Authorization:" in request:
        own = f"X-Forwarded-For: {address}\r\n"
    with connect(customer.gateway) as raw:
        raw.sendall(head + separator + own.encode() + b"Connection: close\r\n" + body)
        with raw.makefile("rb") as answers:
            status, headers = answers.readline(), list(parse_headers(answers).items())
            rest = answers.read()
    if ("Transfer-Encoding", "chunked") in headers:
        rest = b"".join(re.split(rb"(?:^|\r\n)[0-9A-Fa-f]+\r\n", rest))
    shown = [(name, "..." if name in PASSING_HEADERS else value) for name, value in headers]
    return Response(status, shown, PASSING.sub(b"...", rest))


def post(body: Any = CHAT, path: str = PATH, *headers: str, version: str = "1.1", host: str = "localhost") -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"POST {path} HTTP/{version}", f"Host: {host}", f"Content-Length: {len(content)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + content


def chunked(*blocks: bytes) -> bytes:
    head = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    return head + b"".join(b"%x\r\n%s\r\n" % (len(block), block) for block in (*blocks, b""))


def of_length(length: str) -> bytes:
    return f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n".encode("latin-1")


def bare(method: str, path: str = PATH) -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


REQUESTS = {
    "whole": post(),
    "stream": post({**CHAT, "stream": True}),
    "stream-with-usage": post({**CHAT, "stream": True, "stream_options": {"include_usage": True}}),
    "stream-over-http-1.0": post({**CHAT, "stream": True}, version="1.0"),
    "whole-over-http-1.0": post(version="1.0"),
    "text": post({"model": "sim/test/echo", "prompt": "one two"}, "/v1/completions"),
    "text-stream": post({"model": "sim/test/echo", "prompt": "one", "stream": True}, "/v1/completions"),
    "embedding": post({"model": "sim/test/embedding", "input": "one two"}, "/v1/embeddings"),
    "older-prefix": post(CHAT, "/api/v1/chat/completions"),
    "slash": post(CHAT, PATH + "/"),
    "two-slashes": post(CHAT, PATH + "//"),
    "query": post(CHAT, PATH + "?api-version=1"),
    "encoded-path": post(CHAT, "/v1/chat%2Fcompletions"),
    "whole-address": post(CHAT, f"http://localhost{PATH}"),
    "newline": post(CHAT, PATH + "%0A"),
    "upper-case-path": post(CHAT, "/v1/Chat/Completions"),
    "in-chunks": chunked(json.dumps(CHAT).encode()),
    "in-compressed-chunks": chunked(b"{}").replace(b"chunked", b"gzip, chunked"),
    "too-large-in-chunks": chunked(*[b" " * 3000] * 2),
    "too-large": post(b" " * 5001),
    "just-large-enough": post(b" " * 5000),
    "length-twice": post(CHAT, PATH, "Content-Length: 5"),
    "length-is-nothing": b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length:\r\n\r\n",
    "length-in-words": of_length("five"),
    "length-with-a-sign": of_length("+5"),
    "length-below-zero": of_length("-5"),
    "length-in-superscript": of_length("\xb2"),
    "length-of-many-digits": of_length("9" * 30),
    "without-a-body": bare("POST"),
    "compressed": post(CHAT, PATH, "Content-Encoding: gzip"),
    "content-type": post(CHAT, PATH, "Content-Type: text/plain; charset=klingon"),
    "idempotency-key": post(CHAT, PATH, "Idempotency-Key: one"),
    "idempotency-key-of-a-stream": post({**CHAT, "stream": True}, PATH, "Idempotency-Key: stream"),
    "idempotency-key-with-a-tab": post(CHAT, PATH, "Idempotency-Key: t\tab"),
    "idempotency-key-without-a-value": post(CHAT, PATH, "Idempotency-Key:"),
    "host-with-a-port": post(host="localhost:8123"),
    "host-in-capitals": post(host="LOCALHOST"),
    "foreign-host": post(host="foreign.example"),
    "broken-host": post(host="local host"),
    "empty-host": post(host=""),
    "foreign-host-and-too-large": post(b" " * 5001, host="foreign.example"),
    "too-large-without-a-key": post(b" " * 5001, PATH, "Authorization:"),
    "messages": post(CHAT, MESSAGES),
    "messages-too-large": post(b" " * 5001, MESSAGES),
    "messages-foreign-host": post(CHAT, MESSAGES, host="foreign.example"),
    "forwarded-host": post(CHAT, PATH, "X-Forwarded-Host: foreign.example"),
    "tunnelled-method": post(CHAT, PATH, "X-HTTP-Method-Override: DELETE"),
    "not-json": post(b"{"),
    "no-object": post([]),
    "nothing-in-it": post({}),
    "no-number": post({**CHAT, "temperature": "hot"}),
    "max-cost": post({**CHAT, "gateway": {"max_cost": "0.00001"}}),
    "max-cost-exceeded": post({**CHAT, "gateway": {"max_cost": "0.000001"}}),
    "max-cost-is-a-number": post({**CHAT, "gateway": {"max_cost": 0.05}}),
    "no-role": post({**CHAT, "messages": [{"content": "hello"}]}),
    "unknown-model": post({**CHAT, "model": "sim/test/unknown"}),
    "no-model-id": post({**CHAT, "model": "gpt"}),
    "upstream-speaks-html": post({**CHAT, "model": "sim/test/html"}),
    "upstream-redirects": post({**CHAT, "model": "sim/test/redirect"}),
    "upstream-breaks-off": post({**CHAT, "model": "sim/test/drop", "stream": True}),
    "upstream-is-slow": post({**CHAT, "model": "sim/test/slow-first-byte"}),
    "upstream-contradicts-itself": post({**CHAT, "model": "sim/test/bad-usage"}),
    "websocket": bare("GET", "/v1/responses").replace(b"\r\n\r\n", b"\r\nUpgrade: websocket\r\n\r\n"),
    "no-key": post(CHAT, PATH, "Authorization:"),
    "malformed-key": post(CHAT, PATH, "Authorization: Bearer sk-other"),
    "unknown-key": post(CHAT, PATH, f"Authorization: Bearer sk-gw-{'a' * 43}"),
    **{method.lower(): bare(method) for method in ("GET", "PUT", "PATCH", "DELETE", "TRACE", "HEAD", "OPTIONS")},
}


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_both_ways_answer_alike(both: tuple[Customer, Customer], request_: bytes) -> None:
    address = f"10.0.0.{next(addresses)}"
    short, django = (send(customer, request_, address) for customer in both)
    assert short == django


def test_both_ways_refuse_a_repetition_alike(both: tuple[Customer, Customer]) -> None:
    repeated = post(CHAT, PATH, "Idempotency-Key: repeated")
    other = post({**CHAT, "temperature": 1}, PATH, "Idempotency-Key: repeated")
    address = f"10.8.8.{next(addresses)}"
    short, django = ([send(customer, each, address) for each in (repeated, repeated, other)] for customer in both)
    assert short == django
    assert [response.status.split()[1] for response in short] == [b"200", b"409", b"409"]


@pytest.mark.parametrize(
    ("request_", "status"),
    [(post(b"{"), b"400"), (post(host="foreign.example"), b"400"), (post(b" " * 5001), b"413")],
    ids=["body", "host", "length"],
)
def test_both_ways_refuse_an_address_alike(both: tuple[Customer, Customer], request_: bytes, status: bytes) -> None:
    address = f"10.9.9.{next(addresses)}"
    short, django = ([send(customer, request_, address) for _ in range(LIMIT + 1)] for customer in both)
    assert short == django
    assert [response.status.split()[1] for response in short] == [status] * LIMIT + [b"429"]


def test_a_unix_socket_whose_clients_have_no_address_is_served(
    start_gateway: StartGateway, open_account: OpenAccount, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, content = tmp_path / "gateway.sock", json.dumps(CHAT).encode()
    command = GatewayServer.command
    monkeypatch.setattr(
        GatewayServer,
        "command",
        lambda self: [*command(self), "--bind", f"unix:{path}", "--bind", f"127.0.0.1:{self.port}"],
    )
    customer = open_account(start_gateway())
    head = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {customer.key}\r\n"
    with socket.socket(socket.AF_UNIX) as raw, raw.makefile("rb") as answers:
        raw.settimeout(10)
        raw.connect(str(path))
        for _ in range(2):
            raw.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(content) + content)
            assert read_response(answers).json()["object"] == "chat.completion"
