"""Bounds the declared size of a request, and the time and the number of pieces in which gunicorn reads it."""

import array
import fcntl
import socket
import termios
import time
from typing import Any

from django.conf import settings
from gunicorn.http import message, wsgi
from gunicorn.http.body import Body, ChunkedReader, LengthReader
from gunicorn.http.errors import InvalidHeader, LimitRequestHeaders, ParseException, UnsupportedTransferCoding
from gunicorn.http.unreader import SocketUnreader

BLOCK_BYTES = 64 * 1024
MOST_HEAD_BYTES = 32 * 1024
MOST_HEAD_READS = 1000  # each read scans the whole head again
READ_BYTES = 8 * 1024  # gunicorn reads this much at a time, so this much of the body may come with the head
HEAD_SECONDS = 10.0
EMPTY_LINE = b"\r\n"
TINY_CHUNK_BYTES = 1024
MOST_TINY_CHUNKS = 10_000
TINY_CHUNKS_A_TURN = 500
UPGRADE_REQUIRED = 426
NOT_UNDONE = frozenset({"compress", "deflate", "gzip", "identity"})  # codings that gunicorn accepts without decoding


def has_unread(sock: socket.socket) -> bool:
    """Tells whether the socket holds bytes that were not read."""
    if sock.fileno() < 0:
        return False
    count = array.array("i", [0])
    fcntl.ioctl(sock.fileno(), termios.FIONREAD, count)
    return bool(count[0])


class HeadTooSlow(ParseException):  # type: ignore[misc]  # gunicorn ships no types
    """The head of a request did not arrive in time."""


class TooManyTinyChunks(ParseException):  # type: ignore[misc]
    """A chunked body came in too many chunks of a few bytes."""


class DeadlineUnreader(SocketUnreader):  # type: ignore[misc]
    """Reads from a connection, and raises TimeoutError from `ends_at` (monotonic clock) on."""

    ends_at: float

    def chunk(self, size_hint: int | None = None) -> bytes:
        left = self.ends_at - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self.sock.settimeout(left)
        try:
            return bytes(super().chunk(size_hint))
        finally:
            self.sock.settimeout(settings.GATEWAY_STREAM_IDLE_TIMEOUT)  # for writing the answer

    def come(self, size: int) -> bytes:
        # Returns the next bytes, or nothing if fewer have arrived. It neither waits nor consumes them.
        held: bytes = self.buf.getvalue()
        if len(held) < size:
            waited = self.sock.gettimeout()
            self.sock.settimeout(0)
            try:
                block = self.sock.recv(size - len(held))
            except OSError:
                block = b""
            finally:
                self.sock.settimeout(waited)
            self.unread(held := self.take_buffered() + block)
        return held[:size] if len(held) >= size else b""


def begin(unreader: Any, seconds: float) -> bytes:
    """Reads the first bytes of a request, within `seconds`. Its head must arrive within HEAD_SECONDS from then.

    Skips an empty line before the request (RFC 9112, section 2.2). Raises StopIteration if nothing else arrives.
    """
    unreader.ends_at = time.monotonic() + seconds
    begun = b""
    while EMPTY_LINE.startswith(begun):
        block = _first_block(unreader)
        if not block:
            raise StopIteration
        begun += block
    unreader.ends_at = time.monotonic() + HEAD_SECONDS
    return begun.removeprefix(EMPTY_LINE)


def _first_block(unreader: Any) -> bytes:
    try:
        return bytes(unreader.read())
    except TimeoutError:
        if not has_unread(unreader.sock):
            raise StopIteration from None
        # The request arrived just as the time ran out. Closing would reset it, and clients do not repeat a POST.
        unreader.ends_at = time.monotonic() + HEAD_SECONDS
        return bytes(unreader.read())


def begin_body(unreader: Any) -> None:
    """Starts the time within which the body must arrive (GATEWAY_BODY_TIMEOUT)."""
    unreader.ends_at = time.monotonic() + settings.GATEWAY_BODY_TIMEOUT


class BoundedRequest(message.Request):  # type: ignore[misc]
    """Replaces gunicorn's request. Bounds its time, its number of reads, and its declared size."""

    body: Body
    _reads = 0

    def __init__(self, cfg: Any, unreader: Any, peer_addr: Any, req_number: int = 1) -> None:
        unreader.unread(begin(unreader, HEAD_SECONDS if req_number == 1 else cfg.keepalive))
        super().__init__(cfg, unreader, peer_addr, req_number)
        if self.version >= (1, 1) and all(name != "HOST" for name, _ in self.headers):
            raise InvalidHeader("HOST")
        if self.declares_too_much:  # does not answer `Expect: 100-continue`, and does not read the body
            self._expected_100_continue = False
            self.force_close()
        begin_body(unreader)

    @property
    def declares_too_much(self) -> bool:
        declared = next((value for name, value in self.headers if name == "CONTENT-LENGTH"), "")
        return declared.isdigit() and int(declared) > settings.GATEWAY_MAX_BODY_BYTES

    @property
    def left_unread(self) -> bool:
        reader = self.body.reader
        if isinstance(reader, LengthReader):
            return bool(reader.length)
        return isinstance(reader, ChunkedReader) and reader.parser is not None

    def should_close(self) -> bool:
        # gunicorn calls this for the Connection header and again after the answer. An unread body ends the connection.
        return self.left_unread or bool(super().should_close())

    def parse(self, unreader: Any) -> bytes:
        self.max_buffer_headers = MOST_HEAD_BYTES + READ_BYTES
        try:
            rest: bytes = super().parse(unreader)
        except TimeoutError:
            raise HeadTooSlow from None
        return rest

    def read_into(self, unreader: Any, buf: bytearray, stop: bool = False) -> None:
        self._reads += 1
        if self._reads > MOST_HEAD_READS:
            raise LimitRequestHeaders("too many pieces")
        super().read_into(unreader, buf, stop)

    def set_body_reader(self) -> None:
        for name, value in self.headers:
            if name == "TRANSFER-ENCODING" and not NOT_UNDONE.isdisjoint(value.lower().replace(",", " ").split()):
                raise UnsupportedTransferCoding(value)
        super().set_body_reader()
        reader = self.body.reader
        if isinstance(reader, ChunkedReader):
            self.body = Body(_CountedChunks(self, self.unreader))
        elif isinstance(reader, LengthReader):
            self.body = Body(BlockReader(self.unreader, reader.length))


class UpgradingResponse(wsgi.Response):  # type: ignore[misc]
    """Replaces gunicorn's response. Adds to a 426 the `Upgrade` header (RFC 9110, 15.5.22), which gunicorn drops."""

    def default_headers(self) -> list[str]:
        lines: list[str] = super().default_headers()
        if self.status_code == UPGRADE_REQUIRED:
            lines = [line.replace("Connection: ", "Connection: upgrade, ") for line in lines]
            lines.append("Upgrade: HTTP/1.1\r\n")
        return lines


class BlockReader(LengthReader):  # type: ignore[misc]
    """Replaces gunicorn's reader of a body with Content-Length, and copies less."""

    def read(self, size: int) -> bytes:
        size = min(size, self.length)
        if not size:
            return b""
        block: bytes = self.unreader.read(None, read_ahead=size)
        if len(block) > size:  # the next request came with it
            self.unreader.unread(block[size:])
            block = block[:size]
        self.length -= len(block)
        return block


class _CountedChunks(ChunkedReader):  # type: ignore[misc]
    _tiny = 0

    def parse_chunk_size(self, unreader: Any, data: bytes | None = None) -> tuple[int, bytes | None]:
        size, rest = super().parse_chunk_size(unreader, data)
        if 0 < size < TINY_CHUNK_BYTES:
            self._tiny += 1
            if self._tiny > MOST_TINY_CHUNKS:
                raise TooManyTinyChunks
            if self._tiny % TINY_CHUNKS_A_TURN == 0:
                from .turns import pause

                pause()
        return size, rest
