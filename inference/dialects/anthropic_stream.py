"""Anthropic's event stream as OpenAI's chunks. The type of an event is in its data: `event:` lines are not needed.

Only output and the finish make chunks. What says something else (signed thinking once its block is complete,
citations, fields that are not known) rides on the next of those, so that it is neither lost before the first output nor
a chunk that clients do not expect.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from catalogue.pricing import ContradictoryUsage, Usage

from .anthropic_answers import MESSAGE_FIELDS, Json, arguments_of, extras, finish_reason, usage_of
from .base import Event, MalformedReply
from .common import parse_object
from .errors import raise_error

Part = TypeVar("Part")


@dataclass(slots=True)
class _Block:
    """An open content block. `ordinal` counts among the tools; `pieces` are what it said so far."""

    content: Json
    ordinal: int = 0
    pieces: list[str] = field(default_factory=list)
    signature: str = ""


class AnthropicDecoder:
    """See `base.StreamDecoder`."""

    __slots__ = ("_blocks", "_citations", "_held", "_held_delta", "_thoughts", "_tools", "_usage")

    def __init__(self) -> None:
        self._blocks: dict[int, _Block] = {}  # by the index of the content block
        self._tools = self._thoughts = self._citations = 0
        self._usage: Json = {}
        self._held: Json = {}  # of the chunk
        self._held_delta: Json = {}

    def decode(self, data: bytes) -> Event:
        """A piece of output, the finish with its usage, or nothing. Unknown events are nothing."""
        event = parse_object(data)
        raise_error(event)
        match event.get("type"):
            case "message_start":
                return self._start(_part(event, "message", dict))
            case "content_block_start" | "content_block_delta" | "content_block_stop":
                return self._content(event, _part(event, "index", int))
            case "message_delta":
                return self._progress(event)
            case "message_stop":
                return Event(is_last=True)
            case _:
                return Event()

    def _start(self, message: Json) -> Event:
        """The answer is not counted yet: what `output_tokens` says here is a place-holder."""
        self._held |= extras(message, MESSAGE_FIELDS)
        counted = self._counted(message.get("usage"))
        return Event(
            prompt_usage=None if counted is None else replace(counted, completion=0, reasoning=None),
            reported=self._usage or None,
        )

    def _content(self, event: Json, index: int) -> Event:
        match event["type"]:
            case "content_block_start":
                block = self._blocks[index] = _Block(_part(event, "content_block", dict))
                return self._open(block, block.content)
            case "content_block_delta":
                return self._delta(self._blocks.get(index), _part(event, "delta", dict))
            case _:
                return self._close(self._blocks.pop(index, None))

    def _open(self, block: _Block, content: Json) -> Event:
        match content.get("type"):
            case "text":
                self._held_delta |= extras(content, ("type", "text", "citations"))
                return self._say("content", content.get("text"))
            case "tool_use":
                block.ordinal, self._tools = self._tools, self._tools + 1
                return self._chunk({"tool_calls": [_call(block)]})
            case "redacted_thinking":
                self._keep("thinking_blocks", self._thought(content))
            case "thinking":
                return self._think(block, content.get("thinking"))
        return Event()

    def _delta(self, block: _Block | None, delta: Json) -> Event:
        match delta.get("type"):
            case "text_delta":
                self._held_delta |= extras(delta, ("type", "text"))
                return self._say("content", delta.get("text"))
            case "thinking_delta" if block is not None:
                self._held_delta |= extras(delta, ("type", "thinking"))
                return self._think(block, delta.get("thinking"))
            case "signature_delta" if block is not None:
                block.signature += _text(delta.get("signature"))
            case "input_json_delta" if block is not None and block.content.get("type") == "tool_use":
                return self._argue(block, _text(delta.get("partial_json")))
            case "citations_delta":
                self._keep("citations", {"index": self._citations, **_part(delta, "citation", dict)})
                self._citations += 1
        return Event()

    def _close(self, block: _Block | None) -> Event:
        """A thought is complete with its signature; a tool's input that came in no piece is the one at its start."""
        if block is None:
            return Event()
        kind = block.content.get("type")
        if kind == "thinking":
            signature = block.signature or block.content.get("signature") or ""
            self._keep(
                "thinking_blocks",
                self._thought({**block.content, "thinking": "".join(block.pieces), "signature": signature}),
            )
        if kind == "tool_use" and not block.pieces:
            return self._argue(block, arguments_of(block.content))
        return Event()

    def _progress(self, event: Json) -> Event:
        """The stop reason, and usage so far: its null fields are unchanged."""
        delta = event.get("delta")
        delta = delta if isinstance(delta, dict) else {}
        self._held |= extras(event, ("type", "delta", "usage")) | extras(delta, ("stop_reason",))
        usage = self._counted(event.get("usage"))
        finish = finish_reason(delta.get("stop_reason"))
        spoken = self._chunk({}, finish) if finish else Event()
        spoken.usage, spoken.reported = usage, self._usage or None
        return spoken

    def _counted(self, reported: Any) -> Usage | None:
        if not isinstance(reported, dict):
            return None
        self._usage |= {name: value for name, value in reported.items() if value is not None}
        try:
            return usage_of(self._usage)
        except ContradictoryUsage as error:
            error.reported = self._usage
            raise

    def _say(self, name: str, text: Any) -> Event:
        return self._chunk({name: text}) if _text(text) else Event()

    def _think(self, block: _Block, text: Any) -> Event:
        block.pieces.append(_text(text))
        return self._say("reasoning_content", text)

    def _argue(self, block: _Block, piece: str) -> Event:
        if not piece:
            return Event()
        block.pieces.append(piece)
        return self._chunk({"tool_calls": [{"index": block.ordinal, "function": {"arguments": piece}}]})

    def _thought(self, block: Json) -> Json:
        thought = {"index": self._thoughts, **block}
        self._thoughts += 1
        return thought

    def _keep(self, name: str, item: Json) -> None:
        """Entries are numbered by `index`: clients that put a stream together demand it of lists in a delta."""
        self._held_delta.setdefault(name, []).append(item)

    def _chunk(self, delta: Json, finish: str | None = None) -> Event:
        """A chunk of this output or finish, and whatever waited for one."""
        choice = {"index": 0, "delta": {**self._held_delta, **delta}, "finish_reason": finish}
        chunk = {**self._held, "choices": [choice]}
        self._held, self._held_delta = {}, {}
        return Event(chunk=chunk)


def _call(block: _Block) -> Json:
    """The head of a tool call; its arguments follow."""
    content = block.content
    return {
        **extras(content, ("type", "id", "name", "input")),
        "index": block.ordinal,
        "id": content.get("id"),
        "type": "function",
        "function": {"name": content.get("name"), "arguments": ""},
    }


def _part(event: Mapping[str, Any], name: str, kind: type[Part]) -> Part:
    """A part of an event without which it says nothing. Raises MalformedReply."""
    part = event.get(name)
    if not isinstance(part, kind):
        raise MalformedReply(f"sent an event without its {name}")
    return part


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
