"""A request after validation: what we own, and what the upstream gets as it came."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Shape(StrEnum):
    """The kind of a call, whatever wire form it came in: its body has `messages`, a `prompt`, an `input`, or
    Anthropic's `messages` for an upstream that speaks them."""

    CHAT = "chat"
    COMPLETION = "completion"
    EMBEDDING = "embedding"
    RESPONSES = "responses"
    MESSAGES = "messages"


@dataclass(frozen=True, slots=True)
class Call:
    """One checked inference request.

    `body` goes upstream: OpenAI's words unless its shape has others, without nulls and without what the gateway owns
    (model, stream, caps), which each dialect writes its own way. `max_tokens` caps each choice. `sent` names all fields
    of the client's, `adjusted` those that no upstream gets as they came. `asked` is what the form's answer needs of its
    request. `counts`: only the prompt is to be counted. `as_it_came` is the client's body where `body` is a
    translation.
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
        """Frees the texts, wherever else the call is held; numbers and switches stay."""
        for body in (self.body, self.as_it_came or {}):
            for name, value in list(body.items()):
                if not isinstance(value, int | float):
                    del body[name]


def content_of(message: Mapping[str, Any]) -> Any:
    """A message's content; of an assistant that has none, its refusal."""
    content = message.get("content")
    return content if content or not refuses(message) else message["refusal"]


def refuses(message: Mapping[str, Any]) -> bool:
    """True for an assistant's message with a refusal."""
    refusal = message.get("refusal")
    return message["role"] == "assistant" and isinstance(refusal, str) and bool(refusal)
