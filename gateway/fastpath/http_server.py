"""HTTP with clients, past gunicorn's parser and writer (README.md), and clients that leave."""

import fcntl
import re
import socket
import struct
import sys
import termios
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gevent import get_hub
from gunicorn.http.body import Body

from ..server.worker import HEAD_SECONDS, BlockReader, BoundedRequest, UpgradingResponse, begin, begin_body
from . import READABLE

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

# Narrower than RFC 9112, and than gunicorn's bounds on a head.
FIELD = r"[A-Za-z0-9-]+: [!-~](?:[ -~]*[!-~])?\r\n"
HEAD = re.compile(rf"POST (/[A-Za-z0-9./_-]{{0,200}}) HTTP/1\.1\r\n((?:{FIELD}){{1,60}})\r\n".encode())
LONGEST_HEAD = 8000
LONGEST_LENGTH = 12  # digits
UNUSUAL = frozenset({"EXPECT", "TRANSFER-ENCODING"})  # these need an answer, or another way to read the body
LOOK_SECONDS = 0.2
PROBE_EVERY_LOOKS = 10
TCP_ESTABLISHED, TCP_CLOSE, TCP_CLOSE_WAIT = 1, 7, 8
INTERIM_RESPONSE = b"HTTP/1.1 100 Continue\r\n\r\n"
COMMENT = b":\n\n"
# All that was written to a connection, of which the client's system has acknowledged a part:
#
#   0 ──────────────────── 700 ─────────── 1,000 bytes
#   └─ tcpi_bytes_acked ────┘└── TIOCOUTQ ───┘
#
# `sent_bytes` is 1,000 and, once the connection has ended, `lost_bytes` 300. Of `struct tcp_info` (linux/tcp.h):
#
#   byte 0       8 ... 103      104             112                 120               128
#   | state, ... | 24 x u32 ... | u64 pacing    | u64 max pacing    | u64 bytes_acked | ...
TCP_INFO_BYTES, BYTES_ACKED_AT = 256, 120  # of `struct tcp_info`, and of its 64-bit tcpi_bytes_acked (Linux 4.1)


class Request(BoundedRequest):
    """gunicorn's request, of which an ordinary head is read by one expression."""

    def __init__(self, cfg: Any, unreader: Any, peer_addr: Any, req_number: int = 1) -> None:
        data = begin(unreader, HEAD_SECONDS if req_number == 1 else cfg.keepalive)
        # All that gunicorn's `__init__` sets, `parse` and `set_body_reader` included, is set here or below.
        self.cfg, self.peer_addr, self.version = cfg, peer_addr, (1, 1)
        head = HEAD.match(data)
        if head is not None and self._accepts(head):
            # the body's beginning, which came with the head
            unreader.unread(data[head.end() :])
            self.unreader, self.remote_addr, self.req_number = unreader, peer_addr, req_number
            self.trailers: list[tuple[str, str]] = []
            self.must_close = False
            self.proxy_protocol_info = None
            self.body = Body(BlockReader(unreader, self._length))
            begin_body(unreader)
        else:
            unreader.unread(data)
            super().__init__(cfg, unreader, peer_addr, req_number)

    def _accepts(self, head: re.Match[bytes]) -> bool:
        lines = head[2][:-2].decode("ascii").split("\r\n")
        fields = {name.upper(): value for name, _, value in (line.partition(": ") for line in lines)}
        length = fields.get("CONTENT-LENGTH", "")
        if not (
            head.end() <= LONGEST_HEAD
            and len(fields) == len(lines)  # none came twice
            and "HOST" in fields
            and fields.keys().isdisjoint(UNUSUAL)
            and length.isdigit()
            and len(length) <= LONGEST_LENGTH
        ):
            return False
        self.method, self.path = "POST", head[1].decode("ascii")
        self.uri, self.query, self.fragment = self.path, "", ""
        self.headers, self._length = list(fields.items()), int(length)
        self.scheme = "https" if self.cfg.is_ssl else "http"
        if not fields.keys().isdisjoint(self.cfg.secure_scheme_headers):
            self._read_scheme()
        return True

    def _read_scheme(self) -> None:
        # gunicorn's own loop, for heads that say something of the scheme: two that disagree raise InvalidSchemeHeaders
        trusted, forwarder = self._peer_trusted_for_forwarded()
        state, seen = [False], set[str]()
        for name, value in self.headers:
            self._apply_header_policy(name, value, state, seen, trusted, forwarder)


class Response(UpgradingResponse):
    """gunicorn's response, in one system call a block."""

    headers_sent: bool
    _head = b""

    def send_headers(self) -> None:
        if not self.headers_sent:
            self.headers_sent = True
            lines = [*self.default_headers(), *[f"{name}: {value}\r\n" for name, value in self.headers], "\r\n"]
            self._head = "".join(lines).encode("latin-1")

    def can_sendfile(self) -> bool:
        return False  # gunicorn would send a file ahead of the head that is kept here

    # gunicorn's one place for framing, made to be overridden
    def _emit_body(self, data: bytes) -> None:
        # On a connection that has been used, a system delays the acknowledgement of a single segment (by 40 ms on
        # Linux), but acknowledges a second one as soon as it has been read. So the head of a stream goes out alone:
        # a client that reads the first piece and resets has acknowledged it before (docs/security.md).
        if self._head and self.chunked and self.req.req_number > 1:
            self._send(b"")
        framed = b"%X\r\n%b\r\n" % (len(data), data) if self.chunked else data
        self._send(framed)

    def close(self) -> None:
        self.send_headers()
        self._send(b"0\r\n\r\n" if self.chunked else b"")

    def _send(self, data: bytes) -> None:
        data, self._head = self._head + data, b""
        # gevent's `sendall` asks the kernel for the size of its buffer first: a second system call for each chunk.
        sent = self.sock.send(data) if data else 0
        if sent < len(data):
            self.sock.sendall(memoryview(data)[sent:])


class Application:
    """Hands ordinary POSTs to their path's application, and the rest to Django's."""

    def __init__(
        self,
        paths: Mapping[str, Any],
        django: "WSGIApplication",
        *,
        is_ordinary: Callable[["WSGIEnvironment"], bool],
        is_open: bool = True,
    ) -> None:
        self.paths, self._django = paths, django
        self._is_ordinary, self._is_open = is_ordinary, is_open

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        found: WSGIApplication | None = self.paths.get(environ["PATH_INFO"])
        is_short = (
            found is not None
            and self._is_open
            and environ["REQUEST_METHOD"] == "POST"
            and not environ["SCRIPT_NAME"]
            and self._is_ordinary(environ)
        )
        return (found if is_short and found else self._django)(environ, start_response)


class ClientLeft(Exception):
    """The client's connection is gone."""


@dataclass(slots=True)
class Client:
    """The connection that waits for an answer. A `doubtful` one has closed its sending side.

    `probed_bytes` are those of probes behind the last piece: whoever writes the next one sets them to 0.
    """

    connection: socket.socket | None
    speaks_http_1_1: bool = True
    answering: bool = False
    doubtful: bool = False
    probed_bytes: int = 0

    @classmethod
    def of(cls, environ: Mapping[str, Any]) -> "Client":
        return cls(environ.get("gunicorn.socket"), environ.get("SERVER_PROTOCOL") == "HTTP/1.1")

    @property
    def tcp_state(self) -> int:
        if self.connection is None:
            return 0
        try:
            return self.connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        except OSError:
            return 0

    def raise_if_gone(self) -> None:
        state = self.tcp_state
        # A closed side is not yet a closed connection: some clients say so that they have asked everything. A few
        # bytes that every client skips tell: one that is gone answers with a reset. HTTP/1.0 has none to send.
        if state == TCP_CLOSE_WAIT and self.speaks_http_1_1:
            self.doubtful = True
            state = self.tcp_state if self.probe() else TCP_CLOSE
        if state == TCP_CLOSE:
            raise ClientLeft

    @property
    def sent_bytes(self) -> int:
        if self.connection is None:
            return 0
        try:
            info = self.connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
            (acknowledged,) = struct.unpack_from("=Q", info, BYTES_ACKED_AT)
        except (OSError, struct.error):
            return 0
        return int(acknowledged) + self._unacknowledged_bytes

    @property
    def lost_bytes(self) -> int:
        # while the connection lives the kernel still delivers them
        return max(0, self._unacknowledged_bytes - self.probed_bytes) if self.tcp_state == TCP_CLOSE else 0

    @property
    def _unacknowledged_bytes(self) -> int:
        if self.connection is None:
            return 0
        try:
            return int.from_bytes(fcntl.ioctl(self.connection.fileno(), termios.TIOCOUTQ, bytes(4)), sys.byteorder)
        except OSError:
            return 0

    def probe(self) -> bool:
        """Sends bytes that mean nothing; False where none can be sent."""
        # What every client skips: an interim response before the head, a comment within the stream.
        raw = getattr(self.connection, "_sock", None)  # gevent's own send would wait, which the hub must not
        if raw is None or hasattr(self.connection, "cipher"):
            return False
        if not self.answering:
            meaningless = INTERIM_RESPONSE if self.speaks_http_1_1 else b""
        else:
            meaningless = b"%x\r\n%s\r\n" % (len(COMMENT), COMMENT) if self.speaks_http_1_1 else COMMENT
        try:
            sent = raw.send(meaningless, socket.MSG_DONTWAIT) if meaningless else 0
        except OSError:
            return False
        self.probed_bytes += sent
        return 0 < sent == len(meaningless)


class ClientWatch:
    """Calls `on_gone` once when the client has left; probes only while `is_quiet()`."""

    __slots__ = ("_client", "_is_quiet", "_looks", "_on_gone", "_timer", "_watcher")

    def __init__(self, client: Client, *, is_quiet: Callable[[], bool], on_gone: Callable[[], None]) -> None:
        self._client, self._is_quiet, self._on_gone = client, is_quiet, on_gone
        self._looks = 0
        self._watcher: Any = None
        self._timer: Any = None
        if client.connection is not None:
            self._watcher = get_hub().loop.io(client.connection.fileno(), READABLE)
            self._watcher.start(self._look)

    def stop(self) -> None:
        for watcher in (self._watcher, self._timer):
            if watcher is not None:
                watcher.stop()
                watcher.close()
        self._watcher = self._timer = None

    def _look(self) -> None:
        # Runs in the hub, and must not wait. The socket stays readable from now on, so a timer looks on.
        if self._timer is None:
            self._watcher.stop()
            self._timer = get_hub().loop.timer(LOOK_SECONDS, LOOK_SECONDS)
            self._timer.start(self._look)
        state = self._client.tcp_state
        if state == TCP_CLOSE_WAIT:
            if self._is_there():
                return
        elif state == TCP_ESTABLISHED:
            return  # it has sent more: a pipelined request
        self.stop()
        self._on_gone()

    def _is_there(self) -> bool:
        self._looks += 1
        if self._looks % PROBE_EVERY_LOOKS != 1:
            return True
        if not self._is_quiet():
            self._looks -= 1  # the answer itself is being written: that will tell
            return True
        return self._client.probe()
