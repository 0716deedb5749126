"""Serves the public parts of the log to anybody: its checkpoint, its keys, the tiles of its tree, and `verify.py`.

See c2sp.org/tlog-tiles. The entries are not public: a tile has only their hashes.
"""

from collections.abc import Iterator
from datetime import date, timedelta
from http import HTTPStatus

from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import etag, require_safe

from gateway.installation import RESOURCES_DIR

from . import catalogue_lines, log_key, receipts, sequencer
from .merkle import HASH_BYTES, TILE_HEIGHT, TILE_WIDTH

PROGRAM = RESOURCES_DIR / "tools" / "verify.py"
TEXT = "text/plain; charset=utf-8"
PYTHON = "text/x-python; charset=utf-8"
JSON_LINES = "application/jsonl"
FOREVER = "public, max-age=31536000, immutable"
BRIEFLY = "public, max-age=5"


@csrf_exempt  # or the refusal of a POST would be a page that sets a cookie
@require_safe
def checkpoint(request: HttpRequest) -> HttpResponse:
    """Answers the published checkpoint as a signed note."""
    published = receipts.published()
    return missing(request) if published is None else _answer(published.note.encode(), TEXT, BRIEFLY)


@csrf_exempt
@require_safe
def key(request: HttpRequest) -> HttpResponse:
    """Answers the verifier keys of the log's signature lines, one a line."""
    known = log_key.current()
    if known is None:
        return missing(request)
    return _answer("".join(f"{each}\n" for each in known.verifier_keys).encode(), TEXT, BRIEFLY)


@csrf_exempt
@require_safe
def program(_request: HttpRequest) -> HttpResponse:
    """Serves the program with which customers verify receipts and exports, even if the gateway keeps no log."""
    return _answer(PROGRAM.read_bytes(), PYTHON, BRIEFLY)


@csrf_exempt
@require_safe
def tile(request: HttpRequest, level: str, number: str, width: str | None = None) -> HttpResponse:
    """Answers the hashes of a tile, or the first `width` of them, if the published tree has them."""
    published = receipts.published()
    wanted, position = int(width or TILE_WIDTH), int(number.replace("x", "").replace("/", ""))
    hashes_of_level = 0 if published is None else published.size >> TILE_HEIGHT * int(level)
    if position * TILE_WIDTH + wanted > hashes_of_level or (width is not None and wanted >= TILE_WIDTH):
        return missing(request)
    hashes = sequencer.read_tile(int(level), position)
    return _answer(hashes[: wanted * HASH_BYTES], "application/octet-stream", FOREVER)


@csrf_exempt
@require_safe
@etag(lambda _request: catalogue_lines.etag())
def catalogue(_request: HttpRequest) -> HttpResponseBase:
    """Answers the history of exchange rates, of routes with their energy, of the yearly grid, and of prices."""
    return _streamed(catalogue_lines.blocks(), BRIEFLY)


@csrf_exempt
@require_safe
def hourly_grid(request: HttpRequest, day: str) -> HttpResponseBase:
    """Answers the history of the hourly grid of a day (UTC)."""
    try:
        wanted = date.fromisoformat(day)
    except ValueError:
        return missing(request)
    ago = timezone.now().date() - wanted
    if ago < timedelta(0):
        return missing(request)
    is_over = ago > timedelta(days=1)  # with a day for changes that are written around midnight
    return _streamed(catalogue_lines.hourly_blocks(wanted), FOREVER if is_over else BRIEFLY)


@csrf_exempt
@require_safe
def missing(_request: HttpRequest, **_path: str) -> HttpResponse:
    """Answers 404 in a line, since programs read it."""
    return _answer(b"not found\n", TEXT, BRIEFLY, HTTPStatus.NOT_FOUND)


def _streamed(blocks: Iterator[bytes], cache: str) -> StreamingHttpResponse:
    headers = {"Cache-Control": cache, "Access-Control-Allow-Origin": "*"}
    return StreamingHttpResponse(blocks, content_type=JSON_LINES, headers=headers)


def _answer(content: bytes, content_type: str, cache: str, status: int = HTTPStatus.OK) -> HttpResponse:
    headers = {"Cache-Control": cache, "Access-Control-Allow-Origin": "*"}
    return HttpResponse(content, content_type=content_type, headers=headers, status=status)
