"""Turns Anthropic's whole and streamed answers into OpenAI's shape: content blocks, stop reasons, usage.

Fields of a message that OpenAI has no name for (`stop_sequence`, `container`, …) stay at the top level. Signed thinking
is kept whole in `thinking_blocks`, so that clients can send it back unmodified (`requests`).

The type of a streamed event is in its data, so `event:` lines are not needed. Only output and the finish make chunks.
Everything else (signed thinking once its block is complete, citations, unknown fields) is added to the next of these
chunks: it must not count as the first output, and clients do not expect chunks without output.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import orjson

from catalogue.pricing import CACHE_COUNTS_DIFFER, Usage

from ...deltas import (
    NO_CHOICE,
    CallDelta,
    Delta,
    FinishDelta,
    Kind,
    Note,
    OtherDelta,
    StreamEnd,
    TextDelta,
    UsageReport,
    delta_of,
)
from ...words import object_of, text_of
from ..base import StreamDecoder, check_object, count, finish_of, optional_count
from ..errors import MalformedReply

Json = dict[str, Any]
Part = TypeVar("Part")

STOP_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
INPUT_COUNTS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
# For each kind of delta that holds text: the field that holds it.
TEXT_FIELD_OF_DELTA = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
MESSAGE_FIELDS = frozenset({"id", "type", "role", "model", "content", "stop_reason", "usage", "gateway_metadata"})


def answer_of(message: Mapping[str, Any]) -> Json:
    """Turns a whole message into a chat completion. Raises MalformedReply if it has no content."""
    content = message.get("content")
    if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
        raise MalformedReply("answered without content")
    finish = mapped_stop_reason(message.get("stop_reason"))
    return {
        **extras(message, MESSAGE_FIELDS),
        "id": message.get("id"),
        "object": "chat.completion",
        "model": message.get("model"),
        "choices": [{"index": 0, "message": _message(content), "finish_reason": finish}],
    }


def mapped_stop_reason(reported: Any) -> str | None:
    """Returns OpenAI's reason, or the upstream's own word if OpenAI has none for it; None while nothing is reported.

    Unlike `inference.finishes.finish_reason`, which reads the result later, it lets unknown words through.
    """
    return STOP_REASONS.get(reported, reported) if isinstance(reported, str) and reported else None


def extras(source: Mapping[str, Any], known: Iterable[str]) -> Json:
    """Returns the fields that are neither `known` nor null."""
    return {name: value for name, value in source.items() if name not in known and value is not None}


def usage_of(reported: Any) -> Usage | None:
    """Reads Anthropic's usage, whose buckets are disjoint already: `input_tokens` excludes the cached ones.

    Returns None if the prompt or the answer was not counted. Raises ContradictoryUsage.

    Alibaba's endpoint includes the cached tokens in `input_tokens`, and also reports them in OpenAI's field.
    """
    if not isinstance(reported, dict) or reported.get("input_tokens") is None or reported.get("output_tokens") is None:
        return None
    write_5m, write_1h, flags = _written(reported)
    uncached, read = count(reported["input_tokens"]), optional_count(reported.get("cache_read_input_tokens"))
    if object_of(reported.get("prompt_tokens_details")).get("cached_tokens") and read:
        uncached, flags = max(0, uncached - read - (write_5m or 0) - (write_1h or 0)), (CACHE_COUNTS_DIFFER,)
    return Usage(
        uncached_prompt=uncached,
        cache_read=read,
        cache_write_5m=write_5m,
        cache_write_1h=write_1h,
        completion=count(reported["output_tokens"]),
        reasoning=optional_count(object_of(reported.get("output_tokens_details")).get("thinking_tokens")),
        flags=flags,
    )


def _written(reported: Mapping[str, Any]) -> tuple[int | None, int | None, tuple[str, ...]]:
    """Returns the tokens written to the cache for 5 minutes and for 1 hour, and a flag if they exceed their total.

    Tokens without a breakdown count as written for the default of 5 minutes. So do the tokens by which the total
    exceeds its parts: during a stream only the total is updated. If the parts exceed the total, the excess is taken off
    the tokens for 1 hour, which cost more.
    """
    total = optional_count(reported.get("cache_creation_input_tokens"))
    parts = reported.get("cache_creation")
    if not isinstance(parts, dict):
        return total, None, ()
    write_5m = optional_count(parts.get("ephemeral_5m_input_tokens"))
    write_1h = optional_count(parts.get("ephemeral_1h_input_tokens"))
    if total is None:
        return write_5m, write_1h, ()
    excess = (write_5m or 0) + (write_1h or 0) - total
    if excess > 0:
        write_1h = None if write_1h is None else max(0, write_1h - excess)
        return total - (write_1h or 0), write_1h, (CACHE_COUNTS_DIFFER,)
    return total - (write_1h or 0), write_1h, ()


def grown_usage(known: Mapping[str, Any], added: Mapping[str, Any]) -> Json:
    """Merges an event's usage into the known one. Nulls change nothing, and counted input does not fall back to 0."""
    reported = extras(added, ())
    if any(known.get(name) for name in INPUT_COUNTS) and not any(reported.get(name) for name in INPUT_COUNTS):
        reported = {name: value for name, value in reported.items() if name not in INPUT_COUNTS}
    return {**known, **reported}


def _message(content: Iterable[Mapping[str, Any]]) -> Json:
    """Turns the blocks into one message. Blocks of server tools, which clients cannot ask for, are left out."""
    texts: list[str] = []
    thoughts: list[Json] = []
    tool_calls: list[Json] = []
    more_fields: Json = {}
    for block in content:
        match block.get("type"):
            case "text":
                texts.append(text_of(block.get("text")))
                _add(more_fields, extras(block, ("type", "text")))
            case "tool_use":
                tool_calls.append(_tool_call(block))
            case "thinking" | "redacted_thinking":
                thoughts.append({"index": len(thoughts), **block})
    text, reasoning = "".join(texts), "".join(text_of(block.get("thinking")) for block in thoughts)
    return {
        **more_fields,
        "role": "assistant",
        "content": text if text or not tool_calls else None,
        **({"reasoning_content": reasoning} if reasoning else {}),
        **({"thinking_blocks": thoughts} if thoughts else {}),
        **({"tool_calls": tool_calls} if tool_calls else {}),
    }


def _add(fields: Json, more: Json) -> None:
    # Several text blocks may have the same field, such as `citations`: lists are joined, else the last value wins.
    for name, value in more.items():
        before = fields.get(name)
        fields[name] = [*before, *value] if isinstance(before, list) and isinstance(value, list) else value


def _tool_call(block: Mapping[str, Any]) -> Json:
    return {
        **extras(block, ("type", "id", "name", "input")),
        "id": block.get("id"),
        "type": "function",
        "function": {"name": block.get("name"), "arguments": arguments_text(block)},
    }


def arguments_text(block: Mapping[str, Any]) -> str:
    """Returns a tool call's input as JSON text. Raises MalformedReply if it is nested too deep to be written."""
    given = block.get("input") or {}
    if isinstance(given, str):  # some upstreams send the text itself
        return given
    try:
        return orjson.dumps(given).decode()
    except orjson.JSONEncodeError:
        raise MalformedReply("called a tool with input that is nested too deeply") from None


@dataclass(slots=True)
class _Block:
    """Holds an open content block. `ordinal` numbers the tool calls.

    `pieces` are the pieces of its text, or of its tool's input, so far.
    """

    content: Json
    ordinal: int = 0
    pieces: list[str] = field(default_factory=list)
    signature: str = ""


class AnthropicDecoder(StreamDecoder):
    """Turns Anthropic's events into the deltas of OpenAI's chunks."""

    __slots__ = (
        "_blocks",
        "_citations",
        "_has_final_usage",
        "_newest",
        "_next_chunk_fields",
        "_next_delta_members",
        "_thoughts",
        "_tools",
        "_usage",
    )
    one_text = re.compile(
        rb'(\{"type": ?"content_block_delta", ?"index": ?\d+, ?"delta": ?\{"type": ?"text_delta", ?"text": ?")[^"\\]+'
        rb'("\} *\})'
    )

    def __init__(self) -> None:
        super().__init__()
        self._blocks: dict[int | None, _Block] = {}  # by the content block's index, which some upstreams leave out
        self._newest: _Block | None = None  # the newest block while it is open; gets pieces with an unknown index
        self._tools = self._thoughts = self._citations = 0
        self._usage: Json = {}  # the usage so far, merged from all events
        self._has_final_usage = False
        self._next_chunk_fields: Json = {}  # fields to add to the next chunk, beside its `choices`
        self._next_delta_members: Json = {}  # members to add to the `delta` of the next chunk's choice

    def read(self, event: Json, data: bytes, out: list[Delta | Note]) -> None:
        """Adds the deltas of an event to `out`. Unknown events are ignored."""
        check_object(event, data)
        kind = event.get("type")
        delta: Delta | None = None
        if kind == "content_block_delta":
            delta = self._read_delta(_number(event), _part(event, "delta", dict))
        elif kind == "content_block_start":
            self._newest = self._blocks[_number(event)] = _Block(_part(event, "content_block", dict))
            delta = self._open_block(self._newest, self._newest.content)
        elif kind == "content_block_stop":
            block = self._blocks.pop(_number(event), self._newest)
            self._newest = None if block is self._newest else self._newest
            delta = self._close_block(block)
        else:
            self._read_framing(event, out)
        if delta is None:
            return
        if self._next_chunk_fields:
            delta.chunk, self._next_chunk_fields = {**self._next_chunk_fields, **delta.chunk}, {}
        last = out[-1] if out else None
        if (
            type(delta) is TextDelta
            and type(last) is TextDelta
            and delta.name == last.name
            and delta.other_members is last.other_members is None
        ):
            last.add(delta.chunk, delta.text)
        else:
            out.append(delta)

    def counted(self, reported: Any) -> tuple[Usage | None, Usage | None]:
        """See `base.StreamDecoder`. The `output_tokens` at the start of a stream are a placeholder."""
        usage = usage_of(reported)
        prompt = None if usage is None else replace(usage, completion=0, reasoning=None)
        return (usage if self._has_final_usage else None), prompt

    def _read_framing(self, event: Json, out: list[Delta | Note]) -> None:
        """Reads an event about the message itself. Null fields of its usage mean that they are unchanged."""
        usage = event.get("usage")
        match event.get("type"):
            case "message_start":
                message = _part(event, "message", dict)
                self._next_chunk_fields |= extras(message, MESSAGE_FIELDS)
                usage = message.get("usage")
            case "message_delta":
                delta = object_of(event.get("delta"))
                self._next_chunk_fields |= extras(event, ("type", "delta", "usage")) | extras(delta, ("stop_reason",))
                self._has_final_usage |= isinstance(usage, dict)
                end = finish_of(0, {"finish_reason": mapped_stop_reason(delta.get("stop_reason"))})
                if isinstance(end, FinishDelta):
                    unended, self._blocks = self._blocks, {}
                    out += filter(None, map(self._close_block, unended.values()))
                    out += self._finish_with_held(end)
                elif end is not None:
                    out.append(end)
            case "message_stop":
                out.append(StreamEnd())
            case _:
                return
        self._report_usage(usage, out)

    def _report_usage(self, usage: Any, out: list[Delta | Note]) -> None:
        if isinstance(usage, dict):
            self._usage = grown_usage(self._usage, usage)
            if self._usage:
                out.append(UsageReport(self._usage))

    def _finish_with_held(self, finish: FinishDelta) -> Iterator[Delta]:
        """Yields the finish, and before it a delta with members that are still held."""
        fields, self._next_chunk_fields = self._next_chunk_fields, {}
        if self._next_delta_members:
            yield self._make_delta(OtherDelta, {})
        finish.chunk |= fields
        yield finish

    def _open_block(self, block: _Block, content: Json) -> Delta | None:
        match content.get("type"):
            case "text":
                self._next_delta_members |= extras(content, ("type", "text", "citations"))
                return self._text_delta("content", content.get("text"))
            case "tool_use":
                block.ordinal, self._tools = self._tools, self._tools + 1
                return self._call_delta(_head_of(block))
            case "redacted_thinking":
                self._hold_item("thinking_blocks", self._numbered_thought(content))
            case "thinking":
                return self._thinking_delta(block, content.get("thinking"))
        return None

    def _read_delta(self, number: int | None, delta: Json) -> Delta | None:
        block = self._blocks.get(number, self._newest)
        match delta.get("type"):
            case "text_delta":
                if len(delta) > 2:
                    self._next_delta_members |= extras(delta, ("type", "text"))
                return self._text_delta("content", delta.get("text"))
            case "input_json_delta" if block is not None and block.content.get("type") == "tool_use":
                return self._arguments_delta(block, text_of(delta.get("partial_json")))
            case "thinking_delta":
                self._next_delta_members |= extras(delta, ("type", "thinking"))
                if block is None:  # some upstreams send no start of a block
                    self._newest = block = self._blocks[number] = _Block({"type": "thinking"})
                return self._thinking_delta(block, delta.get("thinking"))
            case "signature_delta" if block is not None:
                block.signature += text_of(delta.get("signature"))
            case "citations_delta":
                self._hold_item("citations", {"index": self._citations, **_part(delta, "citation", dict)})
                self._citations += 1
        return None

    def _close_block(self, block: _Block | None) -> Delta | None:
        """Ends a block, and returns a tool's input as a delta if it came whole with the block's start.

        A thought and its signature are kept for the next delta.
        """
        if block is None:
            return None
        kind = block.content.get("type")
        if kind == "thinking":
            signature = block.signature or block.content.get("signature") or ""
            self._hold_item(
                "thinking_blocks",
                self._numbered_thought({**block.content, "thinking": "".join(block.pieces), "signature": signature}),
            )
        if kind == "tool_use" and not block.pieces:
            return self._arguments_delta(block, arguments_text(block.content))
        return None

    def _text_delta(self, name: str, text: Any) -> Delta | None:
        return self._make_delta(TextDelta, {name: text}, name, text) if text and isinstance(text, str) else None

    def _thinking_delta(self, block: _Block, text: Any) -> Delta | None:
        block.pieces.append(text_of(text))
        return self._text_delta("reasoning_content", text)

    def _arguments_delta(self, block: _Block, piece: str) -> Delta | None:
        if not piece:
            return None
        block.pieces.append(piece)
        return self._call_delta({"index": block.ordinal, "function": {"arguments": piece}})

    def _call_delta(self, fragment: Json) -> Delta:
        return self._make_delta(CallDelta, {"tool_calls": [fragment]}, fragment)

    def _make_delta(self, kind: type[Kind], members: Json, *rest: Any) -> Kind:
        other_members, self._next_delta_members = self._next_delta_members or None, {}
        return delta_of(kind, 0, members, *rest, other_members=other_members)

    def _numbered_thought(self, block: Json) -> Json:
        thought = {"index": self._thoughts, **block}
        self._thoughts += 1
        return thought

    def _hold_item(self, name: str, item: Json) -> None:
        # Items have an `index`, which clients that put a stream together need to merge lists.
        self._next_delta_members.setdefault(name, []).append(item)


class PassingDecoder(AnthropicDecoder):
    """Passes Anthropic's own events on unchanged, and drops pings."""

    __slots__ = ()

    def read(self, event: Json, data: bytes, out: list[Delta | Note]) -> None:
        check_object(event, data)
        kind = event.get("type")
        if kind == "content_block_delta":
            delta = event["delta"] if isinstance(event.get("delta"), dict) else {}
            name = TEXT_FIELD_OF_DELTA.get(text_of(delta.get("type")), "")
            text, last = delta.get(name), out[-1] if out else None
            if text and isinstance(text, str):
                if type(last) is TextDelta and last.name == name and last.chunk.get("index") == event.get("index"):
                    last.add(event, text)
                else:
                    out.append(TextDelta(event, NO_CHOICE, name, text))
            else:
                out.append(OtherDelta(event, NO_CHOICE))
        elif kind == "message_delta":
            has_ended = object_of(event.get("delta")).get("stop_reason")
            out.append((FinishDelta if has_ended else OtherDelta)(event, NO_CHOICE))
            self._has_final_usage |= isinstance(event.get("usage"), dict)
            self._report_usage(event.get("usage"), out)
        elif kind == "message_stop":
            out.append(StreamEnd())
        elif isinstance(kind, str) and kind != "ping":
            out.append(OtherDelta(event, NO_CHOICE))
            if kind == "message_start":
                self._report_usage(_part(event, "message", dict).get("usage"), out)


def _head_of(block: _Block) -> Json:
    """Returns the first fragment of a tool call, without arguments."""
    content = block.content
    return {
        **extras(content, ("type", "id", "name", "input")),
        "index": block.ordinal,
        "id": content.get("id"),
        "type": "function",
        "function": {"name": content.get("name"), "arguments": ""},
    }


def _number(event: Mapping[str, Any]) -> int | None:
    return None if event.get("index") is None else _part(event, "index", int)


def _part(event: Mapping[str, Any], name: str, kind: type[Part]) -> Part:
    """Returns a required part of an event. Raises MalformedReply if it is missing or of another type."""
    part = event.get(name)
    if not isinstance(part, kind):
        raise MalformedReply(f"sent an event without its {name}")
    return part
