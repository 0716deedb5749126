"""Whole answers, normalised like their streamed form: what we own is set, what we do not know stays.

`logprobs` and a message's `content` and `refusal` are always there, null where the upstream has none: OpenAI's schema
requires them.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from gateway.ids import uuid7

from .chat_chunks import TOOL_TEXT, kind_of, message_bytes
from .chunks import after_calls, dicts, extras_of, finish_reason, object_of, text_finish_reason, without
from .dialects.base import MalformedReply
from .text_chunks import text_bytes

TEXT_OBJECT = "text_completion"


def chat_answer(answer: Mapping[str, Any], *, id: str, created: int, model: str) -> dict[str, Any]:
    """The `chat.completion` object, still without usage and metadata. Raises MalformedReply without choices."""
    own = {"id": id, "object": "chat.completion", "created": created, "model": model}
    choices = [_chat_choice(choice, position) for position, choice in enumerate(_choices_of(answer))]
    return {**extras_of(answer), **own, "choices": choices}


def text_answer(answer: Mapping[str, Any], *, id: str, created: int, model: str) -> dict[str, Any]:
    """The `text_completion` object, as `chat_answer`."""
    own = {"id": id, "object": TEXT_OBJECT, "created": created, "model": model}
    choices = [_text_choice(choice, position) for position, choice in enumerate(_choices_of(answer))]
    return {**extras_of(answer), **own, "choices": choices}


def output_bytes(answer: Mapping[str, Any]) -> int:
    """UTF-8 bytes of the answer's text, reasoning and tool calls, for the estimator."""
    if answer["object"] == TEXT_OBJECT:
        return sum(text_bytes(choice) for choice in answer["choices"])
    return sum(message_bytes(choice["message"]) for choice in answer["choices"])


def _choices_of(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices or not all(isinstance(choice, dict) for choice in choices):
        raise MalformedReply("answered without choices")
    return choices


def _text_choice(choice: Mapping[str, Any], position: int) -> dict[str, Any]:
    text = choice.get("text")
    return {
        "logprobs": None,
        **choice,
        "index": choice["index"] if type(choice.get("index")) is int else position,
        "text": text if isinstance(text, str) else "",
        "finish_reason": text_finish_reason(choice.get("finish_reason")) or "stop",
    }


def _chat_choice(choice: Mapping[str, Any], position: int) -> dict[str, Any]:
    index = choice.get("index")
    message = {"refusal": None, **object_of(choice.get("message")), "role": "assistant"}
    content = message.get("content")
    message["content"] = content if isinstance(content, str) else None
    tool_calls = [_tool_call(tool_call) for tool_call in dicts(message.pop("tool_calls", None))]
    if tool_calls:
        message["tool_calls"] = tool_calls
    return {
        "logprobs": None,
        **choice,
        "index": index if type(index) is int else position,
        "message": message,
        "finish_reason": after_calls(finish_reason(choice.get("finish_reason")) or "stop", tool_calls),
    }


def _tool_call(tool_call: Mapping[str, Any]) -> dict[str, Any]:
    kind = kind_of(tool_call)
    called, text = object_of(tool_call.get(kind)), TOOL_TEXT[kind]
    name, given = called.get("name"), called.get(text)
    if kind == "function":
        given = (given if isinstance(given, str) else orjson.dumps(given or {}).decode()) or "{}"
    return {
        **without(tool_call, {"index"}),
        "id": tool_call.get("id") or f"call_{uuid7().hex}",
        "type": kind,
        kind: {**called, "name": name if isinstance(name, str) else "", text: given if isinstance(given, str) else ""},
    }
