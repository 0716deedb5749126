"""Server-sent events: incremental parsing at any segmentation, and framing of our own."""

from collections.abc import Iterator
from typing import Any

import orjson

DONE = b"data: [DONE]\n\n"
_ENERGY = b": energy "
_BOM = b"\xef\xbb\xbf"
# Line ends by Unicode's rules (U+0085, U+2028, U+2029) that JSON allows in a string.
LINE_ENDS = ((b"\xc2\x85", rb"\u0085"), (b"\xe2\x80\xa8", rb"\u2028"), (b"\xe2\x80\xa9", rb"\u2029"))


def frame(payload: dict[str, Any]) -> bytes:
    """One event carrying one JSON object, with no line end in it by any rule that a client may split lines by."""
    data = orjson.dumps(payload)
    if not data.isascii():
        for raw, escaped in LINE_ENDS:
            data = data.replace(raw, escaped)
    return b"data: " + data + b"\n\n"


class SseParser:
    """Turns the bytes of an event stream into the data of its events.

    Lines may end in LF, CRLF or CR, be cut anywhere, and the colon may lack its space. Comments, `event`, `id` and
    `retry` are dropped: both dialects say in the data what it is. `energy` is the text of the last comment by which an
    upstream reports the energy that it measured, empty until then.

    `text` holds complete lines that end in LF, `position` is where the next event is looked for: whoever understands
    some events without this parser may move it, while no line of an event waits in `data_lines`. `raw` are the bytes
    of the newest event, its blank line included; empty where it began in an earlier block.
    """

    __slots__ = ("_partial", "_started", "data_lines", "energy", "position", "raw", "text")

    def __init__(self) -> None:
        self._partial: list[bytes] = []
        self._started = False
        self.data_lines: list[bytes] = []
        self.text = self.raw = self.energy = b""
        self.position = 0

    def feed(self, block: bytes) -> Iterator[bytes]:
        """The data of every event that this block completes, in order, each parsed when it is asked for."""
        if self._started and not self._partial and block.endswith(b"\n") and b"\r" not in block:
            self.text = block  # as most come
        else:
            self._partial.append(block)
            self.text = self._complete_lines(block)
        self.position = 0
        return self._events()

    def finish(self) -> Iterator[bytes]:
        """The data of an event that the end of the body completes, for upstreams that omit the last blank line."""
        rest = b"".join(self._partial)
        if not self._started:
            rest = rest.removeprefix(_BOM)
        self._partial = []
        self.text, self.position = b"\n".join([*rest.splitlines(), b"", b""]), 0
        return self._events()

    def _complete_lines(self, block: bytes) -> bytes:
        """All that has come up to the last line end, in lines that end in LF."""
        pending_carriage_return = len(self._partial) > 1 and self._partial[-2].endswith(b"\r")
        if b"\n" not in block and b"\r" not in block and not pending_carriage_return:
            return b""
        text = b"".join(self._partial)
        if not self._started:
            text = text.removeprefix(_BOM)
            self._started = True
        # A CR at the very end may be half of a CRLF: it waits for the next byte.
        end = max(text.rfind(b"\n"), text.rfind(b"\r", 0, len(text) - 1)) + 1
        self._partial = [text[end:]] if end < len(text) else []
        text = text[:end]
        return text if b"\r" not in text else b"\n".join([*text.splitlines(), b""])

    def _events(self) -> Iterator[bytes]:
        text, lines = self.text, self.data_lines
        start = -1 if lines else 0
        while (end := text.find(b"\n", self.position)) >= 0:
            line = text[self.position : end]
            self.position = end + 1
            if line.startswith(b"data:"):
                lines.append(line[6:] if line[5:6] == b" " else line[5:])
            elif line == b"data":
                lines.append(b"")
            elif line.startswith(_ENERGY):
                self.energy = line.removeprefix(_ENERGY)
            elif not line and lines:
                self.raw = b"" if start < 0 else text[start : self.position]
                data = lines[0] if len(lines) == 1 else b"\n".join(lines)
                lines.clear()
                yield data
                start = self.position
