"""A request after validation: what we own, and what the upstream gets as it came."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Shape(StrEnum):
    """What kind of call it is, whatever wire form it came in. A chat has `messages`, a completion a `prompt`, an
    embedding an `input`; `messages` is a chat in Anthropic's words, for upstreams that speak them."""

    CHAT = "chat"
    COMPLETION = "completion"
    EMBEDDING = "embedding"
    RESPONSES = "responses"
    MESSAGES = "messages"


@dataclass(frozen=True, slots=True)
class Call:
    """One checked inference request.

    `body` is what the client sent, in OpenAI's words unless its shape has others, without its nulls and without the
    fields that the gateway owns (`model`, `stream`, `stream_options`, the output caps): a dialect adds its own form of
    those. `max_tokens` is the cap, in tokens per choice. `sent` are the names of all the fields that the client sent,
    `adjusted` of those that no upstream gets as they were sent. `headers` go upstream beside the body. `asked` is what
    a wire form keeps of its request for its answer. It `counts` where its prompt is to be counted and nothing more.
    `as_it_came` is the client's body where `body` is a translation of it.
    """

    shape: Shape
    model: str
    body: dict[str, Any]
    stream: bool = False
    include_usage: bool = False
    max_tokens: int | None = None
    choices: int = 1
    sent: frozenset[str] = frozenset()
    adjusted: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    asked: Any = None
    counts: bool = False
    as_it_came: dict[str, Any] | None = None

    def drop_content(self) -> None:
        """Frees what was said, wherever else the call is held; numbers and switches stay."""
        for body in (self.body, self.as_it_came or {}):
            for name, value in list(body.items()):
                if not isinstance(value, int | float):
                    del body[name]


def content_of(message: Mapping[str, Any]) -> Any:
    """What a chat message says: its content, and without any the refusal of an assistant."""
    content = message.get("content")
    return content if content or not refuses(message) else message["refusal"]


def refuses(message: Mapping[str, Any]) -> bool:
    """Whether an assistant refused in it."""
    refusal = message.get("refusal")
    return message["role"] == "assistant" and isinstance(refusal, str) and bool(refusal)
