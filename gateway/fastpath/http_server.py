"""Reads and writes HTTP with clients, in place of gunicorn's parser and writer (README.md)."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from gunicorn.http.body import Body

from ..server.bounded_request import HEAD_SECONDS, BlockReader, BoundedRequest, UpgradingResponse, begin, begin_body

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

# Stricter than RFC 9112 and than gunicorn. Other heads go to gunicorn's parser.
FIELD = r"[A-Za-z0-9-]+: [!-~](?:[ -~]*[!-~])?\r\n"
HEAD = re.compile(rf"POST (/[A-Za-z0-9./_-]{{0,200}}) HTTP/1\.1\r\n((?:{FIELD}){{1,60}})\r\n".encode())
LONGEST_HEAD = 8000
LONGEST_LENGTH = 12  # digits
UNUSUAL = frozenset({"EXPECT", "TRANSFER-ENCODING"})  # these need an answer, or another way to read the body


class Request(BoundedRequest):
    """Replaces gunicorn's request. Reads an ordinary head with one regular expression."""

    def __init__(self, cfg: Any, unreader: Any, peer_addr: Any, req_number: int = 1) -> None:
        data = begin(unreader, HEAD_SECONDS if req_number == 1 else cfg.keepalive)
        # This method and `_accepts` set every attribute that gunicorn's `__init__`, `parse` and `set_body_reader` set.
        self.cfg, self.peer_addr, self.version = cfg, peer_addr, (1, 1)
        head = HEAD.match(data)
        if head is not None and self._accepts(head):
            # the beginning of the body came with the head
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
            and len(fields) == len(lines)  # no field came twice
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
        # gunicorn's loop over headers that name the scheme; raises InvalidSchemeHeaders if two of them disagree.
        trusted, forwarder = self._peer_trusted_for_forwarded()
        state, seen = [False], set[str]()
        for name, value in self.headers:
            self._apply_header_policy(name, value, state, seen, trusted, forwarder)


class Response(UpgradingResponse):
    """Replaces gunicorn's response. Sends each block with one system call."""

    headers_sent: bool
    _head = b""

    def send_headers(self) -> None:
        if not self.headers_sent:
            self.headers_sent = True
            lines = [*self.default_headers(), *[f"{name}: {value}\r\n" for name, value in self.headers], "\r\n"]
            self._head = "".join(lines).encode("latin-1")

    def can_sendfile(self) -> bool:
        return False  # gunicorn would send a file ahead of the head that is kept here

    # gunicorn calls this for each block, and allows overriding it
    def _emit_body(self, data: bytes) -> None:
        # On a used connection the client's system delays the acknowledgement of a single segment (by 40 ms on Linux),
        # but acknowledges a second one as soon as it is read. So the head of a stream is sent alone: a client that
        # reads the first piece and then resets has acknowledged that piece (docs/security.md).
        if self._head and self.chunked and self.req.req_number > 1:
            self._send(b"")
        framed = b"%X\r\n%b\r\n" % (len(data), data) if self.chunked else data
        self._send(framed)

    def close(self) -> None:
        self.send_headers()
        self._send(b"0\r\n\r\n" if self.chunked else b"")

    def _send(self, data: bytes) -> None:
        data, self._head = self._head + data, b""
        # gevent's `sendall` first asks the kernel for the size of its buffer: a second system call for each chunk.
        sent = self.sock.send(data) if data else 0
        if sent < len(data):
            self.sock.sendall(memoryview(data)[sent:])


class Application:
    """Passes an ordinary POST to the application of its path, and any other request to Django."""

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
