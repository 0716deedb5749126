"""Builds the output items of a response, and the events for them, from the normalised deltas of a chat.

Only one item of speech (reasoning or a message) is open at a time. Calls stay open until the end, because their pieces
may be interleaved; a custom tool's input is complete only then and is sent as one delta.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from gateway.edge.checks import Json

from ...deltas import CallDelta, Delta, FinishDelta, TextDelta
from ...words import REASONING_FIELDS, dicts, object_of, text_of, without
from ..signatures import Signatures, envelope_of
from .requests import AnswerContext
from .tools import Tool, input_of

# For each text field of a delta: the type of the item, and the type of the part, that hold the text.
SPEECH: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(REASONING_FIELDS, ("reasoning", "reasoning_text")),
    "content": ("message", "output_text"),
    "refusal": ("message", "refusal"),
}
CITED = ("annotations", "citations")
PREFIXES = {"reasoning": "rs", "message": "msg", "function_call": "fc", "custom_tool_call": "ctc"}
COMPLETED, INCOMPLETE, IN_PROGRESS = "completed", "incomplete", "in_progress"


class Output:
    """Holds the items of one response. `identity` is a part of their ids, `model` the route id in the answer."""

    def __init__(self, identity: str, model: str, context: AnswerContext) -> None:
        self.items: list[Json] = []
        self._signatures = Signatures(model, ("reasoning_details", "extra_content"))
        self._identity, self._context = identity, context
        self._part: _Part | None = None  # the open part
        self._calls: dict[Any, _Call] = {}  # by their index in the chat
        self._thinking: list[Json] = []  # signed thinking of the open reasoning item

    def add(self, delta: Delta) -> list[Json]:
        """Adds a delta, and returns the events for it."""
        events: list[Json] = []
        if isinstance(delta, FinishDelta):
            return events
        if delta.other_members is not None:
            self._add_members(delta.other_members, events)
        if isinstance(delta, TextDelta):
            events.append(self._part_of(delta.name, events).delta(delta.text, delta.choice.get("logprobs")))
        elif isinstance(delta, CallDelta):
            self._call(delta.fragment, events)
        return events

    def _add_members(self, other_members: Json, events: list[Json]) -> None:
        """Adds signatures, signed thinking and citations."""
        self._signatures.take(other_members)
        if self._context.encrypts and (blocks := dicts(other_members.get("thinking_blocks"))):
            self._think(blocks, events)
        if cited := [*_cited(other_members)]:
            part = self._part_of("content", events)
            events += map(part.annotation, cited)

    def _part_of(self, field: str, events: list[Json]) -> "_Part":
        """Returns the open part for this field of a delta, after opening it if necessary."""
        kind, part_kind = SPEECH[field]
        part = self._part
        if part is not None and part.kind == part_kind:
            return part
        if part is None or part.item["type"] != kind:
            self._close_speech(COMPLETED, events)
            if kind == "message" and self._context.encrypts:
                self._seal_apart(events)
            item = self._open(kind, {"summary": [], "content": []} if kind == "reasoning" else {"content": []})
            if kind == "message":
                item["role"] = "assistant"
            events.append(self._added(item))
            part = _Part(part_kind, item, len(self.items) - 1, 0)
        else:  # a message that goes on with another type of part
            events += part.closing()
            part = _Part(part_kind, part.item, part.output_index, part.content_index + 1)
        self._part = part
        events.append(part.opening())
        return part

    def close(self, status: str) -> list[Json]:
        """Ends the open items: the newest with this status, those before it as completed.

        A completed response without items gets an empty message.
        """
        events: list[Json] = []
        if not self.items and status == COMPLETED:
            self._part_of("content", events)
        self._close_speech(status if not self._calls or self._is_newest_speech() else COMPLETED, events)
        for call in self._calls.values():
            is_newest = call.output_index == len(self.items) - 1
            events += call.closing(status if is_newest else COMPLETED)
        if self._calls or self._context.encrypts:
            self._seal_apart(events)
        self._calls = {}
        return events

    def _is_newest_speech(self) -> bool:
        return self._part is not None and self._part.output_index == len(self.items) - 1

    def _think(self, blocks: list[Json], events: list[Json]) -> None:
        """Adds signed thinking to the open reasoning item. Opens one for redacted thinking, which has no text."""
        part = self._part
        if part is None or part.item["type"] != "reasoning":
            part = self._part_of(REASONING_FIELDS[0], events)
        self._thinking += blocks
        part.item["encrypted_content"] = envelope_of(self._thinking)

    def _seal(self, item: Json) -> None:
        """Puts the envelope of what was signed into this reasoning item, unless it has signed thinking."""
        if "encrypted_content" not in item and (envelope := self._signatures.envelope()):
            item["encrypted_content"] = envelope

    def _seal_apart(self, events: list[Json]) -> None:
        """Puts the envelope of what was signed without reasoning into an item of its own."""
        if envelope := self._signatures.envelope():
            item = self._open("reasoning", {"summary": [], "content": [], "encrypted_content": envelope})
            events.append(self._added(item))
            item["status"] = COMPLETED
            events.append(_done(item, len(self.items) - 1))

    def _call(self, fragment: Mapping[str, Any], events: list[Json]) -> None:
        self._signatures.take_call(fragment)
        called = fragment.get("function") or fragment.get("custom") or {}
        call = self._calls.get(fragment.get("index"))
        if call is None:
            self._close_speech(COMPLETED, events, calls=True)
            self._seal_apart(events)
            name = called.get("name") or ""
            call = self._opened_call(fragment.get("id"), self._context.tools.get(name) or Tool(name))
            self._calls[fragment.get("index")] = call
            events.append(self._added(call.item))
        if text := text_of(called.get("arguments")) or text_of(called.get("input")):
            call.pieces.append(text)
            if call.text == "arguments":  # pieces of a custom tool's input cannot be sent: JSON is around the input
                events.append(call.delta(text))

    def _opened_call(self, call_id: Any, tool: Tool) -> "_Call":
        kind, text = ("custom_tool_call", "input") if tool.is_custom else ("function_call", "arguments")
        item = self._open(kind, {"call_id": call_id, "name": tool.name, text: ""})
        if tool.namespace is not None:
            item["namespace"] = tool.namespace
        return _Call(item, text, len(self.items) - 1)

    def _open(self, kind: str, fields: Json) -> Json:
        identity = f"{PREFIXES[kind]}_{self._identity}_{len(self.items)}"
        item = {"id": identity, "type": kind, "status": IN_PROGRESS, **fields}
        self.items.append(item)
        return item

    def _added(self, item: Json) -> Json:
        shown = {**item, "content": []} if "content" in item else {**item}
        return {"type": "response.output_item.added", "output_index": len(self.items) - 1, "item": shown}

    def _close_speech(self, status: str, events: list[Json], *, calls: bool = False) -> None:
        """Ends the open item of speech.

        Reasoning gets the envelope of what was signed if the client asked for that, and also if a call follows
        (`calls`), since the next turn may fail without it.
        """
        part, self._part, self._thinking = self._part, None, []
        if part is not None:
            if part.item["type"] == "reasoning" and (calls or self._context.encrypts):
                self._seal(part.item)
            events += part.closing()
            part.item["status"] = status
            events.append(_done(part.item, part.output_index))


class _Part:
    """Holds the open part of a message or of reasoning."""

    __slots__ = (
        "_delta",
        "_event",
        "_length",
        "_measured",
        "_place",
        "annotations",
        "content_index",
        "item",
        "kind",
        "logprobs",
        "output_index",
        "pieces",
    )

    def __init__(self, kind: str, item: Json, output_index: int, content_index: int) -> None:
        self.kind, self.item, self.output_index, self.content_index = kind, item, output_index, content_index
        self.pieces: list[str] = []
        self.logprobs: list[Any] = []
        self.annotations: list[Json] = []
        self._measured = self._length = 0  # the number of pieces that were measured, and of characters in them
        self._event, self._delta = f"response.{kind}", f"response.{kind}.delta"
        self._place = {"item_id": item["id"], "output_index": output_index, "content_index": content_index}

    def opening(self) -> Json:
        """Returns the event that opens the empty part."""
        return {"type": "response.content_part.added", **self._place, "part": self._part("", [], [])}

    def delta(self, text: str, logprobs: Any) -> Json:
        """Adds a piece of text, and returns its event."""
        self.pieces.append(text)
        event: Json = {"type": self._delta, **self._place, "delta": text}
        if self.kind == "output_text":
            event["logprobs"] = listed = []
            if isinstance(logprobs, dict) and isinstance(logprobs.get("content"), list):
                event["logprobs"] = listed = logprobs["content"]
            self.logprobs += listed
        return event

    def annotation(self, cited: Json) -> Json:
        """Adds a citation, and returns its event.

        Without a place of its own it gets the end of the text so far: providers send it before the text it is about.
        """
        self._length += sum(map(len, self.pieces[self._measured :]))
        self._measured = len(self.pieces)
        if cited["type"] == "url_citation":
            cited = {"start_index": self._length, "end_index": self._length, **cited}
        self.annotations.append(cited)
        kind, number = "response.output_text.annotation.added", len(self.annotations) - 1
        return {"type": kind, **self._place, "annotation_index": number, "annotation": cited}

    def closing(self) -> list[Json]:
        """Completes the part, adds it to its item, and returns the events for that."""
        text = "".join(self.pieces)
        part = self._part(text, self.annotations, self.logprobs)
        self.item["content"].append(part)
        done: Json = {
            "type": f"{self._event}.done",
            **self._place,
            "refusal" if self.kind == "refusal" else "text": text,
        }
        if self.kind == "output_text":
            done["logprobs"] = self.logprobs
        return [done, {"type": "response.content_part.done", **self._place, "part": part}]

    def _part(self, text: str, annotations: list[Json], logprobs: list[Any]) -> Json:
        if self.kind == "refusal":
            return {"type": self.kind, "refusal": text}
        if self.kind == "output_text":
            return {"type": self.kind, "text": text, "annotations": annotations, "logprobs": logprobs}
        return {"type": self.kind, "text": text}


class _Call:
    """Holds an open call. `text` is the field of its item that grows: `arguments` or `input`."""

    __slots__ = ("item", "output_index", "pieces", "text")

    def __init__(self, item: Json, text: str, output_index: int) -> None:
        self.item, self.text, self.output_index = item, text, output_index
        self.pieces: list[str] = []

    def delta(self, piece: str) -> Json:
        """Returns the event for a piece of the call's text."""
        return {**self._event("delta"), "delta": piece}

    def closing(self, status: str) -> list[Json]:
        """Completes the call's item, and returns the events for that."""
        events: list[Json] = []
        whole = "".join(self.pieces)
        if self.text == "input":
            whole = input_of(whole)
            if whole:
                events.append(self.delta(whole))
        self.item[self.text], self.item["status"] = whole, status
        done = {**self._event("done"), self.text: whole}
        return [
            *events,
            done if self.text == "input" else {**done, "name": self.item["name"]},
            _done(self.item, self.output_index),
        ]

    def _event(self, what: str) -> Json:
        kind = "function_call_arguments" if self.text == "arguments" else "custom_tool_call_input"
        return {"type": f"response.{kind}.{what}", "item_id": self.item["id"], "output_index": self.output_index}


def _cited(delta: Mapping[str, Any]) -> Iterator[Json]:
    """Yields citations as annotations: pages by URL, documents by number. A provider's own fields are kept."""
    for each in dicts(delta.get("annotations")):
        page = object_of(each.get("url_citation"))
        if isinstance(page.get("url"), str):
            yield {**page, "type": "url_citation", "title": text_of(page.get("title"))}
    for each in dicts(delta.get("citations")):
        url, number = each.get("url") or each.get("source"), each.get("document_index")
        if isinstance(url, str):
            yield {**without(each, ("index",)), "type": "url_citation", "url": url, "title": text_of(each.get("title"))}
        elif type(number) is int:
            name = text_of(each.get("document_title"))
            yield {**each, "type": "file_citation", "file_id": "", "filename": name, "index": number}


def _done(item: Json, output_index: int) -> Json:
    return {"type": "response.output_item.done", "output_index": output_index, "item": item}
