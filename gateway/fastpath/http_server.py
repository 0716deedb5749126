"""Ordinary POSTs past most of gunicorn, and past Django's handler: read, made a WSGI environment, answered.

One expression over a whole head decides what is ordinary. Everything else, and whatever is wrong, is gunicorn's to read
and to refuse, and Django's to answer (README.md beside this has what each part saves).
"""

import functools
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from gunicorn import SERVER, util
from gunicorn.http import wsgi
from gunicorn.http.body import Body, LengthReader

from ..server.bounded_http import HEAD_SECONDS, BoundedRequest, begin, begin_body

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

# Narrower than RFC 9112, and than gunicorn's bounds on a head.
FIELD = r"[A-Za-z0-9-]+: [!-~](?:[ -~]*[!-~])?\r\n"
HEAD = re.compile(rf"POST (/[A-Za-z0-9./_-]{{0,200}}) HTTP/1\.1\r\n((?:{FIELD}){{1,60}})\r\n".encode())
FIELDS = re.compile(f"(?:{FIELD})*")
LONGEST_HEAD = 8000
LONGEST_LENGTH = 12  # digits
UNUSUAL = frozenset({"EXPECT", "TRANSFER-ENCODING"})  # these need an answer, or another way to read the body
TOGETHER_BYTES = 64 * 1024  # of a body that is copied behind its head

base_environ = functools.cache(wsgi.base_environ)  # its argument is the one configuration of the process


class Request(BoundedRequest):
    """gunicorn's request, with a short way in."""

    def __init__(self, cfg: Any, unreader: Any, peer_addr: Any, req_number: int = 1) -> None:
        data = begin(unreader, HEAD_SECONDS if req_number == 1 else cfg.keepalive)
        self.cfg, self.peer_addr, self.version = cfg, peer_addr, (1, 1)
        head = HEAD.match(data)
        if head is not None and self._accepts(head):
            self.is_ordinary = True
            unreader.unread(data[head.end() :])
            self.unreader, self.remote_addr, self.req_number = unreader, peer_addr, req_number
            self.trailers: list[tuple[str, str]] = []
            self.must_close = False
            self.proxy_protocol_info = None
            self.body = Body(LengthReader(unreader, self._length))
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
        self.scheme = "http"
        if not fields.keys().isdisjoint(self.cfg.secure_scheme_headers):
            self._read_scheme()
        return True

    def _read_scheme(self) -> None:
        """As gunicorn does: what a trusted proxy says of the scheme; two that disagree raise InvalidSchemeHeaders."""
        trusted, forwarder = self._peer_trusted_for_forwarded()
        state, seen = [False], set[str]()
        for name, value in self.headers:
            self._apply_header_policy(name, value, state, seen, trusted, forwarder)


class Response(wsgi.Response):  # type: ignore[misc]  # gunicorn ships no types
    """gunicorn's response, whose head goes out with the first block of its body, and each block in one send."""

    headers_sent: bool
    _head = b""

    def process_headers(self, headers: list[tuple[str, str]]) -> None:
        """gunicorn looks at each name and each value; one expression over all of them says as much."""
        names = [name.lower() for name, _ in headers]
        fields = "".join([f"{name}: {value}\r\n" for name, value in headers])
        each_is_one_line = FIELDS.fullmatch(fields) and fields.count("\n") == len(headers)
        if not (each_is_one_line and util.hop_headers.isdisjoint(names)):
            super().process_headers(headers)
            return
        self.headers = headers
        if "content-length" in names:
            self.response_length = int(headers[names.index("content-length")][1])

    def send_headers(self) -> None:
        """Keeps the head for the first block."""
        if self.headers_sent:
            return
        self.headers_sent = True
        connection = "close" if self.should_close() else "keep-alive"
        coding = "Transfer-Encoding: chunked\r\n" if self.chunked else ""
        fields = "".join([f"{name}: {value}\r\n" for name, value in self.headers])
        lines = (
            f"Server: {SERVER}\r\nDate: {_http_date(int(time.time()))}\r\nConnection: {connection}\r\n{coding}{fields}"
        )
        self._head = f"HTTP/1.1 {self.status}\r\n{lines}\r\n".encode("latin-1")

    def _emit_body(self, data: bytes) -> None:
        if self.chunked:
            data = b"%X\r\n%b\r\n" % (len(data), data)
        head, self._head = self._head, b""
        if head and len(data) > TOGETHER_BYTES:
            send(self.sock, head)
            head = b""
        send(self.sock, head + data if head else data)

    def close(self) -> None:
        """Sends what is left: a head without a body, the last chunk."""
        self.send_headers()
        send(self.sock, self._head + (b"0\r\n\r\n" if self.chunked else b""))
        self._head = b""


def send(sock: Any, data: bytes) -> None:
    """All of it: gevent's `sendall` asks the kernel for the size of its buffer first, which what fits need not."""
    sent = sock.send(data) if data else 0
    if sent < len(data):
        sock.sendall(memoryview(data)[sent:])


@functools.lru_cache(maxsize=1)
def _http_date(second: int) -> str:
    date: str = util.http_date(second)
    return date


def environ_of(req: Request, sock: Any, client: tuple[str, int], server: tuple[str, int]) -> dict[str, Any]:
    """The WSGI environment of an ordinary request, as `gunicorn.http.wsgi.create` makes it."""
    environ = {
        **base_environ(req.cfg),
        "wsgi.multithread": True,
        "wsgi.input": req.body,
        "wsgi.url_scheme": req.scheme,
        "gunicorn.socket": sock,
        "REQUEST_METHOD": "POST",
        "QUERY_STRING": "",
        "RAW_URI": req.uri,
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": client[0],
        "REMOTE_PORT": str(client[1]),
        "SERVER_NAME": server[0],
        "SERVER_PORT": str(server[1]),
        "PATH_INFO": req.path,
        "SCRIPT_NAME": "",
    }
    for name, value in req.headers:
        environ["HTTP_" + name.replace("-", "_")] = value
    environ["CONTENT_LENGTH"] = environ.pop("HTTP_CONTENT_LENGTH")
    if "HTTP_CONTENT_TYPE" in environ:
        environ["CONTENT_TYPE"] = environ.pop("HTTP_CONTENT_TYPE")
    return environ


def knows_all_of(worker: Any) -> bool:
    """False where gunicorn has an option that the short way does not know, or clients without an address."""
    options = (worker.cfg.is_ssl, worker.log.access_log_enabled, worker.cfg.max_requests, os.environ.get("SCRIPT_NAME"))
    is_unix = any(isinstance(address, str) for address in worker.cfg.address)
    return not (is_unix or any(options))


def respond(worker: Any, server: tuple[str, int], req: Request, sock: Any, client: tuple[str, int]) -> None:
    """What the worker's `handle_request` does for an ordinary request, whose head no hook has anything to refuse in.

    Raises StopIteration where the connection ends with it, and OSError.
    """
    response = Response(req, sock, worker.cfg)
    if not (worker.alive and worker.cfg.keepalive):
        response.force_close()
    try:
        blocks = worker.wsgi(environ_of(req, sock, client, server), response.start_response)
        try:
            for block in blocks:
                response.write(block)
            response.close()
        finally:
            if hasattr(blocks, "close"):
                blocks.close()
    except OSError:
        raise
    except (Exception, SystemExit):
        if not response.headers_sent:
            raise
        worker.log.exception("Error handling request")
        raise StopIteration from None  # a client could take a part for the whole answer: the connection ends
    if response.should_close():
        raise StopIteration


class Application:
    """A WSGI application that hands POSTs to its `paths` to theirs, and everything else to Django's.

    `is_ordinary` says of a request's environment whether Django's middleware would let it through unchanged.
    """

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
