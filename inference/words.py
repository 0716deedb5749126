"""Puts the texts of a message or a delta into the fields that clients know, and counts their bytes."""

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

Json = dict[str, Any]

# Upstreams use one of these names for a chat model's reasoning.
REASONING_FIELDS = ("reasoning_content", "reasoning")
# All fields with reasoning that a message, a delta or a text choice may have.
THOUGHTS = (*REASONING_FIELDS, "reasoning_details", "thinking_blocks")
REASONING_PARTS = ("text", "summary")
# Members of a message that are a text, if present.
TEXT_FIELDS = frozenset({"content", "refusal", *REASONING_FIELDS})
_MAYBE_NUMBERS = ("content", *REASONING_FIELDS)
# The kinds of tool calls, and the field of each that holds the text for the tool.
TOOL_TEXT = {"function": "arguments", "custom": "input"}


def flatten_content(message: Json) -> None:
    """Converts the content of a message or a delta, in place, to the strings that OpenAI's clients expect.

    Content may be an array of blocks (reasoning models of Mistral and Databricks), the object that a client asked for
    as JSON, or a number for a text that looks like one (both Cloudflare). Text becomes `content`, thinking
    `reasoning_content`, for which Copilot has `reasoning_text`, and a refusal `refusal`. Content without text, such as
    references and images, is left out.
    """
    if isinstance(message.get("reasoning_text"), str) and not message.get("reasoning_content"):
        message["reasoning_content"] = message.pop("reasoning_text")
    for name in _MAYBE_NUMBERS:
        if type(message.get(name)) in (int, float):
            message[name] = orjson.dumps(message[name]).decode()
    content = message.get("content")
    if not isinstance(content, list | dict):
        return
    del message["content"]
    texts: dict[str, str] = {}
    for block in content if isinstance(content, list) else [orjson.dumps(content).decode()]:
        field, text = _field_and_text(block)
        if text:
            texts[field] = texts.get(field, "") + text
    for field, text in texts.items():
        # If the upstream has filled the field as well, both hold the same text.
        message[field] = message.get(field) or text


def _field_and_text(block: Any) -> tuple[str, str]:
    """Returns the field of a message that a content block belongs in, and the block's text."""
    if not isinstance(block, dict):
        return "content", text_of(block)
    kind = block.get("type")
    if kind in ("thinking", "reasoning"):
        thinking = block.get("summary" if kind == "reasoning" else "thinking", block.get("text"))
        if isinstance(thinking, list):
            return "reasoning_content", "".join([_field_and_text(part)[1] for part in thinking])
        if isinstance(thinking, str):
            return "reasoning_content", thinking
    elif kind == "refusal" and isinstance(block.get("refusal"), str):
        return "refusal", block["refusal"]
    return "content", text_of(block.get("text"))


def message_bytes(message: Mapping[str, Any]) -> int:
    """Counts the UTF-8 bytes of text in a message or a delta whose tool calls are normalised, for the estimator.

    Reasoning counts once, since some upstreams send it under both names and in parts as well. Audio counts by its
    transcript. Sound, images and encrypted reasoning are not estimated.
    """
    said = thought = 0
    for name, value in message.items():
        if name in TEXT_FIELDS:
            if isinstance(value, str):
                if name in REASONING_FIELDS:
                    thought = max(thought, len(value.encode()))
                else:
                    said += len(value.encode())
        elif name == "tool_calls":
            said += sum(map(call_bytes, value or ()))
        elif name == "reasoning_details":
            thought = max(thought, sum(field_bytes(part, REASONING_PARTS) for part in dicts(value)))
        elif name == "audio":
            said += field_bytes(object_of(value), ("transcript",))
        elif name == "function_call":
            said += field_bytes(object_of(value), ("name", "arguments"))
    return said + thought


def call_bytes(call: Mapping[str, Any]) -> int:
    """Counts the UTF-8 bytes of name and arguments in a normalised tool call or a piece of one, for the estimator."""
    return sum(field_bytes(call[kind], ("name", text)) for kind, text in TOOL_TEXT.items() if kind in call)


def text_of(value: Any) -> str:
    """Returns the value if it is a text, else an empty text."""
    return value if isinstance(value, str) else ""


def without(source: Mapping[str, Any], owned: Iterable[str]) -> Json:
    """Returns the fields of `source` that are not in `owned`."""
    return {name: value for name, value in source.items() if name not in owned}


def object_of(value: Any) -> Json:
    """Returns a copy of the value if it is an object, else an empty object."""
    return dict(value) if isinstance(value, dict) else {}


def field_bytes(source: Mapping[str, Any], fields: Iterable[str]) -> int:
    """Counts the UTF-8 bytes of the texts in these fields, for the estimator."""
    return sum(len(source[name].encode()) for name in fields if isinstance(source.get(name), str))


def calls_in(message: Mapping[str, Any]) -> list[Json]:
    """Returns the tool calls of a message or a delta. Some upstreams send a single call without a list."""
    calls = message.get("tool_calls")
    return [calls] if isinstance(calls, dict) else dicts(calls)


def dicts(value: Any) -> list[Json]:
    """Returns the objects in a value that should be an array of objects."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
