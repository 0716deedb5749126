"""The words of a message or a delta: in the strings that clients know, and counted for the estimator."""

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

Json = dict[str, Any]

# A chat model's reasoning comes under either name.
REASONING_FIELDS = ("reasoning_content", "reasoning")
# All that a message, a delta or a text choice may have of it.
THOUGHTS = (*REASONING_FIELDS, "reasoning_details", "thinking_blocks")
REASONING_PARTS = ("text", "summary")
# Members of a message that are text or nothing.
TEXT_FIELDS = frozenset({"content", "refusal", *REASONING_FIELDS})
_MAYBE_NUMBERS = ("content", *REASONING_FIELDS)
# Kinds of tool calls, and what the piece of text that a call brings its tool is named.
TOOL_TEXT = {"function": "arguments", "custom": "input"}


def flatten_content(message: Json) -> None:
    """Puts content that is no string into the strings that OpenAI's clients know, in a message or a delta.

    It is an array of blocks, as from the reasoning models of Mistral and Databricks, or JSON that was asked for as an
    object, or a number for a text that looks like one (both Cloudflare). Text becomes `content`, thinking
    `reasoning_content`, which Copilot calls `reasoning_text`, and a refusal `refusal`. What is said in no words
    (references, images) is left out.
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
        # An upstream that fills the field as well says the same in two ways.
        message[field] = message.get(field) or text


def _field_and_text(block: Any) -> tuple[str, str]:
    """What a block of content says, and the field of a message that it belongs in."""
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
    """UTF-8 bytes of what a message or a delta says in words, its tool calls normalised, for the estimator.

    Reasoning counts once: some upstreams say the same under both names, and in parts as well. Of audio it is the
    transcript; what is in no words (sound, images, encrypted reasoning) is not estimated.
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
    """UTF-8 bytes of the name and the text of a normalised tool call, or of a piece of one, for the estimator."""
    return sum(field_bytes(call[kind], ("name", text)) for kind, text in TOOL_TEXT.items() if kind in call)


def text_of(value: Any) -> str:
    """The text, where it is one; an empty one else."""
    return value if isinstance(value, str) else ""


def without(source: Mapping[str, Any], owned: Iterable[str]) -> Json:
    """The fields of `source` that are not in `owned`."""
    return {name: value for name, value in source.items() if name not in owned}


def object_of(value: Any) -> Json:
    """What should be an object, to change; an empty one where an upstream has something else in its place."""
    return dict(value) if isinstance(value, dict) else {}


def field_bytes(source: Mapping[str, Any], fields: Iterable[str]) -> int:
    """UTF-8 bytes of the text in these fields, for the estimator."""
    return sum(len(source[name].encode()) for name in fields if isinstance(source.get(name), str))


def calls_in(message: Mapping[str, Any]) -> list[Json]:
    """The tool calls of a message or a delta. Some upstreams send the only one without a list around it."""
    calls = message.get("tool_calls")
    return [calls] if isinstance(calls, dict) else dicts(calls)


def dicts(value: Any) -> list[Json]:
    """The objects in what should be an array of them."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
