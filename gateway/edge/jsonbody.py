"""Request bodies: read within the bound however they are framed, then parsed strictly."""

import re
from collections.abc import Mapping
from typing import Any

import orjson
from django.conf import settings
from gunicorn.http.errors import ParseException

from ..errors import InvalidRequest, RequestTooLarge, WorkerBusy
from ..server.bounded_http import MOST_TINY_CHUNKS, TINY_CHUNK_BYTES, TooManyTinyChunks
from ..server.turns import pause

BLOCK_BYTES = 64 * 1024
COUNT_ABOVE_BYTES = 1024 * 1024
QUOTE_LENGTH = 50
MAX_MEMBERS = 500  # of the object itself: each is looked at and copied several times on its way
MAX_CONTAINERS = 200_000  # objects and arrays
MAX_COMMAS = 1_000_000  # every scalar has one beside it
COUNTED_AT_ONCE = 256 * 1024
# orjson turns integers beyond 64 bits into floats. They have 19 digits and more.
_LONG = 19
_STEPS = (9, 6, 1)  # among every ninth byte a long integer has two digits in a row, among every sixth three
_EACH_DIGIT_A_ZERO = bytes.maketrans(b"123456789", b"0" * 9)
_STRING = re.compile(rb'"[^"]*"')
_LONG_INTEGER = re.compile(rb"[\[:,\s](-?\d{19,}+)(?![.eE])")
_SIXTY_FOUR_BITS = range(-(2**63), 2**64)
_LONGEST_OF_64_BITS = 20  # characters, of both ends


def too_large() -> RequestTooLarge:
    """The 413, with the bound in its message."""
    return RequestTooLarge(f"The request body exceeds the limit of {settings.GATEWAY_MAX_BODY_BYTES} bytes.")


class HeldBody:
    """One request's share of the bytes of bodies that its worker holds (at most GATEWAY_MAX_BODIES_BYTES)."""

    __slots__ = ("_bytes",)
    held_by_all = 0

    def __init__(self) -> None:
        self._bytes = 0

    def take(self, count: int) -> None:
        """Takes so many bytes more. Raises WorkerBusy."""
        if HeldBody.held_by_all + count > settings.GATEWAY_MAX_BODIES_BYTES:
            raise WorkerBusy("This replica holds as many request bodies as it may. Nothing was billed: retry.")
        HeldBody.held_by_all += count
        self._bytes += count

    def release(self) -> None:
        """Gives them all back."""
        HeldBody.held_by_all -= self._bytes
        self._bytes = 0


def read_body(environ: Mapping[str, Any], held: HeldBody | None = None) -> bytes:
    """The whole body of a WSGI request, by Content-Length or chunked. Raises RequestTooLarge, WorkerBusy, and
    InvalidRequest where it is compressed or ends early."""
    encoding = environ.get("HTTP_CONTENT_ENCODING")
    if encoding and (encoding := encoding.strip()).lower() not in ("", "identity"):
        raise InvalidRequest(
            f"The request body has the Content-Encoding {encoding[:QUOTE_LENGTH]!r}: bodies are taken uncompressed."
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
            stream.reader.req.force_close()  # gunicorn's: the answer says that the rest of the body is not read
            raise too_large()
        if held is not None:
            held.take(len(block))
        blocks.append(block)
        if len(block) == BLOCK_BYTES:
            pause()  # the next block may be there already
    return b"".join(blocks)


def parse_object(body: bytes) -> dict[str, Any]:
    """The body as a JSON object. Raises InvalidRequest, for integers beyond 64 bits too."""
    _bound_counts(body)
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"The request body is not valid JSON: {error}.") from None
    if not isinstance(parsed, dict):
        raise InvalidRequest("The request body must be a JSON object.")
    if len(parsed) > MAX_MEMBERS:
        raise InvalidRequest(f"The request body has more than {MAX_MEMBERS} fields.")
    if _holds_an_integer_beyond_64_bits(body):
        raise InvalidRequest("The request body holds an integer beyond 64 bits.")
    return parsed


def _bound_counts(body: bytes) -> None:
    """Refuses very many values: parsed, short ones take many times their size, and seconds."""
    if len(body) <= COUNT_ABOVE_BYTES:
        return
    if holds_more(body, b"{[", MAX_CONTAINERS):
        raise InvalidRequest(f"A request holds at most {MAX_CONTAINERS} objects and arrays.")
    if holds_more(body, b",", MAX_COMMAS):
        raise InvalidRequest(f"A request holds at most {MAX_COMMAS} values, counted by the commas between them.")


def holds_more(body: bytes, characters: bytes, limit: int) -> bool:
    """True where more than `limit` of these characters stand outside strings."""
    if sum(map(body.count, characters)) <= limit:
        return False
    unescaped = body.replace(rb"\\", b"").replace(rb"\"", b"") if b"\\" in body else body
    others = bytes(set(range(256)) - {*characters, *b'"'})
    found = within = 0  # within is 1 where a block begins inside a string
    for start in range(0, len(unescaped), COUNTED_AT_ONCE):
        block = unescaped[start : start + COUNTED_AT_ONCE]
        if b'"' in block:
            # Two quotes in a row change nothing, whether they are of one string or of two.
            parts = block.translate(None, others).replace(b'""', b"").split(b'"')
            found += sum(map(len, parts[within::2]))
            within = (within + len(parts) - 1) % 2
        elif not within:
            found += sum(map(block.count, characters))
        if found > limit:
            return True
        pause()
    return False


def _holds_an_integer_beyond_64_bits(valid: bytes) -> bool:
    for step in _STEPS:  # most bodies need no look at every byte
        if b"0" * (_LONG // step) not in valid[::step].translate(_EACH_DIGIT_A_ZERO):
            return False
    # Without its escapes a string holds no quote, and ends at the next one.
    unescaped = valid.replace(rb"\\", b"").replace(rb"\"", b"")
    found = _LONG_INTEGER.findall(_STRING.sub(b'""', unescaped))
    if max(map(len, found), default=0) > _LONGEST_OF_64_BITS:
        return True  # `int` takes seconds for millions of digits
    return not all(map(_SIXTY_FOUR_BITS.__contains__, map(int, found)))
