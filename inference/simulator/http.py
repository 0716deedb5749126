"""The little HTTP/1.1 that the simulator speaks: requests in, bytes out, and an eye on whether the caller is there.

A server library would frame and buffer for us. Here resets in mid-stream, the exact cuts between segments and the
instant at which a caller leaves are the product, so the socket stays in our hands.
"""

import contextlib
import fcntl
import math
import socket
import struct
import termios
import time
from dataclasses import dataclass
from urllib.parse import unquote

MAX_HEAD_BYTES = 64 * 1024
# Twice the largest body that the gateway can be configured to forward in the tests.
MAX_BODY_BYTES = 64 * 1024 * 1024
_READ_BYTES = 256 * 1024
_HEAD_END = b"\r\n\r\n"
_DRAIN_SECONDS = 2.0


class CallerGoneError(Exception):
    """The caller closed or reset its connection."""


class HungUpError(Exception):
    """The simulator itself reset the connection, as it was asked to."""


class BrokenRequestError(Exception):
    """What arrived is no HTTP request that the simulator understands."""


@dataclass(frozen=True, slots=True)
class Request:
    """One parsed request; header names are lowercase, repeated headers joined with a comma."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    version: str

    @property
    def keeps_alive(self) -> bool:
        """Whether the caller expects to use the connection again."""
        wish = self.headers.get("connection", "").lower()
        return wish == "keep-alive" if self.version == "HTTP/1.0" else wish != "close"


class Connection:
    """A caller's socket: reads requests, sends bytes, and turns every way of leaving into `CallerGoneError`."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = sock
        self._buffer = bytearray()

    def read_request(self) -> Request | None:
        """Wait for the next request; None when the caller closed between two of them."""
        head = self._read_head()
        if head is None:
            return None
        method, target, version = _request_line(head[0])
        headers = _headers(head[1:])
        if headers.get("expect", "").lower() == "100-continue":
            self.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        path, _, query = target.partition("?")
        return Request(method, unquote(path), _query(query), headers, self._read_body(headers), version)

    def send(self, data: bytes) -> None:
        """Send everything, waiting where the caller reads slowly."""
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise CallerGoneError from error

    def listen(self, seconds: float) -> None:
        """Stay silent for so long, but notice at once when the caller leaves. Zero only looks."""
        deadline = time.monotonic() + seconds
        left = seconds
        try:
            while True:
                self._socket.settimeout(None if math.isinf(left) else max(left, 0.0))
                self._receive()  # a pipelined request may arrive meanwhile: it waits in the buffer
                left = deadline - time.monotonic()
        except (TimeoutError, BlockingIOError):
            return
        finally:
            self._socket.settimeout(None)

    def reset(self) -> None:
        """Cut the connection with a TCP reset, after the caller's machine has what was sent before."""
        with contextlib.suppress(OSError):
            self._drain()
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def _drain(self) -> None:
        """Wait until nothing sent is unacknowledged: a reset throws away what is still queued."""
        deadline = time.monotonic() + _DRAIN_SECONDS
        while _unacknowledged(self._socket) and time.monotonic() < deadline:
            self.listen(0.001)

    def _receive(self) -> None:
        try:
            data = self._socket.recv(_READ_BYTES)
        except (TimeoutError, BlockingIOError):
            raise
        except OSError as error:
            raise CallerGoneError from error
        if not data:
            raise CallerGoneError
        self._buffer += data

    def _read_head(self) -> list[str] | None:
        while (end := self._buffer.find(_HEAD_END)) < 0:
            if len(self._buffer) > MAX_HEAD_BYTES:
                raise BrokenRequestError("The request's head is too large.")
            try:
                self._receive()
            except CallerGoneError:
                if self._buffer:
                    raise
                return None
        return self._take(end + len(_HEAD_END)).decode("latin-1")[: -len(_HEAD_END)].split("\r\n")

    def _read_body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return self._read_chunks()
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > MAX_BODY_BYTES:
            raise BrokenRequestError("The Content-Length is no number or too large.")
        return self._take(int(length))

    def _read_chunks(self) -> bytes:
        body = bytearray()
        while size := self._chunk_size():
            body += self._take(size)
            self._take_line()
            if len(body) > MAX_BODY_BYTES:
                raise BrokenRequestError("The chunked body is too large.")
        while self._take_line():
            pass  # trailers are of no use here
        return bytes(body)

    def _chunk_size(self) -> int:
        line = self._take_line().partition(b";")[0]
        try:
            return int(line, 16)
        except ValueError:
            raise BrokenRequestError("A chunk's size is no number.") from None

    def _take_line(self) -> bytes:
        while (end := self._buffer.find(b"\r\n")) < 0:
            if len(self._buffer) > MAX_HEAD_BYTES:
                raise BrokenRequestError("A line is too long.")
            self._receive()
        return self._take(end + 2)[:-2]

    def _take(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._receive()
        taken = bytes(memoryview(self._buffer)[:size])
        del self._buffer[:size]
        return taken


def _request_line(line: str) -> tuple[str, str, str]:
    parts = line.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise BrokenRequestError("The request line is not that of HTTP/1.")
    return parts[0], parts[1], parts[2]


def _headers(lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise BrokenRequestError("A header has no colon.")
        name, value = name.strip().lower(), value.strip()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _query(text: str) -> dict[str, str]:
    """Parse a query; a plus stays one, since model names are combined with it."""
    pairs = (pair.partition("=") for pair in text.split("&") if pair)
    return {unquote(name): unquote(value) for name, _, value in pairs}


def _unacknowledged(sock: socket.socket) -> int:
    """How many sent bytes the other end has not yet acknowledged."""
    (count,) = struct.unpack("i", fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, b"\0\0\0\0"))
    return int(count)
