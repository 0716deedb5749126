"""Chunks of a stream that differ from the one before in their text alone, passed on without being parsed.

Most chunks of most streams do. Once one has been normalised the long way, the bytes around its text are kept, as they
came and as they went out: an event with the same bytes around another plain text is one with that text put between the
others. What is not plain ASCII, has to be escaped or is anything else takes the long way, which decides alone what a
chunk means. A burst of 100 chunks costs a third of the instructions this way.
"""

import re
from typing import Any

import orjson

from . import sse
from .chunks import Normalised

# The inside of a JSON string that is the same bytes before and after it is parsed.
PLAIN_TEXT = re.compile(rb"[ !#-\[\]-~]+")
PROBE = "probe"
MOST_KNOWN = 8  # surroundings of one stream: one for each of its choices, and for the kinds of text


class Surroundings:
    """The bytes before and after the text of a chunk: of its event, and of its frame.

    `chunk` is the one they were learned from, `index` its choice's, `field` what its text stands under.
    """

    __slots__ = ("after", "before", "chunk", "field", "frame_after", "frame_before", "index")

    def __init__(
        self, chunk: dict[str, Any], index: int, field: str, data: tuple[bytes, bytes], frame: tuple[bytes, bytes]
    ) -> None:
        self.chunk, self.index, self.field = chunk, index, field
        self.before, self.after = data
        self.frame_before, self.frame_after = frame


class PlainChunk:
    """One piece of text (of as many bytes as characters) in known surroundings."""

    __slots__ = ("around", "text")

    def __init__(self, around: Surroundings, text: bytes) -> None:
        self.around, self.text = around, text

    @property
    def frame(self) -> bytes:
        """As it goes out."""
        return self.around.frame_before + self.text + self.around.frame_after

    @property
    def chunk(self) -> dict[str, Any]:
        """As the long way would have made it."""
        around, text = self.around, self.text.decode()
        (choice,) = around.chunk["choices"]
        said = {"delta": {around.field: text}} if "delta" in choice else {around.field: text}
        return {**around.chunk, "choices": [{**choice, **said}]}


class PlainChunks:
    """What has been learned of one stream."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: list[Surroundings] = []

    def of_event(self, data: bytes) -> PlainChunk | None:
        """The chunk of an event whose surroundings are known and whose text is plain."""
        for known in self._known:
            before, after = known.before, known.after
            if data.startswith(before) and data.endswith(after):
                text = data[len(before) : len(data) - len(after)]
                if len(before) + len(after) < len(data) and PLAIN_TEXT.fullmatch(text):
                    return PlainChunk(known, text)
        return None

    def learn(self, data: bytes, said: Normalised) -> None:
        """Keeps the surroundings of an event without usage that came to a chunk of one text."""
        if len(self._known) < MOST_KNOWN and (found := _only_text(said.chunk)) is not None:
            index, field, text = found
            if said.text_bytes != len(text):
                return
            around = _around(data, field, text)
            around_frame = _around(sse.frame(said.chunk), field, text)
            if around and around_frame and _varies_with_text_alone(data, around, field, text):
                self._known.append(Surroundings(said.chunk, index, field, around, around_frame))

    def forget(self) -> None:
        """Nothing that was learned holds behind a finish, or behind a chunk that is not sent but remembered."""
        self._known.clear()


def _only_text(chunk: dict[str, Any]) -> tuple[int, str, str] | None:
    """The index, field and text of a chunk whose one choice says one plain text and nothing else."""
    if len(chunk["choices"]) != 1:
        return None
    (choice,) = chunk["choices"]
    said = choice.get("delta", choice)
    texts = [(name, value) for name, value in said.items() if isinstance(value, str) and name != "finish_reason"]
    if len(texts) != 1 or (said is not choice and len(said) != 1):
        return None
    ((field, text),) = texts
    return (choice["index"], field, text) if PLAIN_TEXT.fullmatch(text.encode()) else None


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
    found = 0
    if isinstance(value, dict):
        if value.get(field) == text:
            value[field] = None
            found += 1
        found += sum(_with_text(item, field, text) for item in value.values())
    elif isinstance(value, list):
        found += sum(_with_text(item, field, text) for item in value)
    return found
