"""Tells event streams from JSON, and takes them apart into the data of their events."""

_ENERGY = b": energy "
_BLANK = b"data:  "  # how data that consists of blanks begins
_BOM = b"\xef\xbb\xbf"
_BEGINNINGS = (b"data:", b"event:", b"id:", b"retry:", b":")
_LONGEST_BEGINNING = max(map(len, _BEGINNINGS))


def is_event_stream(first: bytes) -> bool:
    """Tells whether a body that begins like this is an event stream rather than JSON."""
    return first.removeprefix(_BOM).lstrip(b"\r\n").startswith(_BEGINNINGS)


def may_be_event_stream(first: bytes) -> bool:
    """Tells whether a body that begins like this is an event stream, or may become one with its next bytes."""
    if is_event_stream(first):
        return True
    return 0 < len(first) < _LONGEST_BEGINNING and any(beginning.startswith(first) for beginning in _BEGINNINGS)


def is_json(first: bytes) -> bool:
    """Tells whether a body that begins like this is JSON."""
    return first.removeprefix(_BOM).lstrip().startswith((b"{", b"["))


class SseParser:
    """Turns the bytes of an event stream into the data of its events.

    Lines may end in LF, CRLF or CR and may be cut anywhere, and the colon may lack its space. Comments, `event`, `id`
    and `retry` are dropped, because every dialect repeats in the data what they say. Events without data, which only
    keep a connection alive, are dropped too. `energy` is the text of the last comment in which the upstream reported
    the energy that it measured, empty until then.
    """

    __slots__ = ("_half_line_end", "_has_rest", "_partial", "_started", "energy")

    def __init__(self) -> None:
        self._partial: list[bytes] = []  # of an event that is not complete
        self._started = False
        self._half_line_end = b""  # a CR at the end of a block, which may be half of a CRLF
        self._has_rest = True  # one of these three needs to be looked at
        self.energy = b""

    def feed(self, block: bytes) -> list[bytes]:
        """Returns the data of every event that this block completes, in order."""
        # `find` is cheaper than `in`, which raises and drops an exception for bytes.
        if self._has_rest or block.find(b"\r") >= 0 or not block.endswith(b"\n\n"):
            block = self._completed(block)
        if block.startswith(b"data: ") and block.find(_BLANK) < 0:
            # Nearly all events have one line of data each, and are split in one go.
            if block.find(b"\n") == len(block) - 2 and len(block) > 8:
                return [block[6:-2]]
            events = block[6:-2].split(b"\n\ndata: ")
            if b"".join(events).find(b"\n") < 0 and all(events):
                return events
        return self._events(block[:-2])

    def finish(self) -> list[bytes]:
        """Returns the data of an event that the end of the body completes: some upstreams omit the last blank line."""
        rest = b"".join(self._partial)
        self._partial = []
        return self._events(rest if self._started else rest.removeprefix(_BOM))

    def _completed(self, block: bytes) -> bytes:
        """Returns all events that are complete now, with LF as line end, up to the blank line of the last."""
        if self._half_line_end or block.find(b"\r") >= 0:
            block = self._half_line_end + block
            self._half_line_end = b"\r" if block.endswith(b"\r") else b""
            block = block.removesuffix(b"\r").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self._partial.append(block)
        # The pieces of a long event are joined once: joining them at each piece would take quadratic time.
        if block.find(b"\n\n") < 0 and not (block.startswith(b"\n") and self._partial[-2:][0].endswith(b"\n")):
            self._has_rest = True
            return b""
        text = b"".join(self._partial)
        end = text.rfind(b"\n\n") + 2
        if end == 1:
            return b""
        self._partial = [text[end:]] if end < len(text) else []
        self._has_rest = bool(self._partial or self._half_line_end)
        text = text[:end]
        if not self._started:
            self._started = True
            text = text.removeprefix(_BOM)
        return text

    def _events(self, text: bytes) -> list[bytes]:
        """Returns the data of whole events, which come without the blank line after the last."""
        if text.startswith(b"event:") and text.find(_BLANK) < 0:
            # Events with a name and one line of data each are split in one go, too.
            name, _, line = text.partition(b"\ndata: ")
            if line.find(b"\n") < 0 and name.find(b"\n") < 0 and line:
                return [line]
            lines = text.split(b"\n")
            names, data = b"\n".join(lines[::3]), b"\n".join(lines[1::3])
            events = data[6:].split(b"\ndata: ")
            count = len(events)
            is_plain = len(lines) == 3 * count - 1 and data.startswith(b"data: ") and not any(lines[2::3])
            if is_plain and all(events) and names.count(b"event:") == count and names.find(b"data:") < 0:
                return events
        events, lines = [], []
        for raw in [*text.split(b"\n"), b""]:
            line = raw.removeprefix(_BOM)  # some upstreams begin every event with one
            if line.startswith(b"data:"):
                lines.append(line[6:] if line[5:6] == b" " else line[5:])
            elif line == b"data":
                lines.append(b"")
            elif line.startswith(_ENERGY):
                self.energy = line.removeprefix(_ENERGY)
            elif not line and lines:
                event = b"\n".join(lines)
                if event.strip():
                    events.append(event)
                lines = []
        return events
