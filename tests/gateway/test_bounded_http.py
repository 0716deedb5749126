"""Heads and bodies that come slowly, in crumbs or without end hold no worker."""

import select
import socket
import time
from collections.abc import Callable
from typing import Any

import gevent
import gevent.socket
import pytest
from pytest_django import Settings

from gateway.server.worker import (
    HEAD_SECONDS,
    MOST_HEAD_BYTES,
    MOST_TINY_CHUNKS,
    DeadlineUnreader,
    GatewayWorker,
    begin,
    begin_body,
)
from tests.chat import PATH
from tests.conftest import OpenAccount, StartGateway
from tests.envelope import message, refusal
from tests.rawhttp import connect, exchange, read_response
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer

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


@pytest.mark.long
def test_a_head_that_is_not_finished_within_ten_seconds_is_refused_however_it_trickles(gateway: GatewayServer) -> None:
    began = time.monotonic()
    with connect(gateway) as silent, connect(gateway) as raw, raw.makefile("rb") as answers:
        raw.sendall(HEAD)
        while is_open(raw) and time.monotonic() - began < 3 * HEAD_SECONDS:
            raw.sendall(b"X")
            time.sleep(0.2)
        assert refusal(read_response(answers))[0] == 408
        assert silent.recv(1) == b""  # nothing was asked, and nothing is answered


@pytest.mark.long
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


def test_an_idle_connection_is_closed(start_gateway: StartGateway) -> None:
    server = start_gateway(GUNICORN_CMD_ARGS="--keep-alive 1")
    with connect(server) as raw, raw.makefile("rb") as answers:
        raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert read_response(answers).status_code == 200
        assert answers.read() == b""


class RecordingSocket(gevent.socket.socket):  # type: ignore[misc]  # gevent ships no types for it
    """A socket that records the timeout of each read, and first calls a function that gives it something to read."""

    def __init__(self, fileno: int, before_read: Callable[[], object]) -> None:
        super().__init__(fileno=fileno)
        self.waits: list[float | None] = []
        self._before_read = before_read

    def recv(self, *args: Any) -> bytes:
        self.waits.append(self.gettimeout())
        self._before_read()
        received: bytes = super().recv(*args)
        return received


def test_a_silent_client_has_the_seconds_of_what_it_has_begun(settings: Settings) -> None:
    """GATEWAY_STREAM_IDLE_TIMEOUT bounds writing to a client, and not reading from it."""
    settings.GATEWAY_STREAM_IDLE_TIMEOUT = 0.001
    ours, theirs = socket.socketpair()
    with theirs, RecordingSocket(ours.detach(), lambda: theirs.sendall(b"x")) as waiting:
        waiting.settimeout(settings.GATEWAY_STREAM_IDLE_TIMEOUT)
        unreader = DeadlineUnreader(waiting)
        assert begin(unreader, 75) == b"x"
        begin_body(unreader)
        assert unreader.read() == b"x"
        before, body = waiting.waits
        assert 60 < (before or 0) <= 75
        assert 250 < (body or 0) <= settings.GATEWAY_BODY_TIMEOUT == 300
        assert waiting.gettimeout() == settings.GATEWAY_STREAM_IDLE_TIMEOUT


def test_a_request_that_comes_as_the_time_of_a_kept_connection_runs_out_is_read() -> None:
    """To close the connection would reset it, and no client repeats a POST by itself."""
    ours, theirs = gevent.socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"POST")
        assert begin(DeadlineUnreader(ours), 0) == b"POST"
        with pytest.raises(StopIteration):
            begin(DeadlineUnreader(ours), 0)


@pytest.mark.parametrize("sent", [b"", b"POST"])
def test_a_wait_ends_in_time_but_not_once_its_next_request_has_come(sent: bytes) -> None:
    """It comes after the worker has looked, and before the hub ends the wait."""
    worker = object.__new__(GatewayWorker)
    worker._waiting, worker._connections = {}, {}
    ours, theirs = gevent.socket.socketpair()

    def wait() -> bytes:
        with worker.timeout_ctx():
            return begin(DeadlineUnreader(ours), HEAD_SECONDS)

    with ours, theirs:
        reading = gevent.spawn(wait)
        worker._connections[reading] = ours
        gevent.idle()
        assert reading in worker._waiting
        worker._close_idle(0.0)
        if sent:
            theirs.sendall(sent)
        reading.join(timeout=5)
    assert (reading.value if sent else type(reading.value)) == (sent or gevent.GreenletExit)
    assert not worker._waiting
