"""gunicorn's gevent worker, and its reading of a request within bounds.

The master imports this: thread-local state comes with `patch`.
"""

import array
import contextlib
import errno
import fcntl
import gc
import os
import socket
import termios
import time
from typing import Any

import gevent
from django.conf import settings
from gevent.server import StreamServer
from gunicorn.http import message, parser, wsgi
from gunicorn.http.body import Body, ChunkedReader, LengthReader
from gunicorn.http.errors import InvalidHeader, LimitRequestHeaders, ParseException, UnsupportedTransferCoding
from gunicorn.http.parser import RequestParser
from gunicorn.http.unreader import SocketUnreader
from gunicorn.workers import ggevent

BEAT_SECONDS = 1.0
ACCEPTED_AT_ONCE = 10  # connections of a burst: what is under way has its turn between them; gevent takes a hundred
# Streams that are cut by a drain still have to settle and to say so before the worker ends.
SETTLING_SECONDS = 2.0
# A drain keeps idle connections for so long: a proxy may be sending on them, and repeats no POST that it has sent.
KEPT_SECONDS = 1.0
KEPT_SECONDS_OF_CUT = 0.25  # once it has cut what was open
LET_GO_EVERY_SECONDS = 0.1
# A last answer that left a body or another request unread: as much is read as a client is likely to have sent already.
LINGER_SECONDS = 5.0
LINGER_BODIES = 4  # in units of the largest body that is taken
BLOCK_BYTES = 64 * 1024
MOST_HEAD_BYTES = 32 * 1024
MOST_HEAD_READS = 1000  # each looks through all that has come
READ_BYTES = 8 * 1024  # gunicorn's: the last read of a head may hold so much of the body
HEAD_SECONDS = 10.0
EMPTY_LINE = b"\r\n"
TINY_CHUNK_BYTES = 1024
MOST_TINY_CHUNKS = 10_000
TINY_CHUNKS_A_TURN = 500
UPGRADE_REQUIRED = 426
NOT_UNDONE = frozenset(
    {"compress", "deflate", "gzip", "identity"}
)  # codings that gunicorn takes, and leaves on the body


class _Idle:
    # the wait for a connection's next request, which a drain or a lack of places ends
    def __init__(self, idle: "dict[gevent.Greenlet[Any, Any], float]") -> None:
        self._idle = idle

    def __enter__(self) -> None:
        self._idle[gevent.getcurrent()] = time.monotonic()

    def __exit__(self, *_error: object) -> None:
        del self._idle[gevent.getcurrent()]


class _Listener(StreamServer):  # type: ignore[misc]  # nor does gevent for these
    # Its end loses nobody who has connected: closing would reset those whom no worker has accepted.
    max_accept = ACCEPTED_AT_ONCE

    def close(self) -> None:
        with contextlib.suppress(OSError):
            while self.started and not self.full() and (connection := self.do_read()):
                self.do_handle(*connection)
        super().close()


class GatewayWorker(ggevent.GeventWorker):  # type: ignore[misc]  # gunicorn ships no types
    """Runs the worker hooks around gunicorn's loop. `gunicorn_conf` sets `refusal` and `overload`."""

    alive: bool
    refusal: Any
    overload: Any

    def patch(self) -> None:
        gc.disable()  # until all is loaded: none of it is garbage, and looking is a tenth of a start
        super().patch()
        ggevent.StreamServer = _Listener
        from . import db, hooks

        self._hooks, self._database = hooks, db
        RequestParser.mesg_class = BoundedRequest
        wsgi.Response = UpgradingResponse
        parser.SocketUnreader = DeadlineUnreader

    def run(self) -> None:
        gc.enable()
        self._waiting: dict[gevent.Greenlet[Any, Any], float] = {}  # since when, by the monotonic clock
        self._connections: dict[gevent.Greenlet[Any, Any], socket.socket] = {}
        self._hooks.worker_hooks.is_draining = lambda: not self.alive
        self._start()
        if not self.alive:
            return
        self._run(self._hooks.worker_hooks.ready)
        # What is loaded stays: looking through it for garbage stopped all requests for 100 ms, each some thousand.
        gc.collect()
        gc.freeze()
        gc.set_threshold(10_000)  # an agent's request is thousands of objects, of which none is garbage yet
        beside = [gevent.spawn(self._beat), gevent.spawn(self._drain)]
        try:
            super().run()
        finally:
            gevent.killall(beside)
            self._run(self._hooks.worker_hooks.stop)

    def handle(self, _listener: Any, client: Any, addr: Any) -> None:
        # Bounds writing: a client that takes nothing of its answer is disconnected. Reading has deadlines of its own.
        client.settimeout(settings.GATEWAY_STREAM_IDLE_TIMEOUT)
        self._connections[gevent.getcurrent()] = client
        try:
            # gunicorn asks the listener for its address only, which a drain may have closed: the client's says it too.
            super(ggevent.GeventWorker, self).handle(client, client, addr)
        finally:
            del self._connections[gevent.getcurrent()]

    def timeout_ctx(self) -> _Idle:
        return _Idle(self._waiting)

    def notify(self) -> None:
        super(ggevent.GeventWorker, self).notify()
        # gunicorn's own exits at once, and cuts what is open. Nobody tells a worker to stop whose master has died.
        if self.alive and self.ppid != os.getppid():
            self.log.info("the master has died: this worker ends once it has drained")
            self.alive = False

    def _start(self) -> None:
        # a database that is away delays the worker, no more
        waiting = list(self._hooks.worker_hooks.start)
        while waiting and self.alive:
            self.notify()
            waiting = self._run(waiting)
            if waiting:
                gevent.sleep(BEAT_SECONDS)

    def _run(self, hooks: Any) -> Any:
        return self._hooks.run_each(hooks, statement_seconds=self._database.BRIEF_SECONDS)

    def _beat(self) -> None:
        while True:
            gevent.sleep(BEAT_SECONDS)
            self._run(self._hooks.worker_hooks.beat)

    def _drain(self) -> None:
        while self.alive:
            gevent.sleep(BEAT_SECONDS)
            if len(self._connections) >= self.worker_connections:
                self._close_idle(BEAT_SECONDS)
        told_at = time.monotonic()
        cut_at = told_at + settings.GATEWAY_DRAIN_TIMEOUT - SETTLING_SECONDS
        while time.monotonic() < cut_at:
            self._close_idle(KEPT_SECONDS, told_at)
            gevent.sleep(LET_GO_EVERY_SECONDS)
        self._run(self._hooks.worker_hooks.drain)
        while True:
            self._close_idle(KEPT_SECONDS_OF_CUT, told_at)
            gevent.sleep(LET_GO_EVERY_SECONDS)

    def _close_idle(self, seconds: float, told_at: float = 0.0) -> None:
        now = time.monotonic()
        for greenlet, since in self._waiting.items():
            if now - max(since, told_at) >= seconds:
                self._let_go(greenlet)

    def _let_go(self, greenlet: Any) -> None:
        began = self._waiting[greenlet]

        # The hub looks, and throws at once: gevent's `kill` throws later, into whatever the greenlet does by then.
        def end() -> None:
            if self._waiting.get(greenlet) == began and not _has_unread(self._connections[greenlet]):
                greenlet.throw(gevent.GreenletExit)

        gevent.get_hub().loop.run_callback(end)

    def handle_request(self, listener_name: Any, req: Any, sock: Any, addr: Any) -> Any:
        try:
            if self._database.is_full() and self.overload.shed(self, req, sock):
                return None
            self.overload.served += 1
            return super().handle_request(listener_name, req, sock, addr)
        except StopIteration:
            if req.left_unread or _has_unread(sock):
                _linger(sock)
            raise
        except TimeoutError:
            seconds = settings.GATEWAY_STREAM_IDLE_TIMEOUT
            self.log.info("a client took nothing of its answer for %g s: its connection is closed", seconds)
            raise StopIteration from None

    def handle_error(self, req: Any, client: Any, addr: Any, exc: BaseException) -> None:
        if isinstance(exc, gevent.GreenletExit):
            return  # an idle connection, closed by a drain
        if isinstance(exc, OSError) and exc.errno in (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN):
            return
        if not isinstance(exc, ParseException):
            self.log.error("error handling a connection", exc_info=exc)
        try:
            client.sendall(self.refusal(exc))
        except OSError:
            self.log.debug("the client was gone before its error could be sent")


def _has_unread(sock: socket.socket) -> bool:
    if sock.fileno() < 0:
        return False
    count = array.array("i", [0])
    fcntl.ioctl(sock.fileno(), termios.FIONREAD, count)
    return bool(count[0])


def _linger(sock: Any) -> None:
    # closing at once would reset the answer away
    left = LINGER_BODIES * settings.GATEWAY_MAX_BODY_BYTES
    with gevent.Timeout(LINGER_SECONDS, False):
        try:
            sock.shutdown(socket.SHUT_WR)
            while left > 0:
                block = sock.recv(BLOCK_BYTES)
                if not block:
                    return
                left -= len(block)
        except OSError:
            return


class HeadTooSlow(ParseException):  # type: ignore[misc]  # gunicorn ships no types
    """A head that is not finished in time."""


class TooManyTinyChunks(ParseException):  # type: ignore[misc]
    """A chunked body that takes more work than its bytes are worth."""


class DeadlineUnreader(SocketUnreader):  # type: ignore[misc]
    """gunicorn's reader of a connection, which raises TimeoutError from `ends_at` on, by the monotonic clock."""

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
        # never blocks, never consumes
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
    """Reads the first bytes of a request, within `seconds`; its head then has HEAD_SECONDS.

    An empty line before it begins none (RFC 9112, section 2.2), and is left out. Raises StopIteration if none arrive.
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
        if not _has_unread(unreader.sock):
            raise StopIteration from None
        # The request arrived as the time ran out: to close now would reset it, and clients do not repeat a POST.
        unreader.ends_at = time.monotonic() + HEAD_SECONDS
        return bytes(unreader.read())


def begin_body(unreader: Any) -> None:
    """Starts GATEWAY_BODY_TIMEOUT."""
    unreader.ends_at = time.monotonic() + settings.GATEWAY_BODY_TIMEOUT


class BoundedRequest(message.Request):  # type: ignore[misc]
    """A request within bounds."""

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
        # asked with the answer's head, and behind it: a body left unread ends a connection
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


class UpgradingResponse(wsgi.Response):  # type: ignore[misc]
    """gunicorn's response, whose 426 names the protocol to use (RFC 9110, 15.5.22): gunicorn drops `Upgrade`."""

    def default_headers(self) -> list[str]:
        lines: list[str] = super().default_headers()
        if self.status_code == UPGRADE_REQUIRED:
            lines = [line.replace("Connection: ", "Connection: upgrade, ") for line in lines]
            lines.append("Upgrade: HTTP/1.1\r\n")
        return lines


class BlockReader(LengthReader):  # type: ignore[misc]
    """gunicorn's reader of a known length, without its copies."""

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
