"""Passes on the streams of an upstream that speaks the client's API itself.

The fields that the gateway owns are set in the events. The event that ends the answer is held back until the request is
settled, because it carries the bill. The forms `messages` and `responses` have subclasses for the names in their APIs.
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import orjson

from ..chunks import Normaliser
from ..deltas import Delta, FinishDelta, Note, TextDelta
from ..dialects.errors import MalformedReply
from .framing import Framing, without_line_ends

Json = dict[str, Any]


class PassedStream(Normaliser, Framing):
    """Passes on the events of one stream."""

    holder: ClassVar[str]  # the member of an event that holds the answer, with the fields that the gateway owns

    def __init__(self, own: Json) -> None:
        super().__init__()
        self.own = own
        self._is_finished = False
        self.last: Json = {}  # the event that ends the answer

    @property
    def is_complete(self) -> bool:
        """See Normaliser."""
        return self._is_finished

    @property
    def all_finished(self) -> bool:
        """See Normaliser."""
        return self._is_finished

    def take(self, deltas: Iterable[Delta | Note], sent: list[Delta]) -> None:
        """See Normaliser."""
        for delta in deltas:
            if not isinstance(delta, Delta):
                self.note(delta)
                if self.has_ended:
                    break
                continue
            if type(delta) is TextDelta:
                text = delta.text
                self.text_bytes += len(text) if text.isascii() else len(text.encode())
                self.has_output = True
            if self.change(delta, sent):
                sent.append(delta)
            if type(delta) is FinishDelta:
                self._is_finished = self.has_output = True

    @abstractmethod
    def change(self, delta: Delta, sent: list[Delta]) -> bool:
        """Sets the fields that the gateway owns in an event, and adds events that must precede it to `sent`.

        Returns False if the event is dropped. Raises MalformedReply.
        """

    def say(self, words: Any) -> None:
        """Counts further text of the answer, if `words` is a text."""
        if words and isinstance(words, str):
            self.text_bytes += len(words.encode())
            self.has_output = True

    def frames(self, pending: list[Delta]) -> list[bytes]:
        frames: list[bytes] = []
        for delta in pending:
            if isinstance(delta, FinishDelta):
                self.last = delta.chunk
            else:
                frames += map(self.frame, (delta.chunk, *(delta.more or ())))
        return frames

    def frame(self, event: Json) -> bytes:
        """Writes one event with its name."""
        frame = b"event: %b\ndata: %b\n\n" % (event["type"].encode(), orjson.dumps(event))
        return frame if frame.isascii() else without_line_ends(frame)


def require_objects(answer: Mapping[str, Any], name: str) -> None:
    """Raises MalformedReply if an answer has no list of objects under this name."""
    items = answer.get(name)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise MalformedReply(f"answered without {name}")
