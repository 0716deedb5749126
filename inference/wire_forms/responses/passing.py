"""Passes on responses and their events from an upstream that has the Responses API itself.

We set `id`, `model`, `store`, the numbers of the events, and the bill in the last response. Items keep the upstream's
ids, because it has to recognise them when they are sent back.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from gateway.edge.checks import Json
from gateway.errors import ApiError

from ...deltas import Delta, FinishDelta, TextDelta
from ...words import dicts, field_bytes, object_of
from ..framing import DONE, Report
from ..passing import PassedStream, require_objects
from .answers import FAILED, fault_of, with_bill
from .output import INCOMPLETE

CALLS = frozenset({"function_call", "custom_tool_call"})
# The fields of items and parts that hold text.
WORDS = ("text", "refusal", "arguments", "input", "name")
# The field of an item for each kind of delta whose text belongs to the item itself; other texts belong to a part.
FIELDS = {"function_call_arguments": "arguments", "custom_tool_call_input": "input"}


class PassedResponse(PassedStream):
    """See PassedStream."""

    def __init__(self, *, id: str, model: str) -> None:
        super().__init__(own_of(id, model))
        self._sequence = 0
        self._begun: Json = {}  # the newest response object
        self._items: dict[int, Json] = {}  # by index: as added, then as done
        self._deltas: dict[int, list[tuple[str, str]]] = {}  # kinds and texts of the deltas of open items

    def change(self, delta: Delta, sent: list[Delta]) -> bool:
        """See PassedStream."""
        event = delta.chunk
        kind, index = event["type"], event.get("output_index")
        if isinstance(delta, TextDelta):
            if type(index) is int and index in self._deltas:
                self._deltas[index].append((kind, delta.text))
            return True
        if isinstance(event.get("response"), dict):
            self._begun = event["response"] = {**event["response"], **self.own}
        if isinstance(delta, FinishDelta):
            self._complete(event.get("response"))
            require_objects(object_of(event.get("response")), "output")
        elif kind == "response.output_item.added":
            item = object_of(event.get("item"))
            self.say(item.get("name"))
            if type(index) is int:
                self._items[index], self._deltas[index] = item, []
        elif kind == "response.output_item.done" and type(index) is int:
            self._items[index] = object_of(event.get("item"))
            self._deltas.pop(index, None)
        return True

    def _complete(self, response: Any) -> None:
        """Adds the items to the last response if it has none, since clients read the answer there."""
        if isinstance(response, dict) and not response.get("output") and self._items:
            done = self._items.keys() - self._deltas.keys()
            response["output"] = [self._items[index] for index in sorted(done)]

    @property
    def has_open_call(self) -> bool:
        """See Normaliser."""
        return any(self._items[index].get("type") in CALLS for index in self._deltas)

    def finish_open(self, sent: list[Delta], *, is_counted: bool) -> None:
        """See Normaliser. Does nothing, since only an event can end a response."""

    def finishes(self) -> Iterable[Delta]:
        """See Normaliser. Returns none, since the upstream's finish has been sent to the framing already."""
        return ()

    def finished(self, report: Report) -> list[bytes]:
        last = {**self.last, "response": with_bill(self.last["response"], report)}
        return [self.frame(last), DONE]

    def stalled(self, error: ApiError, report: Report) -> list[bytes]:
        return [*self._closed(), *self._failed(error, report)]

    def broke(self, error: ApiError, report: Report | None) -> list[bytes]:
        event = {"type": "error", "code": error.code, "message": error.message, "param": error.param}
        return [*self._closed(), self.frame(event), *self._failed(error, report)]

    def _closed(self) -> list[bytes]:
        """Closes the open items, with their text so far."""
        frames = []
        for index, deltas in self._deltas.items():
            item = self._items[index] = cut_item(self._items[index], deltas)
            frames.append(self.frame({"type": "response.output_item.done", "output_index": index, "item": item}))
        self._deltas.clear()
        return frames

    def _failed(self, error: ApiError, report: Report | None) -> list[bytes]:
        response: Json = {
            **self._begun,
            **self.own,
            "status": FAILED,
            "output": [item for _, item in sorted(self._items.items())],
            "error": fault_of(error),
        }
        if report is not None:
            response = with_bill(response, report)
        return [self.frame({"type": "response.failed", "response": response}), DONE]

    def frame(self, event: Json) -> bytes:
        """See PassedStream. Also numbers the event."""
        event["sequence_number"] = self._sequence
        self._sequence += 1
        return super().frame(event)


class LastResponse:
    """See `answers.WholeFromDeltas`. Takes the whole answer from the last event."""

    def __init__(self) -> None:
        self._response: Json = {}

    def add(self, delta: Delta) -> None:
        """See WholeFromDeltas."""
        if isinstance(delta, FinishDelta):
            self._response = delta.chunk["response"]

    def answer(self) -> Json:
        """See WholeFromDeltas."""
        return self._response


def own_of(id: str, model: str) -> Json:
    """Returns the fields of a response that the gateway owns."""
    return {"id": id, "model": model, "store": False, "previous_response_id": None}


def output_bytes(response: Mapping[str, Any]) -> int:
    """Counts the UTF-8 bytes of the texts in a response's items, for the estimator."""
    items = dicts(response.get("output"))
    parts = [part for item in items for name in ("content", "summary") for part in dicts(item.get(name))]
    return sum(field_bytes(each, WORDS) for each in (*items, *parts))


def cut_item(item: Json, deltas: Iterable[tuple[str, str]]) -> Json:
    """Returns an item that was cut off, as incomplete and with the text of its `deltas`."""
    texts: dict[str, str] = {}
    for event, delta in deltas:
        kind = event.removeprefix("response.").removesuffix(".delta")
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
