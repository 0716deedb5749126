"""Heads and bodies that come slowly, in crumbs or without end hold no worker."""

import contextlib
import json
import os
import select
import signal
import socket
import time

import pytest

from gateway.bounded_http import HEAD_SECONDS, MOST_HEAD_BYTES, MOST_TINY_CHUNKS
from tests.chat import PATH, question
from tests.conftest import OpenAccount, StartGateway
from tests.envelope import message, refusal
from tests.rawhttp import connect, exchange, read_response
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer

pytestmark = pytest.mark.sqlite_is_enough

TCP_ESTABLISHED = 1  # tcp(7)
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"


def chunked_head(customer: Customer) -> bytes:
    return HEAD + f"Authorization: Bearer {customer.key}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()


def is_open(raw: socket.socket) -> bool:
    """Whether the server has neither said anything nor closed."""
    return not select.select([raw], [], [], 0)[0]


def test_a_head_is_refused_before_it_holds_a_worker_s_memory(gateway: GatewayServer) -> None:
    """Each of its fields, and their number, are within their bounds; it need not end."""
    fields = b"".join(b"X-%d: %s\r\n" % (number, b"x" * 8000) for number in range(6))
    reply = exchange(gateway, HEAD + fields)
    assert refusal(reply) == (431, "invalid_request_error", "invalid_request_error", None)
    assert str(MOST_HEAD_BYTES) in message(reply)


def test_a_head_of_32_kib_passes(gateway: GatewayServer) -> None:
    fields = b"".join(b"X-%d: %s\r\n" % (number, b"x" * 8000) for number in range(4))
    content = b"{}"
    reply = exchange(gateway, HEAD + b"Content-Length: %d\r\n" % len(content) + fields + b"\r\n" + content)
    assert reply.status_code == 401


def test_a_head_that_is_not_finished_within_ten_seconds_is_refused_however_it_trickles(gateway: GatewayServer) -> None:
    began = time.monotonic()
    with connect(gateway) as silent, connect(gateway) as raw, raw.makefile("rb") as answers:
        raw.sendall(HEAD)
        while is_open(raw) and time.monotonic() - began < 3 * HEAD_SECONDS:
            raw.sendall(b"X")
            time.sleep(0.2)
        assert refusal(read_response(answers))[0] == 408
        assert silent.recv(1) == b""  # nothing was asked, and nothing is answered


def test_a_next_request_of_a_connection_has_the_time_of_keep_alive(gateway: GatewayServer) -> None:
    with connect(gateway) as raw, raw.makefile("rb") as answers:
        raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert read_response(answers).status_code == 200
        time.sleep(HEAD_SECONDS + 1)
        raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert read_response(answers).status_code == 200


def test_a_body_of_tiny_chunks_is_refused(gateway: GatewayServer, open_account: OpenAccount) -> None:
    """An account without credit could otherwise have a worker read them for minutes."""
    customer = open_account(gateway, credit=None)
    reply = exchange(gateway, chunked_head(customer) + b"1\r\n \r\n" * (MOST_TINY_CHUNKS + 1))
    assert refusal(reply) == (400, "invalid_request_error", "invalid_request_error", None)
    assert str(MOST_TINY_CHUNKS) in message(reply)


def test_a_body_has_a_deadline_however_it_trickles(start_gateway: StartGateway, open_account: OpenAccount) -> None:
    customer = open_account(server := start_gateway(GATEWAY_BODY_TIMEOUT="2"))
    with connect(server) as raw, raw.makefile("rb") as answers:
        raw.sendall(HEAD + f"Authorization: Bearer {customer.key}\r\nContent-Length: 1000\r\n\r\n".encode())
        began = time.monotonic()
        while is_open(raw) and time.monotonic() - began < 20:
            raw.sendall(b" ")
            time.sleep(0.2)
        assert refusal(read_response(answers))[0] == 400
    assert customer.http.post(PATH, json={}).status_code == 400


def is_established(raw: socket.socket) -> bool:
    """Whether the server had not closed by now, as the kernel knows it: what was sent until now, it could read."""
    return raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == TCP_ESTABLISHED


def outcome(raw: socket.socket) -> str:
    try:
        return raw.recv(4096)[:12].decode() or "closed in silence, though it was read"
    except ConnectionResetError:
        return "closed before it was read"
    except TimeoutError:
        return "no answer"


def test_idle_connections_are_closed_in_time_but_none_whose_next_request_has_been_read(
    start_gateway: StartGateway, open_account: OpenAccount
) -> None:
    """So many end at once that the worker takes a while for them, in which it reads requests on others."""
    customer = open_account(server := start_gateway(GUNICORN_CMD_ARGS="--keep-alive 1"))
    content = json.dumps(question("echo")).encode()
    asked = HEAD + f"Authorization: Bearer {customer.key}\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content
    (worker,) = server.worker_pids()
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(connect(server)) for _ in range(400)]
        for raw in idle:
            raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for raw in idle:
            with raw.makefile("rb") as answers:
                assert read_response(answers).status_code == 200
        os.kill(worker, signal.SIGSTOP)
        time.sleep(1)  # all are overdue then
        os.kill(worker, signal.SIGCONT)
        asking, reached = idle[-100:], []
        for raw in asking:
            time.sleep(0.0005)
            with contextlib.suppress(OSError):
                raw.sendall(asked)
                if is_established(raw):
                    reached.append(raw)
        assert {outcome(raw) for raw in reached} <= {"HTTP/1.1 200", "closed before it was read"}
        assert all(raw.recv(4096) == b"" for raw in idle if raw not in asking)
