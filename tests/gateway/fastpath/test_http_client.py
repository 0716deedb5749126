"""The HTTP client for upstreams works with servers that send whatever a test wants on real sockets."""

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import certifi
import gevent
import pytest

from gateway.fastpath import connections
from gateway.fastpath.client_watch import Client, ClientLeft
from gateway.fastpath.faults import AnswerTooLarge, BrokenAnswer, DeadlineExpired, Unreachable, UpstreamFault
from gateway.fastpath.http_client import Deadlines, UpstreamCall, UpstreamRequest, WorkerStopped
from tests.inference.odd_upstream import http, listening, self_signed
from tests.patience import eventually

ACCOUNT = uuid4()
LENGTH = b"HTTP/1.1 200 OK\r\nContent-Type: application/json; charset=utf-8\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;ext=1\r\nlo\r\n0\r\n"


class Server:
    """Answers the requests of its connections, in order, each by the connection's next script; None closes."""

    def __init__(self, *connections: list[bytes | None], context: ssl.SSLContext | None = None) -> None:
        self._context = context
        self._socks: list[socket.socket] = []
        self._sending = threading.Lock()  # TLS does not allow two senders at once
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.requests: list[bytes] = []
        self.accepted = 0
        self.release = threading.Event()
        threading.Thread(target=self._serve, args=(connections,), daemon=True).start()

    def close(self) -> None:
        self.release.set()
        self._listener.close()

    def say(self, data: bytes) -> None:
        """Sends on the first connection without a request."""
        with self._sending:
            self._socks[0].sendall(data)

    def end(self, number: int, *, resets: bool) -> None:
        """Closes one of the connections, numbered in their order."""
        if resets:
            self._socks[number].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socks[number].close()

    def _serve(self, scripts: tuple[list[bytes | None], ...]) -> None:
        for script in scripts:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            if self._context is not None:
                sock = self._context.wrap_socket(sock, server_side=True)
            self.accepted += 1
            self._socks.append(sock)
            threading.Thread(target=self._answer, args=(sock, script), daemon=True).start()

    def _answer(self, sock: socket.socket, script: list[bytes | None]) -> None:
        with sock:
            for reply in script:
                request = _read_request(sock)
                self.requests.append(request)
                if reply is None:
                    return
                with self._sending:
                    sock.sendall(reply)
            self.release.wait(10)


def _read_request(sock: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        block = sock.recv(65536)
        if not block:
            return data
        data += block
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(
        next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")).split(b":")[1]
    )
    while len(body) < length:
        body += sock.recv(65536)
    return head + b"\r\n\r\n" + body


@pytest.fixture(autouse=True)
def _no_connection_outlives_its_test() -> Iterator[None]:
    yield
    connections.close_idle(seconds=0)
    for remembered in (connections._distrusted_until, connections.unexpected_bytes, connections.broken_ends):
        remembered.clear()  # a later test's server may get this one's port


@contextmanager
def serving(*connections: list[bytes | None], context: ssl.SSLContext | None = None) -> Iterator[Server]:
    with closing(Server(*connections, context=context)) as server:
        yield server


def call(
    server: Server, body: bytes = b"{}", first_byte: float = 30.0, account: UUID = ACCOUNT, scheme: str = "http"
) -> UpstreamCall:
    request = UpstreamRequest(f"{scheme}://127.0.0.1:{server.port}/v1/chat", body, {"Authorization": "Bearer x"})
    opened = UpstreamCall(request, Deadlines(first_byte), Client(None), account)
    opened.attempt.provider = str(server.port)
    return opened


def ask(server: Server, body: bytes = b"{}", *, account: UUID = ACCOUNT, scheme: str = "http") -> bytes:
    return whole(call(server, body, account=account, scheme=scheme))


def unexpected(server: Server) -> int:
    """Returns how often a connection of this server has had unexpected bytes, as the client counted."""
    return connections.unexpected_bytes[str(server.port)]


def broken_off(server: Server) -> int:
    """Returns how often this server has ended a connection within an answer, as the client counted."""
    return connections.broken_ends[str(server.port)]


def whole(opened: UpstreamCall) -> bytes:
    """Makes the call and reads its whole answer."""
    with closing(opened):
        opened.open()
        return opened.read_all()


@pytest.mark.parametrize(
    ("reply", "reused"),
    [
        (LENGTH, True),
        (CHUNKED + b"\r\n", True),
        (CHUNKED + b"X-Trailer: 1\r\n\r\n", True),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + LENGTH, True),
        (b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + LENGTH, True),
        (LENGTH.replace(b"Content-Type", b"Connection: close\r\nContent-Type"), False),
        (LENGTH.replace(b"HTTP/1.1", b"HTTP/1.0"), False),
        (LENGTH.replace(b"\r\n", b"\n"), True),
    ],
)
def test_an_answer_is_read_whole_and_its_connection_kept_if_it_may_be(reply: bytes, reused: bool) -> None:
    with serving([reply, reply], [reply]) as server:
        assert ask(server) == b"hello"
        assert ask(server) == b"hello"
        assert server.accepted == (1 if reused else 2)


@pytest.mark.parametrize("piece", [1, 2, 7])
@pytest.mark.parametrize("reply", [LENGTH, CHUNKED + b"X-Trailer: 1\r\n\r\n"])
def test_an_answer_may_come_in_pieces(reply: bytes, piece: int) -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    def drip() -> None:
        sock, _ = listener.accept()
        with sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _read_request(sock)
            for at in range(0, len(reply), piece):
                sock.sendall(reply[at : at + piece])

    threading.Thread(target=drip, daemon=True).start()
    request = UpstreamRequest(f"http://127.0.0.1:{listener.getsockname()[1]}/", b"{}", {})
    opened = UpstreamCall(request, Deadlines(5), Client(None), ACCOUNT)
    with closing(listener), closing(opened):
        opened.open()
        assert opened.read_all() == b"hello"


def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    with serving([b"HTTP/1.1 200 OK\r\n\r\nhel"]) as server:
        opened = call(server)
        opened.open()
        assert opened.read() == b"hel"
        server.release.set()
        assert opened.read() == b""
        opened.close()


def test_the_request_goes_out_as_it_is() -> None:
    with serving([LENGTH]) as server:
        ask(server, b'{"a":1}')
        head, _, body = server.requests[0].partition(b"\r\n\r\n")
        assert body == b'{"a":1}'
        lines = head.split(b"\r\n")
        assert lines[0] == b"POST /v1/chat HTTP/1.1"
        assert lines[1:] == [
            f"Host: 127.0.0.1:{server.port}".encode(),
            b"Authorization: Bearer x",
            b"Content-Length: 7",
        ]


def test_a_body_larger_than_any_buffer_arrives_whole() -> None:
    body = bytes(range(256)) * 16384
    with serving([LENGTH]) as server:
        assert ask(server, body) == b"hello"
        assert server.requests[0].endswith(body)


def test_a_connection_that_was_closed_while_idle_is_not_used_again() -> None:
    with serving([LENGTH, None], [LENGTH]) as server:
        assert ask(server) == b"hello"
        (kept,) = connections._idle[connections.Origin(False, "127.0.0.1", server.port)]
        kept.cut()
        assert ask(server) == b"hello"
        assert server.accepted == 2


def test_no_connection_serves_two_accounts() -> None:
    with serving([LENGTH] * 2, [LENGTH] * 2) as server:
        one, other = uuid4(), uuid4()
        for account in (one, other, one, other):
            assert ask(server, account=account) == b"hello"
        assert server.accepted == 2


def test_a_connection_is_replaced_after_its_most_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_USES", 2)
    with serving([LENGTH] * 2, [LENGTH] * 2) as server:
        assert [ask(server) for _ in range(4)] == [b"hello"] * 4
        assert server.accepted == 2


def test_a_connection_is_replaced_after_some_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_SECONDS", 0.0)
    with serving([LENGTH], [LENGTH]) as server:
        assert [ask(server) for _ in range(2)] == [b"hello"] * 2
        assert server.accepted == 2


def test_an_idle_connection_may_have_served_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving([LENGTH] * 2, [LENGTH]) as server:
        assert ask(server) == b"hello"
        monkeypatch.setattr(connections, "MOST_SECONDS", 0.0)
        assert ask(server) == b"hello"
        assert server.accepted == 2


def test_the_connection_that_was_idle_longest_is_given_up_for_another_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_IDLE_OF_ORIGIN", 2)
    first, second, third = uuid4(), uuid4(), uuid4()
    with serving([LENGTH], [LENGTH], [LENGTH] * 2, [LENGTH]) as server:
        for account in (first, second, third):
            ask(server, account=account)
        assert ask(server, account=third) == b"hello"
        assert server.accepted == 3
        assert ask(server, account=first) == b"hello"
        assert server.accepted == 4
        idle = connections._idle[connections.Origin(False, "127.0.0.1", server.port)]
        assert [connection.account for connection in idle] == [third, first]


def test_no_connection_is_kept_for_minutes_after_unexpected_bytes() -> None:
    with serving([LENGTH], [LENGTH], [LENGTH], [LENGTH] * 2) as server:
        assert ask(server) == b"hello"
        server.say(SURPLUS)
        assert eventually(lambda: connections.close_idle() == 1)
        assert [ask(server), ask(server)] == [b"hello"] * 2
        assert (unexpected(server), server.accepted) == (1, 3)
        connections._distrusted_until[connections.Origin(False, "127.0.0.1", server.port)] -= (
            connections.UNASKED_SECONDS
        )
        assert [ask(server), ask(server)] == [b"hello"] * 2
        assert server.accepted == 4


SURPLUS = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad"


@pytest.mark.parametrize("surplus", [SURPLUS, b"nonsense", SURPLUS[:20], b"HTTP/1.1 100 Continue\r\n\r\n"])
def test_bytes_after_an_answer_end_every_idle_connection_of_the_origin(surplus: bytes) -> None:
    other = uuid4()
    with serving([LENGTH] * 2, [LENGTH + surplus], [LENGTH], [LENGTH]) as server, serving([LENGTH] * 2) as elsewhere:
        assert ask(server, account=other) == ask(elsewhere) == b"hello"
        assert ask(server) == b"hello"
        assert unexpected(server) == 1
        assert ask(server, account=other) == ask(server) == b"hello"
        assert server.accepted == 4
        assert ask(elsewhere) == b"hello"
        assert elsewhere.accepted == 1


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_late_unexpected_bytes_end_every_idle_connection_of_the_origin(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = self_signed(tmp_path) if scheme == "https" else None
    monkeypatch.setattr(certifi, "where", lambda: str(tmp_path / "certificate.pem"))
    connections.tls_context.cache_clear()
    one, other = uuid4(), uuid4()
    with serving([LENGTH] * 2, [LENGTH], [LENGTH], [LENGTH], context=context) as server:
        for account in (one, other, one):
            assert ask(server, account=account, scheme=scheme) == b"hello"
        assert (server.accepted, connections.close_idle()) == (2, 0)
        server.say(SURPLUS)
        assert eventually(lambda: connections.close_idle() == 1)
        assert unexpected(server) == 1
        for account in (one, other):
            assert ask(server, account=account, scheme=scheme) == b"hello"
        assert server.accepted == 4
    connections.tls_context.cache_clear()


def test_unexpected_bytes_end_the_connections_that_are_in_use_then_too() -> None:
    with serving([LENGTH] * 2, [LENGTH + SURPLUS], [LENGTH]) as server:
        one = uuid4()
        opened = call(server, account=one)
        opened.open()
        assert ask(server) == b"hello"
        assert opened.read_all() == b"hello"
        opened.close()
        assert ask(server, account=one) == b"hello"
        assert server.accepted == 3


HALVES = [LENGTH[:-2], CHUNKED[:-5], LENGTH[:20], b"HTTP/1.1 100 Continue\r\n\r\n"]


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("resets", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("half", HALVES, ids=["length", "chunked", "head", "interim"])
def test_an_end_in_mid_answer_ends_every_connection_of_the_origin(
    half: bytes, resets: bool, scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = self_signed(tmp_path) if scheme == "https" else None
    monkeypatch.setattr(certifi, "where", lambda: str(tmp_path / "certificate.pem"))
    connections.tls_context.cache_clear()
    idle, busy = uuid4(), uuid4()
    with (
        serving([LENGTH], [LENGTH], [half], [LENGTH], [LENGTH], context=context) as server,
        serving([LENGTH] * 2) as elsewhere,
    ):
        assert ask(server, account=idle, scheme=scheme) == ask(elsewhere) == b"hello"
        in_use = call(server, account=busy, scheme=scheme)
        in_use.open()
        hurt = call(server, scheme=scheme)
        reading = gevent.spawn(whole, hurt)

        def has_come() -> bool:
            gevent.sleep(0.01)
            return hurt._connection is not None and hurt._connection.answer.received_bytes == len(half)

        assert eventually(has_come)
        server.end(2, resets=resets)
        with pytest.raises(Unreachable):
            reading.get(timeout=10)
        assert in_use.read_all() == b"hello"
        in_use.close()
        assert (broken_off(server), unexpected(server)) == (1, 0)
        for account in (idle, busy):
            assert ask(server, account=account, scheme=scheme) == b"hello"
        assert server.accepted == 5
        assert ask(elsewhere) == b"hello"
        assert elsewhere.accepted == 1
    connections.tls_context.cache_clear()


@pytest.mark.parametrize("resets", [False, True], ids=["closed", "reset"])
def test_an_end_between_requests_or_before_an_answer_is_ordinary(resets: bool) -> None:
    other = uuid4()
    with serving([LENGTH] * 2, [LENGTH], [LENGTH, None], [LENGTH]) as server:
        assert ask(server, account=other) == ask(server) == b"hello"
        server.end(1, resets=resets)
        assert ask(server) == b"hello"
        with pytest.raises(Unreachable):
            ask(server)
        assert ask(server, account=other) == b"hello"
        assert (server.accepted, broken_off(server)) == (3, 0)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_an_end_of_ours_in_mid_answer_leaves_the_idle_ones_alone(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = self_signed(tmp_path) if scheme == "https" else None
    monkeypatch.setattr(certifi, "where", lambda: str(tmp_path / "certificate.pem"))
    connections.tls_context.cache_clear()
    with serving([LENGTH] * 2, [LENGTH[:-2]], [LENGTH[:-2]], context=context) as server:
        assert ask(server, scheme=scheme) == b"hello"
        for reason in (ClientLeft(), DeadlineExpired("overall", 1.0)):
            opened = call(server, account=uuid4(), scheme=scheme)
            opened.open()
            assert opened.read() == b"hel"
            gevent.spawn(opened.abort, reason)
            with pytest.raises(type(reason)):
                opened.read()
            opened.close()
        dropped = call(server, scheme=scheme)  # on the kept connection, whose answer is not read
        dropped.open()
        dropped.close()
        assert broken_off(server) == 0
    connections.tls_context.cache_clear()


def test_late_bytes_are_noticed_by_the_next_request() -> None:
    with serving([LENGTH], [LENGTH]) as server:
        assert ask(server) == b"hello"
        server.say(SURPLUS)
        assert ask(server) == b"hello"
        assert (unexpected(server), server.accepted) == (1, 2)


def test_a_server_that_says_that_an_idle_connection_has_timed_out_is_not_suspected() -> None:
    with serving([LENGTH], [LENGTH]) as server:
        assert ask(server) == b"hello"
        server.say(b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
        assert eventually(lambda: connections.close_idle() == 1)
        assert unexpected(server) == 0


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", BrokenAnswer),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 7\r\n\r\n", BrokenAnswer),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", BrokenAnswer),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 1000, BrokenAnswer),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", UpstreamFault),
        (b"HTTP/1.1 200 OK\r\n" + b"X-Long: " + b"x" * 100_000 + b"\r\n\r\n", BrokenAnswer),
        (CHUNKED + b"".join(b"X-Trailer-%d: x\r\n" % n for n in range(10_000)), BrokenAnswer),
        (None, Unreachable),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_what_is_no_answer_is_a_fault(reply: bytes | None, fault: type[Exception]) -> None:
    with serving([reply]) as server, pytest.raises(fault):
        ask(server)


ANSWER, CHUNKS = b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST_CHUNK = CHUNKS + b"5\r\nhello\r\n0\r\n"
# Maps the beginning of an answer to what then repeats without end.
ENDLESS: dict[str, tuple[bytes, bytes]] = {
    "interim-responses": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "empty-lines": (b"", b"\r\n"),
    "reason": (b"HTTP/1.1 200 ", b"x"),
    "header-name": (ANSWER, b"x"),
    "header-value": (ANSWER + b"X: ", b"x"),
    "headers": (ANSWER, b"X: x\r\n"),
    "empty-headers": (ANSWER, b"X:\r\n"),
    "chunk-size": (CHUNKS, b"0"),
    "chunk-extension": (CHUNKS + b"5;", b"x"),
    "trailers": (LAST_CHUNK, b"X: x\r\n"),
    "trailer-value": (LAST_CHUNK + b"X: ", b"x"),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_an_answer_that_goes_on_without_a_body_is_cut_off(name: str) -> None:
    begin, more = ENDLESS[name]
    with listening({"m": begin + more * (50_000_000 // len(more))}) as upstream:
        request = UpstreamRequest(f"http://127.0.0.1:{upstream.port}/v1", b'{"model":"m"}', {})
        with pytest.raises(BrokenAnswer):
            whole(UpstreamCall(request, Deadlines(30.0), Client(None), ACCOUNT))
        assert eventually(lambda: upstream.cut_off == ["m"])


def test_a_body_may_have_any_amount_of_framing_in_all() -> None:
    chunks = b"".join(b"1;%s\r\nx\r\n" % (b"e" * 60_000) for _ in range(10))
    with serving([CHUNKS + chunks + b"0\r\n\r\n"]) as server:
        assert ask(server) == b"x" * 10


def test_framing_counts_towards_the_bound_of_an_answer(settings: Any) -> None:
    settings.GATEWAY_MAX_UPSTREAM_BYTES = 100_000
    chunks = b"".join(b"1;%s\r\nx\r\n" % (b"e" * 60_000) for _ in range(10))
    with serving([CHUNKS + chunks + b"0\r\n\r\n"]) as server, pytest.raises(AnswerTooLarge):
        ask(server)


def test_of_an_error_only_the_beginning_is_read() -> None:
    error = http("500 Oops", b"x" * 50_000_000)
    with listening({"m": error}) as upstream:
        request = UpstreamRequest(f"http://127.0.0.1:{upstream.port}/v1", b'{"model":"m"}', {})
        with closing(UpstreamCall(request, Deadlines(30.0), Client(None), ACCOUNT)) as opened:
            opened.open()
            assert opened.read_error() == b"x" * 1024 * 1024
        assert eventually(lambda: upstream.cut_off == ["m"])


def test_an_answer_cut_in_its_middle_is_a_fault() -> None:
    with serving([LENGTH[:-2]]) as server:
        opened = call(server)
        opened.open()
        assert opened.read() == b"hel"
        server.release.set()
        with pytest.raises(Unreachable, match="before completing the response"):
            opened.read()
        opened.close()


def test_a_refused_connection_is_a_fault() -> None:
    with serving() as server:
        server.close()
        with pytest.raises(Unreachable, match="could not be reached"):
            ask(server)


def test_a_deadline_ends_a_wait_for_the_head() -> None:
    with serving([b""]) as server:
        opened = call(server, first_byte=0.1)
        with pytest.raises(DeadlineExpired) as caught, closing(opened):
            opened.open()
        assert caught.value.budget == "first-byte"


@pytest.mark.parametrize("reply", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel"])
def test_a_call_that_waits_is_aborted_with_the_reason_given(reply: bytes) -> None:
    with serving([reply]) as server:
        opened = call(server)
        gevent.spawn(lambda: _once_waiting(opened, lambda: opened.abort(WorkerStopped())))
        with pytest.raises(WorkerStopped):
            whole(opened)


def _once_waiting(opened: UpstreamCall, act: Callable[[], Any]) -> None:
    while not opened.is_waiting:
        gevent.sleep(0)
    act()


def test_an_answer_above_the_bound_is_a_fault(settings: Any) -> None:
    settings.GATEWAY_MAX_UPSTREAM_BYTES = 4
    with serving([LENGTH]) as server, pytest.raises(AnswerTooLarge):
        ask(server)


def test_an_answer_that_was_left_unread_takes_its_connection_with_it() -> None:
    with serving([b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhel"], [LENGTH]) as server:
        opened = call(server)
        opened.open()
        opened.close()
        assert ask(server) == b"hello"
        assert server.accepted == 2


def test_a_client_is_watched_once_a_call_takes_a_while() -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours, serving([b""]) as server:
        opened = call(server)
        opened.client = Client(ours)
        with pytest.raises(ClientLeft), closing(opened):
            opened.open()


def test_a_client_in_doubt_is_watched_at_once() -> None:
    with serving([b""]) as server:
        opened = call(server)
        opened.client.doubtful = True
        watched: list[bool] = []

        def look() -> None:
            watched.append(opened.watch is not None)
            opened.abort(WorkerStopped())

        gevent.spawn(_once_waiting, opened, look)
        with pytest.raises(WorkerStopped):
            whole(opened)
        assert watched == [True]


def test_connections_that_rest_for_long_are_closed() -> None:
    with serving([LENGTH]) as server:
        ask(server)
        assert connections.close_idle() == 0
        assert connections.close_idle(seconds=0) == 1


def test_tls_is_verified_and_spoken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = self_signed(tmp_path)
    body = b"x" * 100_000
    with listening({"m": http("200 OK", body)}, context) as upstream:
        request = UpstreamRequest(f"https://127.0.0.1:{upstream.port}/v1", b'{"model":"m"}', {})
        with (
            pytest.raises(Unreachable, match="TLS"),
            closing(UpstreamCall(request, Deadlines(5), Client(None), ACCOUNT)) as opened,
        ):
            opened.open()
        monkeypatch.setattr(certifi, "where", lambda: str(tmp_path / "certificate.pem"))
        connections.tls_context.cache_clear()
        with closing(UpstreamCall(request, Deadlines(5), Client(None), ACCOUNT)) as opened:
            opened.open()
            assert opened.read_all() == body
        connections.tls_context.cache_clear()
