"""The plain HTTP client for upstreams does with `requests` what a gateway without the fast path needs.

Waits are ended in a gateway only, where gevent has replaced the sockets of `requests`: tests/inference/test_leaving.py,
test_stopping.py and test_upstream_faults.py run with the fast path off too.
"""

import ssl
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import certifi
import gevent
import pytest

from gateway import requests_client
from gateway.fastpath import connections
from gateway.fastpath.client_watch import Client, ClientLeft
from gateway.fastpath.faults import AnswerTooLarge, BrokenAnswer, Unreachable, UpstreamFault
from gateway.fastpath.http_client import Deadlines, UpstreamCall, UpstreamRequest
from gateway.requests_client import RequestsCall
from gateway.upstreams import upstream_call
from tests.gateway.fastpath.test_http_client import CHUNKED, LENGTH, Server, serving
from tests.inference.odd_upstream import http, listening, self_signed

ACCOUNT = uuid4()
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"


@pytest.fixture(autouse=True)
def _no_session_outlives_its_test() -> Iterator[None]:
    yield
    connections.close_idle(seconds=0)
    while requests_client._idle:
        requests_client._idle.popitem()[0].close()


def call(server: Server, body: bytes = b"{}", first_byte: float = 30.0, account: UUID = ACCOUNT) -> RequestsCall:
    headers = {"Authorization": "Bearer x", "Accept-Encoding": "identity"}
    request = UpstreamRequest(f"http://127.0.0.1:{server.port}/v1/chat?a=1", body, headers)
    return RequestsCall(request, Deadlines(first_byte), Client(None), account)


def ask(server: Server, body: bytes = b"{}", account: UUID = ACCOUNT) -> bytes:
    return whole(call(server, body, account=account))


def whole(opened: UpstreamCall) -> bytes:
    with closing(opened):
        opened.open()
        return opened.read_all()


@pytest.mark.parametrize(("is_on", "kind"), [(True, UpstreamCall), (False, RequestsCall)])
def test_the_switch_chooses_the_client(settings: Any, is_on: bool, kind: type[UpstreamCall]) -> None:
    settings.GATEWAY_FASTPATH = is_on
    request = UpstreamRequest("http://127.0.0.1/", b"{}", {})
    assert type(upstream_call(request, Deadlines(1.0), Client(None), ACCOUNT)) is kind


@pytest.mark.parametrize(
    ("reply", "reused"),
    [
        (LENGTH, True),
        (CHUNKED + b"\r\n", True),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + LENGTH, True),
        (LENGTH.replace(b"Content-Type", b"Connection: close\r\nContent-Type"), False),
        (LENGTH.replace(b"HTTP/1.1", b"HTTP/1.0"), False),
    ],
)
def test_an_answer_is_read_whole_and_its_connection_reused_if_it_may_be(reply: bytes, reused: bool) -> None:
    with serving([reply, reply], [reply]) as server:
        assert ask(server) == b"hello"
        assert ask(server) == b"hello"
        assert server.accepted == (1 if reused else 2)


def test_a_request_arrives_as_the_fast_path_sends_it() -> None:
    with serving([LENGTH], [LENGTH]) as server:
        with closing(call(server, b'{"a":1}')) as plain:
            plain.trace_headers = b"traceparent: 00-1-2-01\r\n"
            plain.open()
        quick = UpstreamCall(plain_request(server), Deadlines(5.0), Client(None), ACCOUNT)
        quick.trace_headers = b"traceparent: 00-1-2-01\r\n"
        whole(quick)
        sent = [request.partition(b"\r\n\r\n") for request in server.requests]
        assert sent[0][2] == sent[1][2] == b'{"a":1}'
        lines = [sorted(head.split(b"\r\n")) for head, _, _ in sent]
        assert lines[0] == lines[1]


def plain_request(server: Server) -> UpstreamRequest:
    headers = {"Authorization": "Bearer x", "Accept-Encoding": "identity"}
    return UpstreamRequest(f"http://127.0.0.1:{server.port}/v1/chat?a=1", b'{"a":1}', headers)


def test_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login a password b\n")
    monkeypatch.setenv("NETRC", str(netrc))
    with serving([LENGTH]) as server:
        assert ask(server) == b"hello"
        assert b"Authorization: Bearer x" in server.requests[0]


def test_neither_redirects_nor_cookies_are_followed() -> None:
    redirect = b"HTTP/1.1 302 Found\r\nLocation: /else\r\nSet-Cookie: a=b\r\nContent-Length: 5\r\n\r\nhello"
    with serving([redirect, LENGTH]) as server:
        with closing(call(server)) as opened:
            opened.open()
            assert (opened.status, opened.read_all()) == (302, b"hello")
        assert ask(server) == b"hello"
        assert len(server.requests) == 2
        assert b"Cookie" not in server.requests[1]


def test_a_compressed_answer_is_not_decoded() -> None:
    with serving([LENGTH.replace(b"Content-Length", b"Content-Encoding: gzip\r\nContent-Length")]) as server:
        assert ask(server) == b"hello"


def test_no_connection_serves_two_accounts() -> None:
    with serving([LENGTH] * 2, [LENGTH] * 2) as server:
        one, other = uuid4(), uuid4()
        for account in (one, other, one, other):
            assert ask(server, account=account) == b"hello"
        assert server.accepted == 2


@pytest.mark.parametrize(("bound", "value"), [("MOST_USES", 1), ("MOST_SECONDS", 0.0), ("MOST_IDLE_SECONDS", 0.0)])
def test_a_connection_does_not_serve_for_ever(monkeypatch: pytest.MonkeyPatch, bound: str, value: float) -> None:
    monkeypatch.setattr(requests_client, bound, value)
    with serving([LENGTH], [LENGTH]) as server:
        assert [ask(server), ask(server)] == [b"hello"] * 2
        assert server.accepted == 2


def test_of_many_idle_connections_the_oldest_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests_client, "MOST_IDLE", 1)
    first, second = uuid4(), uuid4()
    with serving([LENGTH], [LENGTH] * 2, [LENGTH]) as server:
        for account in (first, second, second, first):
            assert ask(server, account=account) == b"hello"
        assert server.accepted == 3


def test_a_connection_whose_answer_does_not_fit_serves_nothing_else() -> None:
    with serving([LENGTH], [LENGTH] * 2) as server:
        with closing(call(server)) as first:
            first.open()
            first.serve_alone("answered otherwise")
            assert first.read_all() == b"hello"
        assert ask(server) == b"hello"
        assert server.accepted == 2
        with closing(call(server)) as second:
            second.open()
            with pytest.raises(UpstreamFault, match="answered otherwise"):
                second.serve_alone("answered otherwise")


def test_the_first_bytes_can_be_looked_at() -> None:
    with serving([LENGTH]) as server, closing(call(server)) as opened:
        opened.open()
        assert opened.peek() == b"hello"
        assert opened.read_all() == b"hello"
        assert opened.content_type == "application/json"


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", BrokenAnswer),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", BrokenAnswer),
        (b"HTTP/1.1 200 OK\r\n" + b"X-Long: " + b"x" * 100_000 + b"\r\n\r\n", BrokenAnswer),
        (b"HTTP/1.1 200 OK\r\n" + b"X: x\r\n" * 1000 + b"\r\n", BrokenAnswer),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 7\r\n\r\n", Unreachable),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", Unreachable),
        (None, Unreachable),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_what_is_no_answer_is_a_fault(reply: bytes | None, fault: type[UpstreamFault]) -> None:
    with serving([reply]) as server, pytest.raises(fault):
        ask(server)


def test_an_answer_cut_in_its_middle_is_a_fault() -> None:
    with serving([LENGTH[:-2]]) as server, closing(call(server)) as opened:
        opened.open()
        assert opened.read() == b"hel"
        server.release.set()
        with pytest.raises(Unreachable, match="before completing the response"):
            opened.read()


def test_a_refused_connection_is_a_fault() -> None:
    with serving() as server:
        server.close()
        with pytest.raises(Unreachable, match="could not be reached"):
            ask(server)


def test_a_call_that_does_not_wait_raises_the_reason_at_its_next_read() -> None:
    with serving([HEAD + b"hel"]) as server, closing(call(server)) as opened:
        opened.open()
        assert opened.read() == b"hel"
        opened.abort(ClientLeft())
        gevent.sleep(0)
        with pytest.raises(ClientLeft):
            opened.read()


def test_an_answer_above_the_bound_is_a_fault(settings: Any) -> None:
    settings.GATEWAY_MAX_UPSTREAM_BYTES = 4
    with serving([LENGTH]) as server, pytest.raises(AnswerTooLarge):
        ask(server)


def test_an_answer_that_was_left_unread_takes_its_connection_with_it() -> None:
    with serving([HEAD + b"hel"], [LENGTH]) as server:
        with closing(call(server)) as opened:
            opened.open()
        assert ask(server) == b"hello"
        assert server.accepted == 2


def test_bytes_after_an_answer_do_not_answer_the_next_request() -> None:
    with serving([LENGTH + LENGTH.replace(b"hello", b"wrong")] * 2, [LENGTH]) as server:
        assert ask(server) == b"hello"
        assert ask(server) == b"hello"


def test_tls_is_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context: ssl.SSLContext = self_signed(tmp_path)
    with listening({"m": http("200 OK", b"x" * 100_000)}, context) as upstream:
        request = UpstreamRequest(f"https://127.0.0.1:{upstream.port}/v1", b'{"model":"m"}', {})
        with pytest.raises(Unreachable, match="TLS"):
            whole(RequestsCall(request, Deadlines(5), Client(None), ACCOUNT))
        monkeypatch.setattr(certifi, "where", lambda: str(tmp_path / "certificate.pem"))
        assert whole(RequestsCall(request, Deadlines(5), Client(None), ACCOUNT)) == b"x" * 100_000
