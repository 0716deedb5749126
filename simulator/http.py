"""Speaks HTTP/1.1: reads requests, writes bytes, and notices when the caller leaves.

A server library would frame and buffer the answers. The simulator must reset connections in mid-stream, cut bodies at
exact places and notice at once when a caller leaves, so it writes to the socket itself.
"""

import contextlib
import fcntl
import http.client
import math
import socket
import struct
import termios
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn
from urllib.parse import unquote

import gevent
from httptools import HttpParserError, HttpRequestParser

_READ_BYTES = 256 * 1024
_LOOK_SECONDS = 0.02
_DRAIN_SECONDS = 2.0
# A pause between two segments, without which the kernel would join them.
_SEGMENT_SECONDS = 0.0005


class CallerGoneError(Exception):
    """The caller closed or reset its connection."""


class HungUpError(Exception):
    """The simulator itself has reset the connection, as the call asked for."""


class BrokenRequestError(Exception):
    """The bytes received are not an HTTP request."""


@dataclass(slots=True)
class Request:
    """Holds one request. Header names are in lowercase; repeated headers are joined with a comma."""

    method: str = ""
    path: str = ""
    query: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    version: str = ""
    keeps_alive: bool = True


_held: list[Callable[[], None]] = []
_let_go: Counter[str] = Counter()  # how often the calls of each model were let go


def let_go(model: str) -> None:
    """Lets the calls of a model that have begun continue after `hold`, even if they have not reached it yet."""
    _let_go[model] += 1


def send_held() -> int:
    """Sends the answers that wait for `POST /surplus`, and returns how many there were."""
    told = _held[:]
    _held.clear()
    for send in told:
        send()
    return len(told)


class Connection:
    """Reads requests from a caller's socket and sends bytes. Raises CallerGoneError however the caller leaves."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = sock
        self._unparsed = b""
        self._requests: deque[Request] = deque()
        self._parser = HttpRequestParser(self)
        self._sent: list[bytes] | None = None  # what was sent since `remember`

    def read_request(self) -> Request:
        """Waits for the next request. Raises CallerGoneError, and BrokenRequestError for bytes that are not HTTP."""
        while not self._requests:
            if not self._unparsed:
                self._receive()
            data, self._unparsed = self._unparsed, b""
            try:
                self._parser.feed_data(data)
            except HttpParserError as error:
                raise BrokenRequestError(str(error)) from error
        return self._requests.popleft()

    # The parser calls the methods below. It passes a target and a body on in the pieces in which they arrive.

    def on_message_begin(self) -> None:
        self._target, self._body, self._request = b"", bytearray(), Request()

    def on_url(self, piece: bytes) -> None:
        self._target += piece

    def on_header(self, raw_name: bytes, raw_value: bytes) -> None:
        headers, name, value = self._request.headers, raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value

    def on_headers_complete(self) -> None:
        if self._request.headers.get("expect", "").lower() == "100-continue":
            self.send(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, piece: bytes) -> None:
        self._body += piece

    def on_message_complete(self) -> None:
        request, (path, _, query) = self._request, self._target.decode("latin-1").partition("?")
        pairs = (pair.partition("=") for pair in query.split("&") if pair)
        request.method, request.path, request.body = (
            self._parser.get_method().decode(),
            unquote(path),
            bytes(self._body),
        )
        # A plus is not turned into a space, since model names contain it.
        request.query = {unquote(name): unquote(value) for name, _, value in pairs}
        request.version, request.keeps_alive = self._parser.get_http_version(), self._parser.should_keep_alive()
        self._requests.append(request)

    def send(self, data: bytes) -> None:
        """Sends everything, and waits while the caller reads slowly."""
        if self._sent is not None:
            self._sent.append(data)
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise CallerGoneError from error

    def remember(self) -> None:
        """Keeps what is sent from now on, for `send_again`."""
        self._sent = []

    def send_again(self, seconds: float) -> None:
        """Sends the remembered bytes again after `seconds`, without blocking, whatever is read and sent meanwhile.

        If `seconds` is infinite, `send_held` sends them.
        """
        data, self._sent = b"".join(self._sent or ()), None

        def send() -> None:
            with contextlib.suppress(CallerGoneError):
                self.send(data)

        if math.isinf(seconds):
            _held.append(send)
        else:
            gevent.spawn_later(seconds, send)

    def listen(self, seconds: float) -> None:
        """Stays silent for `seconds`, but notices at once when the caller leaves. Zero only checks that."""
        deadline = time.monotonic() + seconds
        left = seconds
        try:
            while True:
                self._socket.settimeout(None if math.isinf(left) else max(left, 0.0))
                self._receive()  # keeps a pipelined request unparsed
                left = deadline - time.monotonic()
        except (TimeoutError, BlockingIOError):
            return
        finally:
            self._socket.settimeout(None)

    def listen_until(self, ready: Callable[[], bool]) -> None:
        """Stays silent until `ready`, but notices when the caller leaves."""
        while not ready():
            self.listen(_LOOK_SECONDS)

    def reset(self) -> None:
        """Cuts the connection with a TCP reset, after the caller's machine has received what was sent before."""
        with contextlib.suppress(OSError):
            # A reset discards what is still queued, so wait until everything is acknowledged.
            deadline = time.monotonic() + _DRAIN_SECONDS
            while _unacknowledged_bytes(self._socket) and time.monotonic() < deadline:
                self.listen(0.001)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def _receive(self) -> None:
        try:
            data = self._socket.recv(_READ_BYTES)
        except (TimeoutError, BlockingIOError):
            raise
        except OSError as error:
            raise CallerGoneError from error
        if not data:
            raise CallerGoneError
        self._unparsed += data


class Reply:
    """Sends the answer to one request, whole or in pieces, in the framing that the behaviour asks for."""

    def __init__(self, connection: Connection, request: Request) -> None:
        self._connection = connection
        self._unsent = b""
        self._chunked = request.version != "1.0"
        self.keeps_alive = request.keeps_alive
        # If set, bodies are cut into segments of this number of bytes, wherever those end.
        self.segment_bytes: int | None = None

    def remember(self) -> None:
        """Keeps the whole answer, for `repeat`."""
        self._connection.remember()

    def repeat(self, seconds: float) -> None:
        """Sends the whole answer again, `seconds` later."""
        self._connection.send_again(seconds)

    def delimit_by_close(self) -> None:
        """Sends bodies without a length or chunks, which end when the connection is closed."""
        self._chunked = self.keeps_alive = False

    def whole(self, status: int, headers: dict[str, str], body: bytes) -> None:
        """Answers with a whole body, in one piece unless the behaviour asks for another framing."""
        if self.segment_bytes or not (self._chunked or self.keeps_alive):
            self.start(status, headers)
            self.end(body)
            return
        self._connection.listen(0)
        self._connection.send(self._head(status, {**headers, "content-length": str(len(body))}) + body)

    def start(self, status: int, headers: dict[str, str], length: int | None = None) -> None:
        """Begins a body that follows in pieces. A `length` is announced even if less follows."""
        if length is not None:
            self._chunked = False
            framing = {"content-length": str(length)}
        elif self._chunked:
            framing = {"transfer-encoding": "chunked"}
        else:
            self.keeps_alive = False
            framing = {}
        self._connection.send(self._head(status, {**headers, **framing}))

    def write(self, data: bytes) -> None:
        """Sends a piece of the body now or, with `segment_bytes`, all segments that are complete."""
        if self.segment_bytes is None:
            self._connection.send(self._framed(data))
            return
        self._unsent += data
        while len(self._unsent) >= self.segment_bytes:
            self._send_segment()

    def pause(self, seconds: float) -> None:
        """Sends what is left over, then stays silent. Raises CallerGoneError if the caller leaves meanwhile."""
        if seconds > 0:
            self._flush()
            self._connection.listen(seconds)

    def hold(self) -> None:
        """Sends what is left over, then stays silent until the calls of this model are let go."""
        self._flush()
        self._connection.listen_until(lambda: _let_go[self.held_by] > self._let_go_before)

    def held_by_model(self, model: str) -> None:
        """Sets the model whose `let_go`, from now on, ends `hold`."""
        self.held_by, self._let_go_before = model, _let_go[model]

    def end(self, data: bytes = b"") -> None:
        """Finishes the body with a last piece. Raises CallerGoneError if the caller has left."""
        self._connection.listen(0)
        if data and self.segment_bytes is not None:
            self.write(data)
            data = b""
        self._flush()
        last = (self._framed(data) if data else b"") + (b"0\r\n\r\n" if self._chunked else b"")
        if last:
            self._connection.send(last)

    def reset(self) -> NoReturn:
        """Sends what is left over, then cuts the connection. Raises HungUpError."""
        self._flush()
        self._connection.reset()
        raise HungUpError

    def _flush(self) -> None:
        if self._unsent:
            self._send_segment()

    def _send_segment(self) -> None:
        piece, self._unsent = self._unsent[: self.segment_bytes], self._unsent[self.segment_bytes :]
        self._connection.send(self._framed(piece))
        self._connection.listen(_SEGMENT_SECONDS)

    def _framed(self, data: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data

    def _head(self, status: int, headers: dict[str, str]) -> bytes:
        # Upstreams also use statuses that have no phrase, such as 529.
        lines = [f"HTTP/1.1 {status} {http.client.responses.get(status, 'Unknown')}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if not self.keeps_alive:
            lines.append("connection: close")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _unacknowledged_bytes(sock: socket.socket) -> int:
    (count,) = struct.unpack("i", fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, b"\0\0\0\0"))
    return int(count)
