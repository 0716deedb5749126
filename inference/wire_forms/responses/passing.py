"""Responses over an upstream that has the API itself: the request goes as it came, its events come as they are.

What we own is set: `id`, `model`, `store`, the numbers of the events, the bill in the last response. Ids of items stay
the upstream's: it knows them again when they are sent back.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from gateway.errors import ApiError
from gateway.fastpath.faults import MalformedReply

from ... import sse
from ...chunks import NormalisedChunk, dicts, object_of
from ...sse import PlainChunks
from ..base import Report
from .answers import FAILED, fault_of, with_bill
from .output import INCOMPLETE, frame
from .tools import Json

FINAL = frozenset({"response.completed", "response.incomplete"})
# Of each kind of item or part, and of what its deltas are called: the fields that are words.
WORDS = ("text", "refusal", "arguments", "input", "name")
# Where the words of a delta belong: the item's own field, or the kind of part of its content.
FIELDS = {"function_call_arguments": "arguments", "custom_tool_call_input": "input"}


class ResponseEvents:
    """See `chunks.Normaliser`: its chunks are the upstream's events."""

    def __init__(self, *, id: str, model: str) -> None:
        self.own = own_of(id, model)
        self.unsent: Json = {}
        self.is_complete = False

    @property
    def all_finished(self) -> bool:
        """See Normaliser."""
        return self.is_complete

    def normalise(self, chunk: Mapping[str, Any]) -> NormalisedChunk | None:
        """See Normaliser."""
        event = dict(chunk)
        kind = event.get("type")
        if not isinstance(kind, str) or not kind.startswith("response."):
            return None
        if isinstance(event.get("response"), dict):
            event["response"] = {**event["response"], **self.own}
        if kind in FINAL:
            require_output(object_of(event.get("response")))
            self.is_complete = True
            return NormalisedChunk(event, finishes=True)
        text_bytes = _bytes(event, ("delta",)) if kind.endswith(".delta") else 0
        if kind == "response.output_item.added":
            text_bytes = _bytes(object_of(event.get("item")), ("name",))
        return NormalisedChunk(event, has_output=text_bytes > 0, text_bytes=text_bytes)

    def finish_open(self, *, is_counted: bool) -> Iterable[NormalisedChunk]:
        """See Normaliser."""
        return ()

    def only_text(self, chunk: Mapping[str, Any]) -> tuple[int, str, str] | None:
        """See Normaliser. Events are numbered: none differs from another in its text alone."""
        return None


class PassedFraming:
    """See base.Framing."""

    def __init__(self, events: ResponseEvents) -> None:
        self._own = events.own
        self._sequence = 0
        self._last: Json = {}  # the event that ends it, which waits for the bill
        self._begun: Json = {}  # the newest response, while it is in progress
        self._items: dict[int, Json] = {}  # by their index: as they were added, then as they were done
        self._deltas: dict[int, list[tuple[str, str]]] = {}  # of the items that are open: the kinds and texts

    def frames(self, pending: Iterable[NormalisedChunk | PlainChunks]) -> list[bytes]:
        """See Framing."""
        frames = []
        for chunk in pending:
            event = chunk.chunk
            if isinstance(chunk, NormalisedChunk) and chunk.finishes:
                self._last = event
                continue
            self._remember(event)
            frames.append(self._frame(event))
        return frames

    def finished(self, report: Report) -> list[bytes]:
        """See Framing."""
        last = {**self._last, "response": with_bill(self._last["response"], report)}
        return [self._frame(last), sse.DONE]

    def stalled(self, error: ApiError, report: Report) -> list[bytes]:
        """See Framing."""
        return [*self._closed(), *self._failed(error, report)]

    def broke(self, error: ApiError, report: Report | None) -> list[bytes]:
        """See Framing."""
        event = {"type": "error", "code": error.code, "message": error.message, "param": error.param}
        return [*self._closed(), self._frame(event), *self._failed(error, report)]

    def _remember(self, event: Json) -> None:
        kind, index = event["type"], event.get("output_index")
        if isinstance(event.get("response"), dict):
            self._begun = event["response"]
        if type(index) is not int:
            return
        if kind in ("response.output_item.added", "response.output_item.done"):
            self._items[index] = object_of(event.get("item"))
            if kind == "response.output_item.added":
                self._deltas[index] = []
            else:
                self._deltas.pop(index, None)
        elif kind.endswith(".delta") and index in self._deltas and isinstance(event.get("delta"), str):
            self._deltas[index].append((kind.removeprefix("response.").removesuffix(".delta"), event["delta"]))

    def _closed(self) -> list[bytes]:
        """Closes the items that are open, with the text that came of them."""
        frames = []
        for index, deltas in self._deltas.items():
            item = self._items[index] = cut_item(self._items[index], deltas)
            frames.append(self._frame({"type": "response.output_item.done", "output_index": index, "item": item}))
        self._deltas.clear()
        return frames

    def _failed(self, error: ApiError, report: Report | None) -> list[bytes]:
        response: Json = {
            **self._begun,
            **self._own,
            "status": FAILED,
            "output": [item for _, item in sorted(self._items.items())],
            "error": fault_of(error),
        }
        if report is not None:
            response = with_bill(response, report)
        return [self._frame({"type": "response.failed", "response": response}), sse.DONE]

    def _frame(self, event: Json) -> bytes:
        framed = frame(event, self._sequence)
        self._sequence += 1
        return framed


class LastResponse:
    """See `answers.WholeFromChunks`: the last event holds the whole answer."""

    def __init__(self) -> None:
        self._response: Json = {}

    def add_plain(self, plain: PlainChunks) -> None:
        """See WholeFromChunks."""

    def add(self, chunk: Mapping[str, Any]) -> None:
        """See WholeFromChunks."""
        if chunk["type"] in FINAL:
            self._response = chunk["response"]

    def answer(self) -> Json:
        """See WholeFromChunks."""
        return self._response


def own_of(id: str, model: str) -> Json:
    """The gateway's own fields of a response."""
    return {"id": id, "model": model, "store": False, "previous_response_id": None}


def require_output(response: Mapping[str, Any]) -> None:
    """Raises MalformedReply where a response has no list of items."""
    output = response.get("output")
    if not isinstance(output, list) or not all(isinstance(item, dict) for item in output):
        raise MalformedReply("answered without output")


def output_bytes(response: Mapping[str, Any]) -> int:
    """UTF-8 bytes of the words in the items of a response, for the estimator."""
    items = dicts(response.get("output"))
    parts = [part for item in items for name in ("content", "summary") for part in dicts(item.get(name))]
    return sum(_bytes(each, WORDS) for each in (*items, *parts))


def cut_item(item: Json, deltas: Iterable[tuple[str, str]]) -> Json:
    """An item that was cut: incomplete, with the text that came of it."""
    texts: dict[str, str] = {}
    for kind, delta in deltas:
        texts[kind] = texts.get(kind, "") + delta
    cut = {**item, "status": INCOMPLETE}
    for kind, text in texts.items():
        if kind in FIELDS:
            cut[FIELDS[kind]] = text
        elif kind == "reasoning_summary_text":
            cut["summary"] = [{"type": "summary_text", "text": text}]
        elif kind == "refusal":
            cut["content"] = [*dicts(cut.get("content")), {"type": kind, "refusal": text}]
        else:
            extras: Json = {"annotations": [], "logprobs": []} if kind == "output_text" else {}
            cut["content"] = [*dicts(cut.get("content")), {"type": kind, "text": text, **extras}]
    return cut


def _bytes(source: Mapping[str, Any], names: Iterable[str]) -> int:
    return sum(len(source[name].encode()) for name in names if isinstance(source.get(name), str))
