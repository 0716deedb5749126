"""Request bodies: read within the bound however they are framed, then parsed strictly."""

import json
import re
from typing import Any

import orjson
from django.conf import settings
from django.http import HttpRequest
from gunicorn.http.errors import ParseException

from .errors import InvalidRequest, RequestTooLarge

BLOCK_BYTES = 64 * 1024
COUNT_ABOVE_BYTES = 1024 * 1024
MAX_MESSAGES = 50_000
MAX_VALUES = 1_000_000
# orjson turns integers beyond 64 bits into floats. Such a number has at least 19 digits: only then look closer.
_LONG_NUMBER = re.compile(rb"[\[:,\s]-?\d{19,}\s*[,\]}]")


def too_large() -> RequestTooLarge:
    """The 413, with the bound in its message."""
    return RequestTooLarge(f"The request body exceeds the limit of {settings.GATEWAY_MAX_BODY_BYTES} bytes.")


def read_body(request: HttpRequest) -> bytes:
    """The whole body, by Content-Length or chunked. Raises RequestTooLarge, and InvalidRequest where it ends early."""
    stream = request.META["wsgi.input"]
    declared = request.META.get("CONTENT_LENGTH") or ""
    try:
        if declared:
            return _read_declared(stream, int(declared))
        if request.META.get("HTTP_TRANSFER_ENCODING"):
            return _read_chunked(stream)
    except (OSError, ParseException):  # the client stopped sending, left, or cut its chunks wrongly
        raise InvalidRequest("The request body could not be read to its end.") from None
    return b""


def _read_declared(stream: Any, length: int) -> bytes:
    blocks = []
    while length > 0:
        block = stream.read(min(length, BLOCK_BYTES))
        if not block:
            raise InvalidRequest("The request body ended before its Content-Length.")
        blocks.append(block)
        length -= len(block)
    return b"".join(blocks)


def _read_chunked(stream: Any) -> bytes:
    blocks, total = [], 0
    while block := stream.read(BLOCK_BYTES):
        total += len(block)
        if total > settings.GATEWAY_MAX_BODY_BYTES:
            stream.reader.req.force_close()  # gunicorn's: the answer says that the rest of the body is not read
            raise too_large()
        blocks.append(block)
    return b"".join(blocks)


def parse_object(body: bytes) -> dict[str, Any]:
    """The body as a JSON object. Raises InvalidRequest for anything else, integers beyond 64 bits included."""
    # Parsed, very short messages take ten times their size: count them while they are still bytes.
    if len(body) > COUNT_ABOVE_BYTES:
        if body.count(b'"role"') > MAX_MESSAGES:
            raise InvalidRequest(f"A request holds at most {MAX_MESSAGES} messages.", param="messages")
        if body.count(b"{") + body.count(b"[") > MAX_VALUES:
            raise InvalidRequest(f"A request holds at most {MAX_VALUES} objects and arrays.")
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"The request body is not valid JSON: {error}.") from None
    if not isinstance(parsed, dict):
        raise InvalidRequest("The request body must be a JSON object.")
    if _LONG_NUMBER.search(body):
        try:
            json.loads(body, parse_int=_parse_int)
        except RecursionError:
            raise InvalidRequest("The request body is nested too deep.") from None
    return parsed


def _parse_int(digits: str) -> int:
    if len(digits) > 20 or not -(2**63) <= int(digits) < 2**64:
        raise InvalidRequest("The request body holds an integer beyond 64 bits.")
    return int(digits)
