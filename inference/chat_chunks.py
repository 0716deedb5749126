"""Chat chunks: `role` once with a choice's first words, tool calls numbered from 0 and named once, arguments whole."""

from collections.abc import Mapping
from typing import Any

import orjson

from gateway.ids import uuid7

from .chunks import REASONING_FIELDS, Choice, Chunks, Tool, bytes_said, dicts, object_of, without

TOOL_FIELDS = frozenset({"index", "id", "type", "function"})
# Text that counts as output in a message or a delta, beside tool calls.
TEXT_FIELDS = frozenset({"content", "refusal", *REASONING_FIELDS})


class ChatChunks(Chunks):
    """The state of one chat stream."""

    object_name = "chat.completion.chunk"

    def _content(self, choice: Mapping[str, Any], known: Choice, finish: str | None) -> tuple[dict[str, Any], int]:
        delta = object_of(choice.get("delta"))
        delta.pop("role", None)
        for name in TEXT_FIELDS & delta.keys():
            if not isinstance(delta[name], str) or not delta[name]:
                del delta[name]
        text_bytes = bytes_said(delta, TEXT_FIELDS)
        tool_calls: list[dict[str, Any]] = []
        if "tool_calls" in delta:
            tool_calls = [_tool_call(fragment, known) for fragment in dicts(delta.pop("tool_calls"))]
            text_bytes += sum(_tool_bytes(fragment) for fragment in tool_calls)
        if finish is not None:
            tool_calls += _missing_arguments(known)
        if tool_calls:
            delta["tool_calls"] = tool_calls
        return delta, text_bytes

    def _worded(self, content: dict[str, Any], known: Choice) -> dict[str, Any]:
        if known.has_role:
            return {"delta": content}
        known.has_role = True
        return {"delta": {"role": "assistant", **content}}

    def _said_nothing(self) -> dict[str, Any]:
        return {"delta": {}}


def _tool_call(fragment: Mapping[str, Any], known: Choice) -> dict[str, Any]:
    key, identity = fragment.get("index"), _text_of(fragment.get("id"))
    if not isinstance(key, int | str):  # some upstreams number nothing: a new id starts a new call
        key = identity or known.last_tool
    known.last_tool = key
    function = object_of(fragment.get("function"))
    arguments = _arguments_of(function.get("arguments"))
    extras = without(fragment, TOOL_FIELDS)
    tool = known.tools.get(key)
    if tool is not None:
        tool.arguments += len(arguments)
        return {**extras, "index": tool.ordinal, "function": {"arguments": arguments}}
    tool = known.tools[key] = Tool(ordinal=len(known.tools), arguments=len(arguments))
    return {
        **extras,
        "index": tool.ordinal,
        "id": identity or f"call_{uuid7().hex}",
        "type": "function",
        "function": {"name": _text_of(function.get("name")), "arguments": arguments},
    }


def _arguments_of(arguments: Any) -> str:
    """Arguments as the fragment of JSON text that they are; some upstreams send the object itself."""
    return orjson.dumps(arguments).decode() if isinstance(arguments, dict) else _text_of(arguments)


def _text_of(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _missing_arguments(known: Choice) -> list[dict[str, Any]]:
    """Arguments must end as JSON: a call that never sent any gets an empty object."""
    return [
        {"index": tool.ordinal, "function": {"arguments": "{}"}} for tool in known.tools.values() if not tool.arguments
    ]


def _tool_bytes(fragment: Mapping[str, Any]) -> int:
    function = fragment["function"]
    return len(function["arguments"].encode()) + len(function.get("name", "").encode())
