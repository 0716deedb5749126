"""Reads request bodies within bounds, and parses them strictly.

An inference request's body is bounded again by what its worker holds for all requests (`HeldBody`).
Both ways of serving a request call `require_allowed_length` before they read it (gateway/edge/rules.py).
Two bounds are elsewhere: gateway/server/bounded_request.py does not read a body that declares too large a length, and
gateway/edge/middleware.py bounds forms.
"""

from collections.abc import Mapping
from typing import Any

import orjson
from django.conf import settings
from gunicorn.http.errors import ParseException

from ..errors import InvalidRequest, RequestTooLarge, WorkerBusy
from ..server.bounded_request import MOST_TINY_CHUNKS, TINY_CHUNK_BYTES, TooManyTinyChunks
from ..server.turns import pause
from .json_bounds import bound_counts, holds_an_integer_beyond_64_bits

BLOCK_BYTES = 64 * 1024
QUOTE_LENGTH = 50
MAX_MEMBERS = 500  # of the object itself, because each is read and copied several times


def too_large() -> RequestTooLarge:
    """Returns the error for a body beyond GATEWAY_MAX_BODY_BYTES (413), which names the bound."""
    return RequestTooLarge(f"The request body exceeds the limit of {settings.GATEWAY_MAX_BODY_BYTES} bytes.")


def require_allowed_length(environ: Mapping[str, Any]) -> None:
    """Raises InvalidRequest if Content-Length is not a number, and RequestTooLarge if the body is too large."""
    declared = environ.get("CONTENT_LENGTH")
    if not declared:
        return
    if not (declared.isascii() and declared.isdigit()):
        raise InvalidRequest("Content-Length is not a number.")
    if int(declared) > settings.GATEWAY_MAX_BODY_BYTES:
        raise too_large()


class HeldBody:
    """Counts one request's share of the bytes of bodies that its worker holds."""

    __slots__ = ("_bytes",)
    held_by_all = 0

    def __init__(self) -> None:
        self._bytes = 0

    def take(self, count: int) -> None:
        if HeldBody.held_by_all + count > settings.GATEWAY_MAX_BODIES_BYTES:
            raise WorkerBusy("The server is busy with other request bodies. Nothing was billed; please retry.")
        HeldBody.held_by_all += count
        self._bytes += count

    def release(self) -> None:
        HeldBody.held_by_all -= self._bytes
        self._bytes = 0


def read_body(environ: Mapping[str, Any], held: HeldBody | None = None) -> bytes:
    """Reads the body of a WSGI request.

    Raises RequestTooLarge, WorkerBusy, and InvalidRequest if the body is compressed or ends early.
    """
    encoding = environ.get("HTTP_CONTENT_ENCODING")
    if encoding and (encoding := encoding.strip()).lower() not in ("", "identity"):
        raise InvalidRequest(
            f"The request body has the Content-Encoding {encoding[:QUOTE_LENGTH]!r}: send it uncompressed."
        )
    stream = environ["wsgi.input"]
    declared = environ.get("CONTENT_LENGTH") or ""
    try:
        if declared:
            return _read_declared(stream, int(declared), held)
        if environ.get("HTTP_TRANSFER_ENCODING"):
            return _read_chunked(stream, held)
    except TooManyTinyChunks:
        rule = f"more than {MOST_TINY_CHUNKS} chunks of less than {TINY_CHUNK_BYTES} bytes"
        raise InvalidRequest(f"The request body has {rule}.") from None
    except (OSError, ParseException):  # the client stopped sending, left, or cut its chunks wrongly
        raise InvalidRequest("The request body could not be read to its end.") from None
    return b""


def _read_declared(stream: Any, length: int, held: HeldBody | None) -> bytes:
    reader = getattr(stream, "reader", stream)  # below gunicorn's `Body`, which copies what it hands on
    blocks = []
    while length > 0:
        block = reader.read(length)
        if not block:
            raise InvalidRequest("The request body ended before its Content-Length.")
        if held is not None:
            held.take(len(block))
        blocks.append(block)
        length -= len(block)
    return b"".join(blocks)


def _read_chunked(stream: Any, held: HeldBody | None) -> bytes:
    blocks, total = [], 0
    while block := stream.read(BLOCK_BYTES):
        total += len(block)
        if total > settings.GATEWAY_MAX_BODY_BYTES:
            stream.reader.req.force_close()  # gunicorn then sends `Connection: close`: the rest is not read
            raise too_large()
        if held is not None:
            held.take(len(block))
        blocks.append(block)
        if len(block) == BLOCK_BYTES:
            pause()  # the next block may be there already
    return b"".join(blocks)


def parse_object(body: bytes) -> dict[str, Any]:
    """Parses a body as a JSON object. Raises InvalidRequest."""
    bound_counts(body)
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"The request body is not valid JSON: {error}.") from None
    if not isinstance(parsed, dict):
        raise InvalidRequest("The request body must be a JSON object.")
    if len(parsed) > MAX_MEMBERS:
        raise InvalidRequest(f"The request body has more than {MAX_MEMBERS} fields.")
    if holds_an_integer_beyond_64_bits(body):
        raise InvalidRequest("The request body holds an integer beyond 64 bits.")
    return parsed
