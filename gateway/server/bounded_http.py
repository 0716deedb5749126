"""gunicorn's reading of a request within bounds: it bounds each wait alone, and a head at 800 KB."""

import math
import time
from typing import Any

from django.conf import settings
from gunicorn.http import message
from gunicorn.http.body import Body, ChunkedReader, LengthReader
from gunicorn.http.errors import InvalidHeader, LimitRequestHeaders, ParseException, UnsupportedTransferCoding
from gunicorn.http.unreader import SocketUnreader

from .turns import pause

MOST_HEAD_BYTES = 32 * 1024
MOST_HEAD_READS = 1000  # each looks through all that has come
READ_BYTES = 8 * 1024  # gunicorn's: the last read of a head may hold so much of the body
HEAD_SECONDS = 10.0
TINY_CHUNK_BYTES = 1024
MOST_TINY_CHUNKS = 10_000
TINY_CHUNKS_A_TURN = 500
NOT_UNDONE = frozenset(
    {"compress", "deflate", "gzip", "identity"}
)  # codings that gunicorn takes, and leaves on the body


class HeadTooSlow(ParseException):  # type: ignore[misc]  # gunicorn ships no types
    """The head of a request was begun and not finished in time."""


class TooManyTinyChunks(ParseException):  # type: ignore[misc]
    """A chunked body takes far more work than its bytes are worth."""


class DeadlineUnreader(SocketUnreader):  # type: ignore[misc]
    """gunicorn's reader of a socket. Raises TimeoutError from `ends_at` on, by the monotonic clock."""

    ends_at = math.inf

    def chunk(self, size_hint: int | None = None) -> bytes:
        left = self.ends_at - time.monotonic()
        if left <= 0:
            raise TimeoutError
        idle: float = settings.GATEWAY_STREAM_IDLE_TIMEOUT
        if left >= idle:
            return bytes(super().chunk(size_hint))
        self.sock.settimeout(left)
        try:
            return bytes(super().chunk(size_hint))
        finally:
            self.sock.settimeout(idle)  # of writing the answer, too

    def come(self, size: int) -> bytes:
        """The next `size` bytes if all have arrived, else b"". Never blocks, never consumes."""
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
    """The first bytes of a request; the rest of its head has HEAD_SECONDS. Raises StopIteration where none come."""
    unreader.ends_at = time.monotonic() + seconds
    try:
        begun: bytes = unreader.read()
    except TimeoutError:
        raise StopIteration from None
    if not begun:
        raise StopIteration
    unreader.ends_at = time.monotonic() + HEAD_SECONDS
    return begun


def begin_body(unreader: Any) -> None:
    """Gives the body GATEWAY_BODY_TIMEOUT from now on."""
    unreader.ends_at = time.monotonic() + settings.GATEWAY_BODY_TIMEOUT


class BoundedRequest(message.Request):  # type: ignore[misc]
    """A request whose head and body come within bounds."""

    body: Body
    _reads = 0

    def __init__(self, cfg: Any, unreader: Any, peer_addr: Any, req_number: int = 1) -> None:
        unreader.unread(begin(unreader, HEAD_SECONDS if req_number == 1 else cfg.keepalive))
        super().__init__(cfg, unreader, peer_addr, req_number)
        if self.version >= (1, 1) and all(name != "HOST" for name, _ in self.headers):
            raise InvalidHeader("HOST")
        if self.declares_too_much:  # its client is not told to go on (`Expect`), and what it sends is not read
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
        """gunicorn asks when it writes the head of the answer, and behind it: a body left unread ends a connection."""
        return self.left_unread or bool(super().should_close())

    def parse(self, unreader: Any) -> bytes:
        self.max_buffer_headers = MOST_HEAD_BYTES + READ_BYTES
        try:
            behind: bytes = super().parse(unreader)
        except TimeoutError:
            raise HeadTooSlow from None
        return behind

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


class BlockReader(LengthReader):  # type: ignore[misc]
    """gunicorn's reader of a body of known length, which gives what has come and waits only where nothing has.

    gunicorn's own fills a buffer with what has come, and copies the rest of it at each read.
    """

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
                pause()
        return size, rest
