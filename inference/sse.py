"""Server-sent events: incremental parsing at any segmentation, and framing of our own."""

from collections.abc import Iterable
from typing import Any

import orjson

DONE = b"data: [DONE]\n\n"
_BOM = b"\xef\xbb\xbf"
# Line ends by Unicode's rules (U+0085, U+2028, U+2029) that JSON allows in a string.
_LINE_ENDS = ((b"\xc2\x85", rb"\u0085"), (b"\xe2\x80\xa8", rb"\u2028"), (b"\xe2\x80\xa9", rb"\u2029"))


def frame(payload: dict[str, Any]) -> bytes:
    """One event carrying one JSON object, with no line end in it by any rule that a client may split lines by."""
    data = orjson.dumps(payload)
    if not data.isascii():
        for raw, escaped in _LINE_ENDS:
            data = data.replace(raw, escaped)
    return b"data: " + data + b"\n\n"


class SseParser:
    """Turns the bytes of an event stream into the data of its events.

    Lines may end in LF, CRLF or CR, be cut anywhere, and the colon may lack its space. Comments, `event`, `id` and
    `retry` are dropped: both dialects say in the data what it is.
    """

    __slots__ = ("_data", "_partial", "_started")

    def __init__(self) -> None:
        self._partial: list[bytes] = []
        self._data: list[bytes] = []
        self._started = False

    def feed(self, block: bytes) -> list[bytes]:
        """The data of every event that this block completes, in order."""
        lines = self._lines(block)
        return [] if lines is None else list(self._events(lines))

    def finish(self) -> list[bytes]:
        """The data of an event that the end of the body completes, for upstreams that omit the last blank line."""
        rest = b"".join(self._partial)
        if not self._started:
            rest = rest.removeprefix(_BOM)
        self._partial = []
        return list(self._events([*rest.splitlines(), b""]))

    def _lines(self, block: bytes) -> list[bytes] | None:
        self._partial.append(block)
        if b"\n" not in block and b"\r" not in block and not self._pending_carriage_return():
            return None
        text = b"".join(self._partial)
        if not self._started:
            text = text.removeprefix(_BOM)
            self._started = True
        # A CR at the very end may be half of a CRLF: it waits for the next byte.
        end = max(text.rfind(b"\n"), text.rfind(b"\r", 0, len(text) - 1)) + 1
        self._partial = [text[end:]] if end < len(text) else []
        return text[:end].splitlines()

    def _pending_carriage_return(self) -> bool:
        return len(self._partial) > 1 and self._partial[-2].endswith(b"\r")

    def _events(self, lines: Iterable[bytes]) -> Iterable[bytes]:
        for line in lines:
            if not line:
                if self._data:
                    yield b"\n".join(self._data)
                    self._data = []
            elif line.startswith(b"data:"):
                self._data.append(line[6:] if line[5:6] == b" " else line[5:])
            elif line == b"data":
                self._data.append(b"")
