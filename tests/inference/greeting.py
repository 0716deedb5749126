"""Sends `hello there` with the official client, and checks the answer by docs/api.md."""

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # importing the client takes most of a second
    from openai.types.chat import (
        ChatCompletionFunctionToolParam,
        ChatCompletionMessageParam,
        ChatCompletionStreamOptionsParam,
    )

Json = dict[str, Any]

GENERATION_ID = re.compile(r"gen-[0-9a-f]{32}")
ECHO = "sim/test/echo"
HI: "list[ChatCompletionMessageParam]" = [{"role": "user", "content": "hello there"}]
ASK_FOR_USAGE: "ChatCompletionStreamOptionsParam" = {"include_usage": True}
WEATHER: "ChatCompletionFunctionToolParam" = {"type": "function", "function": {"name": "weather", "parameters": {}}}
CLOCK: "ChatCompletionFunctionToolParam" = {"type": "function", "function": {"name": "clock", "parameters": {}}}

USAGE: Json = {
    "prompt_tokens": 2,
    "completion_tokens": 2,
    "total_tokens": 4,
    "cost": 0.0000036,
    "remaining_balance": 99.9999964,
    "currency": "EUR",
    "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
}
METADATA: Json = {
    "provider": "sim",
    "region": "FRPAR",
    "energy_wh": 0.0008,
    "energy_source": "modelled",
    "carbon_gco2e": 0.0000352,
    "carbon_intensity_gco2_per_kwh": 44,
    "grid_kind": "annual",
    "grid_source": "A table",
    "grid_as_of": "2025-09-08",
    "routing_mode": "explicit",
    "fallback_occurred": False,
    "providers_attempted": ["sim"],
    "cache_read_tokens": 0,
}


def reports(chunk: Json) -> tuple[Json, Json]:
    """Returns usage and metadata of an answer or a last chunk; the method's wording is for people and not compared."""
    metadata = dict(chunk["gateway_metadata"])
    assert metadata.pop("estimation_methodology")
    return chunk["usage"], metadata
