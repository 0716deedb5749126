"""Chunks of a stream that differ from the one before in their text alone, passed on without being parsed.

Most chunks of most streams do. Once one has been normalised the long way, the bytes around its text are kept, as they
came and as they went out: an event with the same bytes around another plain text is one with that text put between the
others. What is written in another form than the gateway's own or is anything else takes the long way, which alone
decides what a chunk means. A chunk of a burst costs a fortieth of the instructions this way.
"""

import re
from collections.abc import Callable
from typing import Any

import orjson

from . import sse
from .chunks import NormalisedChunk
from .sse import SseParser

# The inside of a JSON string that is the same bytes before it is parsed and after it is written again, if it is UTF-8
# without the line ends that `sse.frame` escapes. A quote would end the text for who looks for its end.
PLAIN_TEXT = re.compile(rb"[ !#-\[\]-~\x80-\xff]*(?:\\[nrt][ !#-\[\]-~\x80-\xff]*)*")
PROBE = "probe"
MOST_KNOWN = 8  # surroundings of one stream: one for each of its choices, and for the kinds of text


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
            around_frame = _around(sse.frame(normalised.chunk), field, text)
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
    return not any(line_end in text for line_end, _ in sse.LINE_ENDS)


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
