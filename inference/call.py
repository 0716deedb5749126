"""Defines `Call`: a checked request. Its body is sent on, and the fields that the gateway owns are separate from it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Any


class Shape(StrEnum):
    """Names the shape of a call's body, whichever API the client speaks.

    A chat has `messages`, a completion a `prompt`, an embedding and a response an `input`; MESSAGES is Anthropic's API
    for an upstream that speaks it.
    """

    CHAT = "chat"
    COMPLETION = "completion"
    EMBEDDING = "embedding"
    RESPONSES = "responses"
    MESSAGES = "messages"


@dataclass(frozen=True, slots=True)
class Call:
    """Holds one checked inference request.

    - `body` goes upstream, in the API of its `shape`. It has no nulls and none of the fields that the gateway owns
      (model, stream, caps), which each dialect writes in its own way.
    - `max_tokens` caps each choice.
    - `max_cost` is the most that the client lets the request cost, in its account's currency.
    - `sent_fields` names all fields that the client sent, `adjusted_fields` those that are changed or dropped for every
      upstream.
    - `form_state` is what the wire form needs of its request to write the answer.
    - `is_count` means that only the prompt's tokens are counted.
    - `original_body` is the client's body if `body` is a translation of it.
    """

    shape: Shape
    model: str
    body: dict[str, Any]
    stream: bool = False
    include_usage: bool = False
    max_tokens: int | None = None
    max_cost: Decimal | None = None
    choices: int = 1
    sent_fields: frozenset[str] = frozenset()
    adjusted_fields: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    form_state: Any = None
    is_count: bool = False
    original_body: dict[str, Any] | None = None

    def drop_content(self) -> None:
        """Deletes everything but numbers and booleans from the bodies, which frees them for all holders of the call."""
        for body in (self.body, self.original_body or {}):
            for name, value in list(body.items()):
                if not isinstance(value, int | float):
                    del body[name]


def content_of(message: Mapping[str, Any]) -> Any:
    """Returns a message's content, or the refusal of an assistant's message without content."""
    content = message.get("content")
    return content if content or not has_refusal(message) else message["refusal"]


def has_refusal(message: Mapping[str, Any]) -> bool:
    """Tells whether this is an assistant's message with a refusal."""
    refusal = message.get("refusal")
    return message["role"] == "assistant" and isinstance(refusal, str) and bool(refusal)
