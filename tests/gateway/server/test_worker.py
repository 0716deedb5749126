"""Heads and bodies that arrive slowly, in tiny pieces or without end do not block a worker."""

import select
import socket
from collections.abc import Callable
from typing import Any

import gevent
import gevent.socket
import pytest
from gunicorn.config import Config
from pytest_django import Settings

from gateway.fastpath import http_server
from gateway.server.bounded_request import (
    HEAD_SECONDS,
    MOST_HEAD_BYTES,
    MOST_TINY_CHUNKS,
    BoundedRequest,
    DeadlineUnreader,
    begin,
    begin_body,
)
from gateway.server.worker import GatewayWorker
from tests.conftest import OpenAccount, StartGateway
from tests.envelope import message, refusal
from tests.rawhttp import connect, exchange, read_response
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer
from tests.servers.pauses import HEADS, paused

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
SECONDS_BETWEEN_CRUMBS = 0.05
MOST_CRUMBS = 600  # enough for half a minute


def chunked_head(customer: Customer) -> bytes:
    return HEAD + f"Authorization: Bearer {customer.key}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()


def trickle(raw: socket.socket, crumb: bytes) -> None:
    """Sends crumbs until the server has answered or closed the connection."""
    for _ in range(MOST_CRUMBS):
        raw.sendall(crumb)
        if select.select([raw], [], [], SECONDS_BETWEEN_CRUMBS)[0]:
            return
    pytest.fail("the server reads crumbs without end")


@pytest.fixture(scope="module")
def impatient(start_shared_gateway: StartGateway) -> GatewayServer:
    """Starts a gateway that gives a client a second for a head, for a body and for the next request."""
    return start_shared_gateway(
        catalogue=None,
        GATEWAY_BODY_TIMEOUT="1",
        GUNICORN_CMD_ARGS="--keep-alive 1",
        **paused(dict.fromkeys(HEADS, 1.0)),
    )


def test_a_head_is_refused_before_it_holds_a_worker_s_memory(gateway: GatewayServer) -> None:
    """Each field, and their number, are within their bounds; the head need not end."""
    fields = b"".join(b"X-%d: %s\r\n" % (number, b"x" * 8000) for number in range(6))
    reply = exchange(gateway, HEAD + fields)
    assert refusal(reply) == (431, "invalid_request_error", "invalid_request_error", None)
    assert str(MOST_HEAD_BYTES) in message(reply)


def test_a_head_of_32_kib_passes(gateway: GatewayServer) -> None:
    fields = b"".join(b"X-%d: %s\r\n" % (number, b"x" * 8000) for number in range(4))
    content = b"{}"
    reply = exchange(gateway, HEAD + b"Content-Length: %d\r\n" % len(content) + fields + b"\r\n" + content)
    assert reply.status_code == 401


def test_a_head_that_is_not_finished_in_time_is_refused_however_it_trickles(impatient: GatewayServer) -> None:
    with connect(impatient) as silent, connect(impatient) as raw, raw.makefile("rb") as answers:
        raw.sendall(HEAD)
        trickle(raw, b"X")
        assert refusal(read_response(answers))[0] == 408
        assert silent.recv(1) == b""  # nothing was requested and nothing is answered


def test_a_body_of_tiny_chunks_is_refused(gateway: GatewayServer, open_account: OpenAccount) -> None:
    """Otherwise an account without credit could keep a worker reading for minutes."""
    customer = open_account(gateway, credit=None)
    reply = exchange(gateway, chunked_head(customer) + b"1\r\n \r\n" * (MOST_TINY_CHUNKS + 1))
    assert refusal(reply) == (400, "invalid_request_error", "invalid_request_error", None)
    assert str(MOST_TINY_CHUNKS) in message(reply)


def test_a_body_has_a_deadline_however_it_trickles(impatient: GatewayServer, open_account: OpenAccount) -> None:
    customer = open_account(impatient)
    with connect(impatient) as raw, raw.makefile("rb") as answers:
        raw.sendall(HEAD + f"Authorization: Bearer {customer.key}\r\nContent-Length: 1000\r\n\r\n".encode())
        trickle(raw, b" ")
        assert refusal(read_response(answers))[0] == 400


def test_an_idle_connection_is_closed(impatient: GatewayServer) -> None:
    with connect(impatient) as raw, raw.makefile("rb") as answers:
        raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert read_response(answers).status_code == 200
        assert answers.read() == b""


class RecordingSocket(gevent.socket.socket):  # type: ignore[misc]  # gevent ships no types for it
    """Records the timeout of each read, after calling a function that gives it something to read."""

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
    """GATEWAY_STREAM_IDLE_TIMEOUT limits writing to a client, not reading from it."""
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


@pytest.mark.parametrize("read", [BoundedRequest, http_server.Request])
def test_the_next_request_of_a_connection_has_the_time_of_keep_alive(read: Callable[..., object]) -> None:
    request = b"POST /v1/models HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
    ours, theirs = socket.socketpair()
    with theirs, RecordingSocket(ours.detach(), lambda: theirs.sendall(request)) as waiting:
        unreader = DeadlineUnreader(waiting)
        config = Config()
        config.set("keepalive", 75)
        for number in (1, 2):
            read(config, unreader, ("127.0.0.1", 1), number)
        first, second = waiting.waits
        assert 0 < (first or 0) <= HEAD_SECONDS < 60 < (second or 0) <= 75


def test_a_request_that_comes_as_the_time_of_a_kept_connection_runs_out_is_read() -> None:
    """Closing would reset the connection, and clients do not repeat a POST by themselves."""
    ours, theirs = gevent.socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"POST")
        assert begin(DeadlineUnreader(ours), 0) == b"POST"
        with pytest.raises(StopIteration):
            begin(DeadlineUnreader(ours), 0)


@pytest.mark.parametrize("read", [BoundedRequest, http_server.Request])
@pytest.mark.parametrize("first", [[b"\r\n", b""], [b"\r", b"\n", b""], [b"\r\n"]], ids=["alone", "cut", "before"])
def test_an_empty_line_before_a_request_begins_none(read: Callable[..., Any], first: list[bytes]) -> None:
    """Some clients send an empty line after the body of the previous request (RFC 9112, section 2.2)."""
    request = b"POST /v1/models HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
    blocks = iter([*first[:-1], first[-1] + request])
    ours, theirs = socket.socketpair()
    with theirs, RecordingSocket(ours.detach(), lambda: theirs.sendall(next(blocks))) as waiting:
        config = Config()
        config.set("keepalive", 75)
        got = read(config, DeadlineUnreader(waiting), ("127.0.0.1", 1), 2)
        assert (got.method, got.path, list(blocks)) == ("POST", "/v1/models", [])
        assert all(60 < (wait or 0) <= 75 for wait in waiting.waits)  # no part of a head has arrived before


def test_a_connection_goes_on_after_an_empty_line(account: Customer) -> None:
    request = f"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {account.key}\r\n\r\n".encode()
    with connect(account.gateway) as raw, raw.makefile("rb") as answers:
        raw.sendall(request + b"\r\n" + request + b"\r\n")
        assert [read_response(answers).status_code for _ in range(2)] == [200, 200]
        raw.shutdown(socket.SHUT_WR)
        assert answers.read() == b""


@pytest.mark.parametrize("sent", [b"", b"POST"])
def test_a_wait_ends_in_time_but_not_once_its_next_request_has_come(sent: bytes) -> None:
    """The request arrives after the worker has checked, and before the hub ends the wait."""
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
