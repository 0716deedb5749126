"""Serves the public parts of the log to anybody: its checkpoint, its keys, and the tiles of its tree.

See c2sp.org/tlog-tiles. The entries are not public: a tile has only their hashes.
"""

from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from . import log_key, receipts, sequencer
from .merkle import HASH_BYTES, TILE_HEIGHT, TILE_WIDTH
from .models import LogCheckpoint

TEXT = "text/plain; charset=utf-8"
FOREVER = "public, max-age=31536000, immutable"
BRIEFLY = "public, max-age=5"


@require_safe
def checkpoint(_request: HttpRequest) -> HttpResponse:
    """Answers the published checkpoint as a signed note."""
    return _answer(_published().note.encode(), TEXT, BRIEFLY)


@require_safe
def key(_request: HttpRequest) -> HttpResponse:
    """Answers the verifier keys of the log's signature lines, one a line."""
    known = log_key.current()
    if known is None:
        raise Http404
    return _answer("".join(f"{each}\n" for each in known.verifier_keys).encode(), TEXT, BRIEFLY)


@require_safe
def tile(_request: HttpRequest, level: str, number: str, width: str | None = None) -> HttpResponse:
    """Answers the hashes of a tile, or the first `width` of them, if the published tree has them."""
    wanted, position = int(width or TILE_WIDTH), int(number.replace("x", "").replace("/", ""))
    hashes_of_level = _published().size >> TILE_HEIGHT * int(level)
    if position * TILE_WIDTH + wanted > hashes_of_level or (width is not None and wanted >= TILE_WIDTH):
        raise Http404
    hashes = sequencer.read_tile(int(level), position)
    return _answer(hashes[: wanted * HASH_BYTES], "application/octet-stream", FOREVER)


def _published() -> LogCheckpoint:
    found = receipts.published()
    if found is None:
        raise Http404
    return found


def _answer(content: bytes, content_type: str, cache: str) -> HttpResponse:
    headers = {"Cache-Control": cache, "Access-Control-Allow-Origin": "*"}
    return HttpResponse(content, content_type=content_type, headers=headers)
