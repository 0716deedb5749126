"""Opens connections to upstreams and keeps them for reuse; httptools parses HTTP/1.1.

A connection carries one request at a time, for one account. Any greenlet may call `cut`, which ends a wait for it.
"""

import errno
import logging
import select
import socket
import ssl
import time
from collections import Counter, OrderedDict
from functools import cache, lru_cache
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from uuid import UUID

import certifi
import gevent
import gevent.socket
import gevent.ssl
from gevent import get_hub
from gevent.monkey import get_original
from httptools import HttpParserError, HttpResponseParser

from gateway.server import open_files

from . import READABLE, WRITABLE
from .faults import BrokenAnswer

BLOCK_BYTES = 64 * 1024
MOST_FRAMING_BYTES = 64 * 1024  # received in a row without a byte of the body: heads, chunk sizes, trailers
MOST_INTERIM = 16  # responses such as 100 Continue before the answer itself
MOST_IDLE = min(1000, open_files.fifths(1))  # idle connections to all origins together
MOST_IDLE_OF_ORIGIN = MOST_IDLE // 2  # for all accounts, so that one origin does not push out all others
MOST_IDLE_SECONDS = 60.0  # upstreams close idle connections; if one does while we send, the request fails
# In HTTP/1.1 a late, surplus answer looks like the answer to the next request. So a connection serves one account, and
# not for long (docs/security.md#upstreams).
MOST_USES, MOST_SECONDS = 100, 300.0  # of a connection in its life
TIMED_OUT = (b"HTTP/1.1 408", b"HTTP/1.0 408")  # some servers send this before they close an idle connection
UNASKED_SECONDS = 300.0  # keep no connections of an origin this long after it sent bytes without a request
MOST_HEADS = 1000  # in the cache of `head_of`
ONE_SEND_BYTES = 64 * 1024  # a body up to this size is sent together with its head

# The originals that gevent replaced: a send or a receive is one system call and nothing else. The hub's watchers do
# the waiting.
_PlainSocket: type[socket.socket] = get_original("socket", "socket")
_poll = get_original("select", "poll")
logger = logging.getLogger(__name__)
# By provider: connections with unexpected bytes, and connections that the provider closed in the middle of an answer.
unexpected_bytes: Counter[str] = Counter()
broken_ends: Counter[str] = Counter()


class Origin(NamedTuple):
    """Names a server by scheme, host and port."""

    is_tls: bool
    host: str
    port: int


class AnswerParser:
    """Parses the answers on a connection, one after the other, with one parser."""

    __slots__ = (
        "blocks",
        "body_bytes_at",
        "headers",
        "interim",
        "is_complete",
        "keeps_alive",
        "parser",
        "received_bytes",
        "status",
    )

    def __init__(self) -> None:
        self.blocks: list[bytes] = []
        self.begin()
        self.parser = HttpResponseParser(self)
        # Real servers send a bare LF, and a last chunk without its line end.
        self.parser.set_dangerous_leniencies(lenient_optional_cr_before_lf=True, lenient_data_after_close=True)

    def begin(self) -> None:
        self.status = 0  # until the head of the answer itself is complete
        self.headers: dict[str, str] = {}
        self.blocks.clear()
        self.is_complete = self.keeps_alive = False
        self.interim = 0
        self.received_bytes = 0  # heads and framing included
        self.body_bytes_at = 0  # `received_bytes` when the body last grew

    def take(self) -> bytes:
        blocks = self.blocks
        # usually there is nothing to join
        if len(blocks) == 1:
            block = blocks[0]
            blocks.clear()
            return block
        joined = b"".join(blocks)
        blocks.clear()
        return joined

    @property
    def ends_with_the_connection(self) -> bool:
        return "content-length" not in self.headers and "chunked" not in self.headers.get("transfer-encoding", "")

    # The callbacks of the parser.

    def on_message_begin(self) -> None:
        if self.is_complete:
            self.keeps_alive = False
            raise BrokenAnswer("sent more than one answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.status:  # trailers are ignored
            self.headers[name.decode("latin-1").lower()] = value.decode("latin-1").strip()

    def on_headers_complete(self) -> None:
        status = self.parser.get_status_code()
        if status >= 200:
            self.status, self.keeps_alive = status, self.parser.should_keep_alive()
            return
        self.interim += 1
        self.headers.clear()
        if status == 101 or self.interim > MOST_INTERIM:
            raise BrokenAnswer("sent interim responses instead of an answer")

    def on_body(self, block: bytes) -> None:
        self.blocks.append(block)

    def on_message_complete(self) -> None:
        if self.status:
            self.is_complete = True


class Connection:
    """Holds an open connection. Raises OSError if it breaks, and BrokenAnswer if the upstream breaks HTTP."""

    __slots__ = (
        "_has_ended",
        "_readable",
        "_sock",
        "account",
        "answer",
        "idle_since",
        "is_tls",
        "key",
        "opened_at",
        "origin",
        "provider",
        "uses",
    )

    def __init__(self, origin: Origin, account: UUID, provider: str, sock: Any) -> None:
        self.origin, self.is_tls, self._sock = origin, origin.is_tls, sock
        self.account, self.provider, self.key = account, provider, (origin, account.int)
        self.opened_at, self.uses = time.monotonic(), 0
        self._readable = get_hub().loop.io(sock.fileno(), READABLE)
        self.answer = AnswerParser()
        self.idle_since = 0.0
        self._has_ended = False

    def send(self, head: bytes, body: bytes) -> None:
        self.uses += 1
        self.answer.begin()
        if len(body) <= ONE_SEND_BYTES:
            self._send_all(head + body)
        else:
            self._send_all(head)
            self._send_all(body)

    def receive(self) -> None:
        # 1. Wait for bytes. TLS may hold decrypted ones; the kernel's socket is then not readable.
        if not (self.is_tls and self._sock.pending()):
            get_hub().wait(self._readable)
        while True:
            try:
                block: bytes = self._sock.recv(BLOCK_BYTES)
                break
            except BlockingIOError:
                get_hub().wait(self._readable)
            except TimeoutError:  # set by the caller; not an end of the connection
                raise
            except OSError:
                self._note_end()
                raise
        # 2. The upstream has closed the connection. That may be the end of the answer.
        answer = self.answer
        if not block:
            if not answer.status or answer.is_complete or not answer.ends_with_the_connection:
                self._note_end()
                raise ConnectionError("the upstream closed the connection")
            answer.is_complete = True
            return
        # 3. Parse them.
        try:
            answer.parser.feed_data(block)
        except HttpParserError as error:
            where = "after an answer" if answer.is_complete else "of broken HTTP"
            _distrust(self, unexpected_bytes, f"sent bytes {where}")
            if answer.is_complete:
                answer.keeps_alive = False
                return
            # If a callback of the parser raised an error, it is the context of llhttp's own error.
            cause = error.__context__
            raise cause if isinstance(cause, BrokenAnswer) else BrokenAnswer("answered with broken HTTP") from error
        # 4. Bound the bytes that are not part of the body.
        answer.received_bytes += len(block)
        if answer.blocks:
            answer.body_bytes_at = answer.received_bytes
        elif answer.received_bytes - answer.body_bytes_at > MOST_FRAMING_BYTES:
            raise BrokenAnswer("sent headers without end")

    def cut(self) -> None:
        self._has_ended = True
        try:
            # Bypasses TLS on purpose: its own shutdown would wait for the other side.
            if self.is_tls:
                gevent.socket.socket.shutdown(self._sock, socket.SHUT_RDWR)
            else:
                self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it was closed already

    def close(self) -> None:
        self._readable.stop()
        self._readable.close()
        self._sock.close()

    @property
    def may_be_reused(self) -> bool:
        return self.answer.is_complete and self.answer.keeps_alive

    def is_good(self) -> bool:
        # Checks that it is open, and has received no bytes without a request.
        try:
            if self.is_tls:
                poll = _poll()
                poll.register(self._sock.fileno(), select.POLLIN)
                # TLS has no MSG_PEEK, so we read only if something has come
                if not poll.poll(0):
                    return True
                self._sock.settimeout(0)  # it may belong to TLS itself, such as a ticket
                unasked: bytes = self._sock.recv(len(TIMED_OUT[0]))
            else:
                unasked = self._sock.recv(len(TIMED_OUT[0]), socket.MSG_PEEK)
        except (BlockingIOError, ssl.SSLWantReadError):
            if self.is_tls:
                self._sock.settimeout(None)
            return True
        except OSError:
            return False
        if unasked and not unasked.startswith(TIMED_OUT):
            _distrust(self, unexpected_bytes, "sent bytes without a request")
        return False

    def _note_end(self) -> None:
        # Between requests, or before the first byte of an answer, an end is ordinary: keep-alive ran out.
        if self.answer.received_bytes and not self.answer.is_complete and not self._has_ended:
            self._has_ended = True  # `receive` may be called once more; count the end once
            _distrust(self, broken_ends, "broke off an answer")

    def _send_all(self, data: bytes) -> None:
        if self.is_tls:
            self._sock.sendall(data)
            return
        try:
            sent = self._sock.send(data)
        except BlockingIOError:
            sent = 0
        if sent == len(data):
            return
        rest = memoryview(data)[sent:]
        writable = get_hub().loop.io(self._sock.fileno(), WRITABLE)
        try:
            while rest:
                get_hub().wait(writable)
                try:
                    rest = rest[self._sock.send(rest) :]
                except BlockingIOError:
                    continue
        finally:
            writable.close()


# Idle connections by origin, and by origin and account. The one that has been idle longest comes first.
_idle: dict[Origin, OrderedDict[Connection, None]] = {}
_idle_of: dict[tuple[Origin, int], dict[Connection, None]] = {}  # accounts as numbers, because UUIDs hash slowly
# No connection that was opened before this time is kept. After bytes without a request it lies in the future.
_distrusted_until: dict[Origin, float] = {}


def connection_to(origin: Origin, account: UUID, provider: str, timeout: float) -> Connection:
    """Returns an idle connection of the account, or opens one within `timeout` seconds. Raises OSError."""
    while kept := _idle_of.get((origin, account.int)):
        connection = next(reversed(kept))
        _withdraw(connection)
        now = time.monotonic()
        has_time = now - connection.idle_since < MOST_IDLE_SECONDS and now - connection.opened_at < MOST_SECONDS
        if connection.is_good() and has_time:
            connection.provider = provider
            return connection
        connection.close()
    try:
        sock = _connected(origin, timeout)
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE) or not close_idle(0):
            raise
        sock = _connected(origin, timeout)
    return Connection(origin, account, provider, sock)


def keep(connection: Connection) -> None:
    """Keeps a connection for the next request, or closes it if it is old, much used or distrusted."""
    now = time.monotonic()
    oldest_kept = max(now - MOST_SECONDS, _distrusted_until.get(connection.origin, 0.0))
    if connection.uses >= MOST_USES or connection.opened_at <= oldest_kept:
        connection.close()
        return
    # anything that the upstream sends from here on counts as a second answer
    connection.answer.begin()
    connection.idle_since = now
    idle = _idle.setdefault(connection.origin, OrderedDict())
    idle[connection] = _idle_of.setdefault(connection.key, {})[connection] = None
    if len(idle) > MOST_IDLE_OF_ORIGIN or sum(map(len, _idle.values())) > MOST_IDLE:
        oldest = next(iter(idle))
        _withdraw(oldest)
        oldest.close()


def close_idle(seconds: float = MOST_IDLE_SECONDS) -> int:
    """Closes kept connections that are dead or idle for `seconds`; returns how many."""
    oldest = time.monotonic() - seconds
    closed = 0
    for idle in _idle.values():
        for connection in list(idle):
            if connection in idle and (not connection.is_good() or connection.idle_since < oldest):
                _withdraw(connection)
                connection.close()
                closed += 1
    return closed


def _withdraw(connection: Connection) -> None:
    del _idle[connection.origin][connection]
    of_account = _idle_of[connection.key]
    del of_account[connection]
    if not of_account:
        del _idle_of[connection.key]


def _distrust(connection: Connection, counts: Counter[str], deed: str) -> None:
    # A connection that opens before that time is used once, so that a surplus answer meets no other request.
    until = time.monotonic() + (UNASKED_SECONDS if counts is unexpected_bytes else 0.0)
    _distrusted_until[connection.origin] = max(until, _distrusted_until.get(connection.origin, 0.0))
    others = [other for other in _idle.get(connection.origin, ()) if other is not connection]
    for other in others:
        _withdraw(other)
        other.close()
    counts[connection.provider] += 1
    logger.log(
        logging.ERROR if counts is unexpected_bytes else logging.WARNING,
        "provider %s %s: the connection and %d idle ones are closed",
        connection.provider,
        deed,
        len(others),
    )


def _connected(origin: Origin, timeout: float) -> Any:
    with gevent.Timeout(timeout, TimeoutError()):
        sock = gevent.socket.create_connection((origin.host, origin.port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not origin.is_tls:
            # `detach` takes the descriptor away from gevent's object.
            plain = _PlainSocket(sock.family, sock.type, sock.proto, sock.detach())
            plain.setblocking(False)
            return plain
        try:
            return tls_context().wrap_socket(sock, server_hostname=origin.host)
        except BaseException:
            sock.close()
            raise


@cache
def tls_context() -> ssl.SSLContext:
    """Returns the settings of TLS for connections to other servers, whose certificates are checked."""
    context: ssl.SSLContext = gevent.ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(certifi.where())
    context.set_alpn_protocols(["http/1.1"])
    return context


@lru_cache(maxsize=MOST_HEADS)
def head_of(url: str, headers: tuple[tuple[str, str], ...]) -> tuple[Origin, bytes]:
    """Returns the origin of a URL, and the head of a POST to it up to the value of Content-Length.

    Raises ValueError if a header contains a line end.
    """
    parts = urlsplit(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    lines = [f"POST {target} HTTP/1.1", f"Host: {parts.netloc}", *(f"{name}: {value}" for name, value in headers)]
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("a header of more than one line")
    head = "\r\n".join([*lines, "Content-Length: "]).encode("latin-1")
    return origin_of(url), head


def origin_of(url: str) -> Origin:
    """Returns the scheme, host and port of a URL."""
    parts = urlsplit(url)
    is_tls = parts.scheme == "https"
    return Origin(is_tls, parts.hostname or "", parts.port or (443 if is_tls else 80))
