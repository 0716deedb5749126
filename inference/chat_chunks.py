"""Chat chunks: `role` once with a choice's first words, tool calls numbered from 0 and named once, arguments whole."""

from collections.abc import Mapping
from typing import Any

import orjson

from gateway.ids import uuid7

from .chunks import REASONING_FIELDS, Choice, Chunks, Tool, bytes_said, bytes_thought, dicts, object_of, without

TOOL_FIELDS = frozenset({"index", "id", "type", "function", "custom"})
# Members of a delta that are text or nothing.
TEXT_FIELDS = frozenset({"content", "refusal", *REASONING_FIELDS})
# Kinds of tool calls, and what the piece of text that a call brings its tool is named.
TOOL_TEXT = {"function": "arguments", "custom": "input"}


class ChatChunks(Chunks):
    """The state of one chat stream."""

    object_name = "chat.completion.chunk"

    def _content(self, choice: Mapping[str, Any], known: Choice, finish: str | None) -> tuple[dict[str, Any], int]:
        delta = {
            name: value
            for name, value in object_of(choice.get("delta")).items()
            if value is not None and name != "role" and (name not in TEXT_FIELDS or (isinstance(value, str) and value))
        }
        if "tool_calls" in delta:
            delta["tool_calls"] = [_tool_call(fragment, known) for fragment in dicts(delta["tool_calls"])]
        text_bytes = message_bytes(delta)
        if finish is not None:
            delta["tool_calls"] = [*delta.get("tool_calls", ()), *_missing_arguments(known)]
        if not delta.get("tool_calls", True):
            del delta["tool_calls"]
        return delta, text_bytes

    def _worded(self, content: dict[str, Any], known: Choice) -> dict[str, Any]:
        if known.has_role:
            return {"delta": content}
        known.has_role = True
        return {"delta": {"role": "assistant", **content}}

    def _said_nothing(self) -> dict[str, Any]:
        return {"delta": {}}


def _tool_call(fragment: Mapping[str, Any], known: Choice) -> dict[str, Any]:
    """The fragment of a call as clients know it: named once, numbered without a gap."""
    key, identity = fragment.get("index"), _text_of(fragment.get("id"))
    if not isinstance(key, int | str):  # some upstreams number nothing: a new id starts a new call
        key = identity or known.last_tool
    known.last_tool = key
    begun = known.tools.get(key)
    tool = begun or Tool(ordinal=len(known.tools), kind=kind_of(fragment))
    called, text = object_of(fragment.get(tool.kind)), TOOL_TEXT[tool.kind]
    piece = _arguments_of(called.get(text))
    tool.arguments += len(piece)
    extras = without(fragment, TOOL_FIELDS)
    if begun is not None:
        return {**extras, "index": tool.ordinal, tool.kind: {text: piece}}
    known.tools[key] = tool
    return {
        **extras,
        "index": tool.ordinal,
        "id": identity or f"call_{uuid7().hex}",
        "type": tool.kind,
        tool.kind: {"name": _text_of(called.get("name")), text: piece},
    }


def kind_of(tool_call: Mapping[str, Any]) -> str:
    """`custom` or `function`, as which any other counts."""
    return "custom" if tool_call.get("type") == "custom" else "function"


def message_bytes(said: Mapping[str, Any]) -> int:
    """UTF-8 bytes of what a message or a delta says in words, its tool calls normalised, for the estimator.

    Of audio it is the transcript; what is in no words (sound, images, encrypted reasoning) is not estimated.
    """
    text_bytes = bytes_said(said, ("content", "refusal"))
    if len(said) == 1 and text_bytes:  # as in most deltas
        return text_bytes
    return (
        text_bytes
        + bytes_thought(said)
        + bytes_said(object_of(said.get("audio")), ("transcript",))
        + bytes_said(object_of(said.get("function_call")), ("name", "arguments"))
        + sum(
            bytes_said(call[kind], ("name", text))
            for call in said.get("tool_calls") or ()
            for kind, text in TOOL_TEXT.items()
            if kind in call
        )
    )


def _arguments_of(arguments: Any) -> str:
    """Arguments as the fragment of JSON text that they are; some upstreams send the object itself."""
    return orjson.dumps(arguments).decode() if isinstance(arguments, dict) else _text_of(arguments)


def _text_of(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _missing_arguments(known: Choice) -> list[dict[str, Any]]:
    """Arguments must end as JSON: a call of a function that never sent any gets an empty object."""
    return [
        {"index": tool.ordinal, "function": {"arguments": "{}"}}
        for tool in known.tools.values()
        if tool.kind == "function" and not tool.arguments
    ]
