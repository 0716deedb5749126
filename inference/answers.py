"""Whole answers, normalised like their streamed form: what we own is set, what we do not know stays."""

from collections.abc import Mapping
from typing import Any

import orjson

from gateway.ids import uuid7

from .chat_chunks import TEXT_FIELDS
from .chunks import bytes_said, dicts, finish_reason, object_of, text_finish_reason
from .dialects.base import MalformedReply
from .text_chunks import SPOKEN

TEXT_OBJECT = "text_completion"


def chat_answer(answer: Mapping[str, Any], *, id: str, created: int, model: str) -> dict[str, Any]:
    """The spec's `chat.completion` object, still without usage and metadata. Raises MalformedReply without choices."""
    own = {"id": id, "object": "chat.completion", "created": created, "model": model}
    choices = [_chat_choice(choice, position) for position, choice in enumerate(_choices_of(answer))]
    return {**answer, **own, "choices": choices}


def text_answer(answer: Mapping[str, Any], *, id: str, created: int, model: str) -> dict[str, Any]:
    """The spec's `text_completion` object, as `chat_answer`."""
    own = {"id": id, "object": TEXT_OBJECT, "created": created, "model": model}
    choices = [_text_choice(choice, position) for position, choice in enumerate(_choices_of(answer))]
    return {**answer, **own, "choices": choices}


def output_bytes(answer: Mapping[str, Any]) -> int:
    """UTF-8 bytes of the answer's text, reasoning and tool calls, for the estimator."""
    if answer["object"] == TEXT_OBJECT:
        return sum(bytes_said(choice, SPOKEN) for choice in answer["choices"])
    return sum(_message_bytes(choice["message"]) for choice in answer["choices"])


def _choices_of(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices or not all(isinstance(choice, dict) for choice in choices):
        raise MalformedReply("answered without choices")
    return choices


def _text_choice(choice: Mapping[str, Any], position: int) -> dict[str, Any]:
    text = choice.get("text")
    return {
        **choice,
        "index": choice["index"] if type(choice.get("index")) is int else position,
        "text": text if isinstance(text, str) else "",
        "finish_reason": text_finish_reason(choice.get("finish_reason")),
    }


def _chat_choice(choice: Mapping[str, Any], position: int) -> dict[str, Any]:
    index = choice.get("index")
    message = object_of(choice.get("message"))
    message["role"] = "assistant"
    message.setdefault("content", None)
    tool_calls = dicts(message.pop("tool_calls", None))
    if tool_calls:
        message["tool_calls"] = [_tool_call(tool_call) for tool_call in tool_calls]
    return {
        **choice,
        "index": index if type(index) is int else position,
        "message": message,
        "finish_reason": finish_reason(choice.get("finish_reason")),
    }


def _tool_call(tool_call: Mapping[str, Any]) -> dict[str, Any]:
    function = object_of(tool_call.get("function"))
    name, arguments = function.get("name"), function.get("arguments")
    if not isinstance(arguments, str):
        arguments = orjson.dumps(arguments or {}).decode()
    return {
        **{name: value for name, value in tool_call.items() if name != "index"},
        "id": tool_call.get("id") or f"call_{uuid7().hex}",
        "type": "function",
        "function": {**function, "name": name if isinstance(name, str) else "", "arguments": arguments or "{}"},
    }


def _message_bytes(message: Mapping[str, Any]) -> int:
    calls = message.get("tool_calls") or []
    return bytes_said(message, TEXT_FIELDS) + sum(
        len(call["function"]["name"].encode()) + len(call["function"]["arguments"].encode()) for call in calls
    )
