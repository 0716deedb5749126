"""Server-sent events: incremental parsing at any segmentation, framing of our own, and chunks that need no parsing.

Most chunks of most streams differ from the one before in their text alone. Once one has been normalised the long way,
the bytes around its text are kept, as they came and as they went out: an event with the same bytes around another plain
text is one with that text put between the others. What is written in another form than the gateway's own or is anything
else takes the long way, which alone decides what a chunk means. A chunk of a burst costs a fortieth of the instructions
this way.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

import orjson

from .chunks import NormalisedChunk

DONE = b"data: [DONE]\n\n"
_ENERGY = b": energy "
_BOM = b"\xef\xbb\xbf"
# Line ends by Unicode's rules (U+0085, U+2028, U+2029) that JSON allows in a string.
LINE_ENDS = ((b"\xc2\x85", rb"\u0085"), (b"\xe2\x80\xa8", rb"\u2028"), (b"\xe2\x80\xa9", rb"\u2029"))
# The inside of a JSON string that is the same bytes before it is parsed and after it is written again, if it is UTF-8
# without the line ends that `frame` escapes. A quote would end the text for who looks for its end.
PLAIN_TEXT = re.compile(rb"[ !#-\[\]-~\x80-\xff]*(?:\\[nrt][ !#-\[\]-~\x80-\xff]*)*")
PROBE = "probe"
MOST_KNOWN = 8  # surroundings of one stream: one for each of its choices, and for the kinds of text


def frame(payload: dict[str, Any]) -> bytes:
    """One event carrying one JSON object, with no line end in it by any rule that a client may split lines by."""
    data = orjson.dumps(payload)
    if not data.isascii():
        for raw, escaped in LINE_ENDS:
            data = data.replace(raw, escaped)
    return b"data: " + data + b"\n\n"


def is_event_stream(first: bytes) -> bool:
    """True where a body that begins so is a stream of events, and no JSON."""
    return first.removeprefix(_BOM).lstrip(b"\r\n").startswith((b"data:", b"event:", b"id:", b"retry:", b":"))


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


class Surroundings:
    """The bytes before and after the text of a chunk: of its event as it came, and of its frame.

    `chunk` is the one they were learned from, `index` of its choice or block, `field` what its text stands under.
    """

    __slots__ = ("after", "before", "chunk", "field", "frame_after", "frame_before", "frame_between", "index")

    def __init__(
        self, chunk: dict[str, Any], index: int, field: str, event: tuple[bytes, bytes], frame: tuple[bytes, bytes]
    ) -> None:
        self.chunk, self.index, self.field = chunk, index, field
        self.before, self.after = event
        self.frame_before, self.frame_after = frame
        self.frame_between = self.frame_after + self.frame_before


class PlainChunks:
    """Texts that came one after another in the same surroundings, as they stand between the quotes."""

    __slots__ = ("around", "joined", "texts")

    def __init__(self, around: Surroundings, texts: list[bytes]) -> None:
        self.around, self.texts = around, texts
        self.joined = texts[0] if len(texts) == 1 else b"".join(texts)

    @property
    def text_bytes(self) -> int:
        """The UTF-8 length of the words: each escape stands for one byte."""
        return len(self.joined) - self.joined.count(b"\\")

    @property
    def text(self) -> str:
        """All of the words."""
        text: str = orjson.loads(b'"' + self.joined + b'"')
        return text

    @property
    def frames(self) -> bytes:
        """As they go out: a frame for each."""
        around = self.around
        return around.frame_before + around.frame_between.join(self.texts) + around.frame_after

    @property
    def chunk(self) -> dict[str, Any]:
        """All of the text in one chunk, as the long way would make it of one event."""
        around, text = self.around, self.text
        (choice,) = around.chunk["choices"]
        changed = {"delta": {around.field: text}} if "delta" in choice else {around.field: text}
        return {**around.chunk, "choices": [{**choice, **changed}]}


class LearnedSurroundings:
    """What has been learned of one stream. `only_text` is its normaliser's."""

    __slots__ = ("_known", "_only_text")

    def __init__(self, only_text: Callable[[dict[str, Any]], tuple[int, str, str] | None]) -> None:
        self._known: list[Surroundings] = []
        self._only_text = only_text

    def take(self, parser: SseParser) -> PlainChunks | None:
        """Takes the events that come next and whose surroundings are known and text is plain."""
        if not self._known or parser.data_lines:
            return None
        source, start = parser.text, parser.position
        for around in self._known:
            before, after = around.before, around.after
            texts, position = [], start
            while source.startswith(before, position):
                begin = position + len(before)
                end = source.find(b'"', begin)
                text = source[begin:end]
                if not source.startswith(after, end) or not text or not PLAIN_TEXT.fullmatch(text):
                    break
                if not text.isascii() and not _is_plain(text):
                    break
                texts.append(text)
                position = end + len(after)
            if texts:
                parser.position = position
                return PlainChunks(around, texts)
        return None

    def learn(self, data: bytes, raw: bytes, normalised: NormalisedChunk) -> None:
        """Keeps the surroundings of an event without usage that came to a chunk of one text."""
        if len(self._known) < MOST_KNOWN and data in raw and (only := self._only_text(normalised.chunk)) is not None:
            index, field, text = only
            if normalised.text_bytes != len(text.encode()) or not _is_plain(orjson.dumps(text)[1:-1]):
                return
            around = _around(data, field, text)
            around_frame = _around(frame(normalised.chunk), field, text)
            if around and around_frame and _varies_with_text_alone(data, around, field, text):
                event_before, _, event_after = raw.partition(data)
                event = event_before + around[0], around[1] + event_after
                self._known.append(Surroundings(normalised.chunk, index, field, event, around_frame))

    def forget(self) -> None:
        """Nothing that was learned holds behind a finish, or behind a chunk that is not sent but remembered."""
        self._known.clear()


def _is_plain(text: bytes) -> bool:
    if not text or PLAIN_TEXT.fullmatch(text) is None:
        return False
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return not any(line_end in text for line_end, _ in LINE_ENDS)


def _around(data: bytes, field: str, text: str) -> tuple[bytes, bytes] | None:
    """The bytes before and after the text of a field, where it stands there once."""
    for colon in (b":", b": "):
        key = orjson.dumps(field) + colon
        value = orjson.dumps(text)
        if data.count(key) == 1 and data.count(key + value) == 1:
            start = data.index(key) + len(key) + 1
            return data[:start], data[start + len(value) - 2 :]
    return None


def _varies_with_text_alone(data: bytes, around: tuple[bytes, bytes], field: str, text: str) -> bool:
    """Proof by a probe: with another text between the same bytes, the event says the same but for that text."""
    before, after = around
    try:
        original, probed = orjson.loads(data), orjson.loads(before + PROBE.encode() + after)
    except orjson.JSONDecodeError:
        return False
    return bool(_with_text(original, field, text) == 1 and _with_text(probed, field, PROBE) == 1 and original == probed)


def _with_text(value: Any, field: str, text: str) -> int:
    """How often the field says the text, anywhere in there; each is blanked out."""
    count = 0
    if isinstance(value, dict):
        if value.get(field) == text:
            value[field] = None
            count += 1
        count += sum(_with_text(item, field, text) for item in value.values())
    elif isinstance(value, list):
        count += sum(_with_text(item, field, text) for item in value)
    return count
