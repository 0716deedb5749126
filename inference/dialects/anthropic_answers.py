"""Anthropic's answers in OpenAI's shape: content blocks, stop reasons, usage. The stream shares the rules.

What a message says beyond what OpenAI has a name for (`stop_sequence`, `container`, …) stays where it was, at the top
level. Signed thinking is kept whole in `thinking_blocks`, so that it can come back unmodified (`anthropic_messages`).
"""

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from catalogue.pricing import Usage

from .base import MalformedReply
from .common import count, optional_count

Json = dict[str, Any]

STOP_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
MESSAGE_FIELDS = frozenset({"id", "type", "role", "model", "content", "stop_reason", "usage"})


def answer_of(message: Mapping[str, Any]) -> Json:
    """A whole message as a chat completion. Raises MalformedReply where it has no content."""
    content = message.get("content")
    if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
        raise MalformedReply("answered without content")
    finish = finish_reason(message.get("stop_reason"))
    return {
        **extras(message, MESSAGE_FIELDS),
        "id": message.get("id"),
        "object": "chat.completion",
        "model": message.get("model"),
        "choices": [{"index": 0, "message": _message(content), "finish_reason": finish}],
    }


def finish_reason(reported: Any) -> str | None:
    """OpenAI's reason; an unknown one counts as `stop`. None while there is none."""
    return STOP_REASONS.get(reported, "stop") if isinstance(reported, str) and reported else None


def extras(source: Mapping[str, Any], known: Iterable[str]) -> Json:
    """The fields that are not known here and say something."""
    return {name: value for name, value in source.items() if name not in known and value is not None}


def usage_of(reported: Any) -> Usage | None:
    """Anthropic's usage, whose buckets are disjoint already: `input_tokens` excludes the cached ones.

    None where the prompt or the answer was not counted. Raises ContradictoryUsage.
    """
    if not isinstance(reported, dict) or reported.get("input_tokens") is None or reported.get("output_tokens") is None:
        return None
    write_5m, write_1h = _written(reported)
    return Usage(
        uncached_prompt=count(reported["input_tokens"]),
        cache_read=optional_count(reported.get("cache_read_input_tokens")),
        cache_write_5m=write_5m,
        cache_write_1h=write_1h,
        completion=count(reported["output_tokens"]),
        reasoning=optional_count(_object(reported.get("output_tokens_details")).get("thinking_tokens")),
    )


def _written(reported: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Tokens written to the cache for 5 minutes and for 1 hour.

    Without the breakdown all are of the default, 5 minutes. So is what a total has beyond the parts: they are reported
    at the start only, the total may have grown since. A total below its parts is not believed.
    """
    total = optional_count(reported.get("cache_creation_input_tokens"))
    parts = reported.get("cache_creation")
    if not isinstance(parts, dict):
        return total, None
    write_5m = optional_count(parts.get("ephemeral_5m_input_tokens"))
    write_1h = optional_count(parts.get("ephemeral_1h_input_tokens"))
    if total is not None:
        write_5m = max(write_5m or 0, total - (write_1h or 0))
    return write_5m, write_1h


def _message(content: Iterable[Mapping[str, Any]]) -> Json:
    """The blocks as one message. Blocks of kinds that OpenAI does not have, and nobody can ask for, are left out."""
    texts: list[str] = []
    thoughts: list[Json] = []
    tool_calls: list[Json] = []
    said: Json = {}
    for block in content:
        match block.get("type"):
            case "text":
                texts.append(_text(block, "text"))
                _add(said, extras(block, ("type", "text")))
            case "tool_use":
                tool_calls.append(_tool_call(block))
            case "thinking" | "redacted_thinking":
                thoughts.append({"index": len(thoughts), **block})
    text, reasoning = "".join(texts), "".join(_text(block, "thinking") for block in thoughts)
    return {
        **said,
        "role": "assistant",
        "content": text if text or not tool_calls else None,
        **({"reasoning_content": reasoning} if reasoning else {}),
        **({"thinking_blocks": thoughts} if thoughts else {}),
        **({"tool_calls": tool_calls} if tool_calls else {}),
    }


def _add(said: Json, more: Json) -> None:
    """What several blocks of text say beside it (`citations`): lists join, else the last wins."""
    for name, value in more.items():
        before = said.get(name)
        said[name] = [*before, *value] if isinstance(before, list) and isinstance(value, list) else value


def _tool_call(block: Mapping[str, Any]) -> Json:
    return {
        **extras(block, ("type", "id", "name", "input")),
        "id": block.get("id"),
        "type": "function",
        "function": {"name": block.get("name"), "arguments": arguments_of(block)},
    }


def arguments_of(block: Mapping[str, Any]) -> str:
    """A tool call's input as JSON text. Raises MalformedReply where it is nested deeper than can be written."""
    try:
        return orjson.dumps(block.get("input") or {}).decode()
    except orjson.JSONEncodeError:
        raise MalformedReply("called a tool with input that is nested too deeply") from None


def _text(block: Mapping[str, Any], name: str) -> str:
    text = block.get(name)
    return text if isinstance(text, str) else ""


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
