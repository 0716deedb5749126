"""Recomputes what a recorded answer costs, in plain Decimal, from the usage that its provider reported.

The rules are in docs/api.md#cost and docs/providers.md#usage. None of the product's code is used.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from tests.replay import site
from tests.replay.recordings import Json, Recording
from tests.replay.site import PRICES

TEN_DIGITS = Decimal("1E-10")
MILLION = 1_000_000
# Some providers report the cached tokens under one of these names, next to the counts.
CACHED = ("cached_tokens", "num_cached_tokens", "prompt_cache_hit_tokens")


@dataclass(frozen=True, slots=True)
class Tokens:
    """Holds disjoint buckets; `reasoning` is part of the completion. None means that a count was not reported."""

    uncached: int
    read: int | None = None
    written: int | None = None
    written_1h: int | None = None
    completion: int = 0
    reasoning: int | None = None
    flags: frozenset[str] = frozenset()  # flags for contradictions in the usage

    @property
    def prompt(self) -> int:
        return self.uncached + (self.read or 0) + (self.written or 0) + (self.written_1h or 0)


def cost(tokens: Tokens) -> Decimal:
    """Returns the cost in EUR: prompt and completion are rounded once each."""
    prompt = (
        tokens.uncached * PRICES["prompt"]
        + (tokens.read or 0) * PRICES["cache_read"]
        + (tokens.written or 0) * PRICES["cache_write"]
        + (tokens.written_1h or 0) * PRICES["cache_write_1h"]
    )
    completion = tokens.completion * PRICES["completion"]
    return (prompt / MILLION).quantize(TEN_DIGITS) + (completion / MILLION).quantize(TEN_DIGITS)


def tokens_of(recording: Recording, usage: Any) -> Tokens | None:
    """Returns the buckets of a reported usage, or None if it does not count both the prompt and the answer."""
    if not isinstance(usage, dict):
        return None
    match recording.api:
        case "messages":
            return _of_messages(usage)
        case "embeddings":
            # An embedding has only prompt tokens, under either name.
            prompt = usage.get("prompt_tokens", usage.get("total_tokens"))
            return None if prompt is None else _prompt(usage, prompt)
        case "responses":
            usage = {
                "prompt_tokens": usage.get("input_tokens"),
                "completion_tokens": usage.get("output_tokens"),
                "total_tokens": usage.get("total_tokens"),
                "prompt_tokens_details": usage.get("input_tokens_details"),
                "completion_tokens_details": usage.get("output_tokens_details"),
            }
    return _of_chat(usage, site.TOTAL_INCLUDES.get(recording.provider))


def _of_chat(usage: Json, total_includes: str | None) -> Tokens | None:
    prompt, completion, total = (usage.get(f"{name}_tokens") for name in ("prompt", "completion", "total"))
    if completion is None and total == prompt:
        completion = 0  # the model wrote nothing, so there is nothing to count
    if prompt is None or completion is None:
        return None
    tokens = _prompt(usage, prompt)
    reasoning = _object(usage.get("completion_tokens_details")).get("reasoning_tokens")
    beyond = (total or 0) - prompt - completion
    # Reasoning is part of the completion, unless the total shows that it was added on top.
    if reasoning and beyond == reasoning:
        completion += beyond
    elif total_includes == "total_includes_reasoning" and beyond > 0:
        completion, reasoning = completion + beyond, (reasoning or 0) + beyond
    elif total_includes == "total_includes_audio_prompts" and beyond > 0:
        audio = _object(usage.get("prompt_tokens_details")).get("audio_tokens")
        tokens = replace(tokens, uncached=tokens.uncached + (beyond if beyond == audio else 0))
    elif beyond and total is not None:
        tokens = replace(tokens, flags=tokens.flags | {"total_mismatch"})
    return replace(tokens, completion=completion, reasoning=reasoning)


def _prompt(usage: Json, prompt: int) -> Tokens:
    """Returns the prompt's buckets. If more tokens are reported as cached than the prompt has, none count as cached."""
    details = _object(usage.get("prompt_tokens_details"))
    read = details.get("cached_tokens")
    for name in CACHED:
        read = usage.get(name) if read is None else read
    written = details.get("cache_write_tokens")
    uncached = prompt - (read or 0) - (written or 0)
    return Tokens(uncached, read, written) if uncached >= 0 else Tokens(prompt, flags=frozenset({"cache_mismatch"}))


def _of_messages(usage: Json) -> Tokens | None:
    if usage.get("input_tokens") is None or usage.get("output_tokens") is None:
        return None
    written, parts = usage.get("cache_creation_input_tokens"), usage.get("cache_creation")
    written_1h = None
    if isinstance(parts, dict):
        # The parts are reported only at the start. What the total adds later was written for the usual five minutes.
        written_1h = parts.get("ephemeral_1h_input_tokens")
        in_parts = parts.get("ephemeral_5m_input_tokens")
        written = max(in_parts or 0, (written or 0) - (written_1h or 0)) if written is not None else in_parts
    return Tokens(
        usage["input_tokens"],
        usage.get("cache_read_input_tokens"),
        written,
        written_1h,
        usage["output_tokens"],
        _object(usage.get("output_tokens_details")).get("thinking_tokens"),
    )


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
