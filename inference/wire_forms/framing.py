"""Framings: they turn deltas into the bytes of one streamed answer."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import orjson

from gateway.edge.checks import Json
from gateway.edge.exception_handler import error_body
from gateway.errors import ApiError

from ..call import Call
from ..chunks import ChunkNormaliser
from ..deltas import Delta, FinishDelta
from ..words import THOUGHTS, without

Report = Mapping[str, Any]  # `usage` and `gateway_metadata` of a settled answer
DONE = b"data: [DONE]\n\n"
# Line ends by Unicode's rules (U+0085, U+2028, U+2029) that JSON allows in a string.
LINE_ENDS = ((b"\xc2\x85", rb"\u0085"), (b"\xe2\x80\xa8", rb"\u2028"), (b"\xe2\x80\xa9", rb"\u2029"))
HIDES_REASONING = (
    "hides reasoning"  # the `Call.form_state` of a completion whose client wants no reasoning in its answer
)


class Framing(Protocol):
    """Writes one streamed answer in a form's words. Each method returns the bytes to send next, and may keep state.

    `frames` is called for each read. One of the other three is called once, at the end, after the answer has been
    settled. `report` is None if settling itself has failed.
    """

    def frames(self, pending: list[Delta]) -> list[bytes]:
        """Writes the deltas that have come from the upstream since the last call."""

    def finished(self, report: Report) -> list[bytes]:
        """Ends an answer that is complete."""

    def stalled(self, error: ApiError, report: Report) -> list[bytes]:
        """Ends an answer whose upstream fell silent for longer than a budget allows."""

    def broke(self, error: ApiError, report: Report | None) -> list[bytes]:
        """Ends an answer that anything else has cut off."""


def framed(payload: Json, name: bytes = b"") -> bytes:
    """Writes one event that carries one JSON object, with a name if the events of the API have names."""
    data = orjson.dumps(payload)
    frame = b"event: %b\ndata: %b\n\n" % (name, data) if name else b"data: %b\n\n" % data
    return frame if frame.isascii() else without_line_ends(frame)


def without_line_ends(frames: bytes) -> bytes:
    """Escapes the line ends of Unicode that JSON allows in strings: some clients split lines by them."""
    for raw, escaped in LINE_ENDS:
        frames = frames.replace(raw, escaped)
    return frames


class ChunkFraming:
    """Writes each chunk in a `data:` line, as chat and text completions stream.

    The usage stands in the finish chunk, or in a chunk of its own if the client asked for one.
    """

    __slots__ = ("_held", "_hides_reasoning", "_include_usage", "_normaliser")

    def __init__(self, normaliser: ChunkNormaliser, call: Call) -> None:
        self._normaliser, self._include_usage = normaliser, call.include_usage
        self._hides_reasoning = call.form_state == HIDES_REASONING
        self._held: Json | None = None  # the last finish chunk, which may have to carry the usage

    def frames(self, pending: list[Delta]) -> list[bytes]:
        if self._hides_reasoning:
            pending = _deltas_without_reasoning(pending)
        if len(pending) == 1 and pending[0].more is None and type(pending[0]) is not FinishDelta:
            return [framed(pending[0].chunk)]
        chunks = []
        for delta in pending:
            chunks.append(delta.chunk)
            if delta.more is not None:
                chunks += delta.more
        if pending and isinstance(pending[-1], FinishDelta):
            self._held = chunks.pop()
        frames = b"\n\ndata: ".join(map(orjson.dumps, chunks))  # in one call: most bytes of a stream go through here
        if not frames.isascii():
            frames = without_line_ends(frames)
        return [b"data: %b\n\n" % frames] if frames else []

    def finished(self, report: Report) -> list[bytes]:
        if self._held is not None and not self._include_usage:
            return [framed({**self._held, **self._normaliser.unsent, **report}), DONE]
        return [*self._released(), framed({**self._normaliser.closing([]), **report}), DONE]

    def stalled(self, error: ApiError, report: Report) -> list[bytes]:
        return [*self._released(), framed({**self._normaliser.stalled(), **report}), DONE]

    def broke(self, error: ApiError, report: Report | None) -> list[bytes]:
        return [*(self._released() if report is not None else ()), framed(error_body(error))]

    def _released(self) -> list[bytes]:
        """Returns the finish chunk that was held, which turned out not to be the one that carries the usage."""
        held, self._held = self._held, None
        return [] if held is None else [framed(held)]


def _deltas_without_reasoning(pending: Iterable[Delta]) -> list[Delta]:
    """Takes the reasoning out of the deltas, and leaves out those that would be empty then."""
    kept = []
    for delta in pending:
        left = without_reasoning(delta.choice)
        if left == delta.choice or isinstance(delta, FinishDelta) or left.get("delta") or left.get("text"):
            if left != delta.choice:
                delta.chunk["choices"], delta.more = [left], None
            kept.append(delta)
    return kept


def without_reasoning(choice: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a choice of an answer or a chunk without its reasoning."""
    said = {name: without(choice[name], THOUGHTS) for name in ("message", "delta") if name in choice}
    return {**without(choice, THOUGHTS), **said}
