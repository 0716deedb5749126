"""A request after validation: what we own, and what the upstream gets as it came."""

from dataclasses import dataclass
from typing import Any

from billing.models import Generation

Endpoint = Generation.Endpoint


@dataclass(frozen=True, slots=True)
class Call:
    """One checked inference request.

    `body` is what the client sent without its nulls and without the fields that the gateway owns (`model`, `stream`,
    `stream_options`, the output caps): a dialect adds its own form of those. `max_tokens` is the cap, in tokens per
    choice. `sent` are the names of all the fields that the client sent.
    """

    endpoint: Generation.Endpoint
    model: str
    body: dict[str, Any]
    stream: bool = False
    include_usage: bool = False
    max_tokens: int | None = None
    choices: int = 1
    sent: frozenset[str] = frozenset()
