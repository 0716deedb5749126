"""The fast HTTP reader and writer match gunicorn's own: the same requests, refusals and bytes."""

from typing import Any

import gunicorn.util
import pytest
from gunicorn.config import Config
from gunicorn.http import wsgi
from gunicorn.http.parser import RequestParser
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.fastpath import http_server
from gateway.server.bounded_request import BoundedRequest

CLIENT, SERVER = ("127.0.0.1", 50000), ("127.0.0.1", 8000)
BODY = b'{"model": "a/b/c"}'
CONFIG = Config()
CONFIG.set("forwarder_headers", "")

NAMES = """
Accept Authorization Connection Content-Length Content-Type Expect Host SCRIPT_NAME TE Transfer-Encoding Trailer Upgrade
X-Forwarded-For X-Forwarded-Proto X-Forwarded-Ssl x-a
"""
LINES = """
POST /v1/chat/completions HTTP/1.1|POST / HTTP/1.1|POST /a?b=c HTTP/1.1|POST /%41 HTTP/1.1|POST //a HTTP/1.1
POST http://localhost/ HTTP/1.1|POST / HTTP/1.0|GET / HTTP/1.1|POST / HTTP/1.1 |POST /a/../b HTTP/1.1
"""
names, lines = st.sampled_from(NAMES.split()), st.sampled_from(LINES.strip("\n").replace("\n", "|").split("|"))
texts = st.sampled_from(
    ["", "close", "keep-alive", "18", "5", "+5", "1_0", "https", "on", "chunked", "a: b", "100-continue"]
)
fields = st.lists(st.tuples(names, texts | st.text("a \t\0\x7f\xe4,", max_size=4)), max_size=5)


class Wire:
    """Keeps what is sent, in place of a socket."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def send(self, data: bytes) -> int:
        self.sent.append(bytes(data))
        return len(data)

    sendall = send


def read(kind: type[Any], data: bytes, wire: Wire) -> tuple[Any, dict[str, Any]] | str:
    """Returns all that is read from a request, its environment and its body; or the name of the refusal."""
    parser = RequestParser(CONFIG, iter([data]), CLIENT)
    parser.mesg_class = kind
    try:
        request = next(parser)
    except Exception as error:  # noqa: BLE001  # every kind of refusal is compared
        return type(error).__name__
    _, environ = wsgi.create(request, wire, CLIENT, SERVER, CONFIG)
    for name in ("wsgi.errors", "wsgi.early_hints"):
        environ.pop(name, None)
    environ["wsgi.input"] = environ["wsgi.input"].read()
    seen = (request.version, request.headers, request.should_close(), request._expected_100_continue, request.trailers)
    return (*seen, parser.unreader.take_buffered()), environ


def head_of(line: str, given_fields: list[tuple[str, str]]) -> bytes:
    return "\r\n".join([line, *(f"{name}: {value}" for name, value in given_fields), "", ""]).encode("latin-1")


@given(
    line=lines, odd=fields, cut=st.integers(0, 400), put=st.sampled_from([b"", b"\n", b"\r\n", b" ", b":", b"\0", b"_"])
)
@example(line="POST / HTTP/1.1", odd=[("X-Forwarded-Proto", "https")], cut=400, put=b"")
@example(line="POST / HTTP/1.1", odd=[("Content-Length", "5")], cut=400, put=b"")
@example(line="POST / HTTP/1.1", odd=[], cut=18, put=b":")
def test_a_request_is_read_as_without_the_fast_path(
    line: str, odd: list[tuple[str, str]], cut: int, put: bytes
) -> None:
    head = head_of(line, [("Host", "localhost"), ("Content-Length", str(len(BODY))), *odd])
    data = head[:cut] + put + head[cut:] + BODY + b"POST /next HTTP/1.1\r\n"
    wire = Wire()
    ours, theirs = read(http_server.Request, data, wire), read(BoundedRequest, data, wire)
    assert ours == theirs


@pytest.mark.parametrize("extra", [[], [("Connection", "close")], [("X-Forwarded-Proto", "https"), ("Accept", "*/*")]])
def test_what_clients_send_is_ordinary(extra: list[tuple[str, str]]) -> None:
    fields = [("Host", "localhost"), ("Content-Length", "18"), ("Content-Type", "application/json"), *extra]
    parser = RequestParser(CONFIG, iter([head_of("POST /v1/chat/completions HTTP/1.1", fields) + BODY]), CLIENT)
    parser.mesg_class = http_server.Request
    assert hasattr(next(parser), "_length")  # gunicorn's own class lacks it


@pytest.mark.parametrize("blocks", [[], [b""], [b"whole"], [b"one", b"", b"two"], [b"x" * 100_000]])
@pytest.mark.parametrize("length", [None, 5, 0])
@pytest.mark.parametrize("status", ["200 OK", "204 No Content", "304 Not Modified", "500 Internal Server Error"])
@pytest.mark.parametrize("extra", [[], [("X-Odd", " \xe4 ")], [("Connection", "close"), ("Server", "mine")]])
def test_a_response_has_the_bytes_of_gunicorns(
    blocks: list[bytes], length: int | None, status: str, extra: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gunicorn.util, "http_date", lambda _second=None: "Sun, 22 Nov 2026 09:00:00 GMT")
    data = head_of("POST / HTTP/1.1", [("Host", "localhost"), ("Content-Length", "18")]) + BODY
    headers = [("Content-Type", "text/plain"), *extra]
    if length is not None:
        headers.append(("Content-Length", str(length)))
    sent = []
    for kind in (http_server.Response, wsgi.Response):
        wire = Wire()
        response = kind(next(RequestParser(CONFIG, iter([data]), CLIENT)), wire, CONFIG)
        response.start_response(status, list(headers))
        for block in blocks:
            response.write(block)
        response.close()
        sent.append((b"".join(wire.sent), response.should_close()))
    assert sent[0] == sent[1]


def test_a_head_and_a_whole_body_are_one_send() -> None:
    data = head_of("POST / HTTP/1.1", [("Host", "localhost"), ("Content-Length", "18")]) + BODY
    wire = Wire()
    response = http_server.Response(next(RequestParser(CONFIG, iter([data]), CLIENT)), wire, CONFIG)
    response.start_response("200 OK", [("Content-Length", "5")])
    response.write(b"whole")
    response.close()
    assert len(wire.sent) == 1
