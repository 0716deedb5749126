"""Sorts the usage that OpenAI's API and similar servers report into the buckets that are billed."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from catalogue.pricing import AUDIO_PROMPTS, CACHE_COUNTS_DIFFER, CACHE_MISMATCH, REASONING, TOTAL_MISMATCH, Usage

from ..words import dicts, object_of, without
from .base import NOTHING, count, optional_count

NAMES_IN_RESPONSES_API = {
    "prompt_tokens": "input_tokens",
    "completion_tokens": "output_tokens",
    "total_tokens": "total_tokens",
    "prompt_tokens_details": "input_tokens_details",
    "completion_tokens_details": "output_tokens_details",
}
# Other names for a prompt's cache hits, at the top level: Moonshot's, Mistral's, DeepSeek's and Anthropic's.
CACHE_HITS = frozenset({"cached_tokens", "num_cached_tokens", "prompt_cache_hit_tokens", "cache_read_input_tokens"})
# Names for tokens written to the cache, in a prompt's details.
WRITE_TOTALS = ("cache_write_tokens", "cache_creation_tokens", "cached_creation_tokens")
WRITE_NAMES = frozenset({*WRITE_TOTALS, "cache_creation_input_tokens", "cache_creation_token_details"})
CACHE_COUNTS_OF_MESSAGES_API = ("cache_read_input_tokens", "cache_creation_input_tokens")
DETAILS = ("prompt_tokens_details", "completion_tokens_details")
OF_A_PROMPT = ("prompt_tokens", "prompt_tokens_details", "cache_creation_input_tokens", "cache_creation", *CACHE_HITS)


def usage_of(reported: Any, total_includes: Collection[str] = NOTHING) -> Usage | None:
    """Returns OpenAI's usage in disjoint buckets: its `prompt_tokens` include tokens read from and written to a cache.

    A list holds the usage of each choice: the prompt is the same, and the completions are summed. Reasoning is part of
    the completion, unless `total_tokens` shows that it is counted in addition (xAI). `total_includes` names what only
    the total counts: audio of the prompt (Mistral) or reasoning (Gemini).

    Returns None if the count of the prompt or of the completion is missing, except that a missing completion is 0 if
    the total equals the prompt. Raises ContradictoryUsage.
    """
    if isinstance(reported, list):
        return _sum_of_choices([usage_of(each, total_includes) for each in reported])
    reported = _as_of_chat(reported)
    prompt = prompt_usage_of(reported)
    if prompt is None:
        return None
    total = reported.get("total_tokens")
    if reported.get("completion_tokens") is None and (type(total) is not int or total != prompt.prompt):
        return None
    completion = optional_count(reported.get("completion_tokens")) or 0  # some upstreams leave a zero out
    reasoning = optional_count(_details(reported, "completion_tokens_details").get("reasoning_tokens"))
    counted = Usage(
        prompt.uncached_prompt,
        prompt.cache_read,
        prompt.cache_write_5m,
        prompt.cache_write_1h,
        completion,
        reasoning,
        prompt.flags,
    )
    uncounted = total - counted.total if type(total) is int else 0
    return _with_uncounted(counted, uncounted, reported, total_includes) if uncounted else counted


def _with_uncounted(counted: Usage, uncounted: int, reported: dict[str, Any], total_includes: Collection[str]) -> Usage:
    """Adds tokens that only the reported total counts (`uncounted`) to a bucket, or flags the usage: see `usage_of`."""
    if uncounted == counted.reasoning:
        return replace(counted, completion=counted.completion + uncounted)
    if AUDIO_PROMPTS in total_includes and uncounted == _details(reported, "prompt_tokens_details").get("audio_tokens"):
        return replace(counted, uncached_prompt=count(counted.uncached_prompt + uncounted))
    if REASONING in total_includes and uncounted > 0:
        reasoning = (counted.reasoning or 0) + uncounted
        return replace(counted, completion=count(counted.completion + uncounted), reasoning=reasoning)
    return replace(counted, flags=(*counted.flags, TOTAL_MISMATCH))


def prompt_usage_of(reported: Any) -> Usage | None:
    """Returns the prompt's part of a usage, which for an embedding is all of it. Raises ContradictoryUsage."""
    if isinstance(reported, list):
        return next(filter(None, map(prompt_usage_of, reported)), None)
    reported = _as_of_chat(reported)
    if not isinstance(reported, dict) or reported.get("prompt_tokens") is None:
        return None
    prompt = count(reported["prompt_tokens"])
    details = _details(reported, "prompt_tokens_details")
    cache_read, flags = _cache_read(reported, details)
    written_5m, written_1h = _written(reported, details)
    uncached = prompt - (cache_read or 0) - (written_5m or 0) - (written_1h or 0)
    if uncached < 0:
        return Usage(prompt, flags=(CACHE_MISMATCH,))
    return Usage(uncached, cache_read, written_5m, written_1h, flags=flags)


def _cache_read(reported: dict[str, Any], details: dict[str, Any]) -> tuple[int | None, tuple[str, ...]]:
    """Returns the tokens read from the cache, and a flag if the details have 0 but another name has more."""
    read = optional_count(details.get("cached_tokens"))
    if CACHE_HITS.isdisjoint(reported):
        return read, ()
    hits = [count(reported[name]) for name in CACHE_HITS if type(reported.get(name)) is int]
    if not hits:
        return read, ()
    differs = read == 0 and max(hits) > 0
    return max(hits) if read is None or differs else read, (CACHE_COUNTS_DIFFER,) if differs else ()


def _written(reported: dict[str, Any], details: dict[str, Any]) -> tuple[int | None, int | None]:
    """Returns the tokens written to the cache for 5 minutes and for an hour, under any of the names in use."""
    if WRITE_NAMES.isdisjoint(details) and WRITE_NAMES.isdisjoint(reported):
        return None, None
    named = (details.get(name) for name in WRITE_TOTALS if name in details)
    total = optional_count(next(named, reported.get("cache_creation_input_tokens")))
    parts = details.get("cache_creation_token_details", reported.get("cache_creation"))
    for_1h = optional_count(parts.get("ephemeral_1h_input_tokens")) if isinstance(parts, dict) else None
    if for_1h is None or total is None:
        return total, None
    return max(0, total - for_1h), min(total, for_1h)


def _as_of_chat(reported: Any) -> Any:
    """Renames the counts of the Responses API, or of Messages through a relay, to the names of chat completions."""
    if not isinstance(reported, dict) or "input_tokens" not in reported or reported.get("prompt_tokens"):
        return reported
    if "prompt_tokens" in reported and not reported["input_tokens"]:
        return reported
    chat = {name: reported[there] for name, there in NAMES_IN_RESPONSES_API.items() if there in reported}
    cached = {name: reported[name] for name in CACHE_COUNTS_OF_MESSAGES_API if type(reported.get(name)) is int}
    if cached and type(chat["prompt_tokens"]) is int:
        # The `input_tokens` of Messages exclude tokens read from the cache and written to it.
        total = chat["prompt_tokens"] + sum(cached.values())
        return {**without(chat, ("total_tokens",)), **cached, "prompt_tokens": total}
    return chat


def _sum_of_choices(counted: list[Usage | None]) -> Usage | None:
    """Returns the usage of all choices, or None if one of them was not counted."""
    usages = [usage for usage in counted if usage is not None]
    if len(usages) < len(counted) or not usages:
        return None
    reasoning = [usage.reasoning for usage in usages if usage.reasoning is not None]
    return replace(
        max(usages, key=lambda usage: usage.prompt),
        completion=sum(usage.completion for usage in usages),
        reasoning=sum(reasoning) if reasoning else None,
        flags=tuple(dict.fromkeys(flag for usage in usages for flag in usage.flags)),
    )


def usage_within(answer: Mapping[str, Any]) -> Any:
    """Returns a usage that is not at the top level: in Groq's `x_groq`, or in the choices (Moonshot).

    The usages of several choices are returned as a list. Returns None if there is no usage.
    """
    of_groq = object_of(answer.get("x_groq")).get("usage")
    if of_groq is not None:
        return of_groq
    of_choices = [each["usage"] for each in dicts(answer.get("choices")) if each.get("usage") is not None]
    return of_choices if len(of_choices) > 1 else next(iter(of_choices), None)


def completed_usage(reported: Any, earlier: Sequence[Any]) -> Any:
    """Fills gaps in `reported`, the last usage of a stream, from the `earlier` ones, which are ordered newest first.

    Counts only grow during a stream. Some upstreams send a prompt's details only once, and some count the prompt only
    in their first chunk.
    """
    if not isinstance(reported, dict):
        return reported
    others = [each for each in earlier if isinstance(each, dict) and each.get("prompt_tokens")]
    prompt = reported.get("prompt_tokens")
    if prompt == 0 and others:
        last = others[0]
        completions = [each.get("completion_tokens") for each in (reported, last)]
        most = max((tokens for tokens in completions if type(tokens) is int), default=None)
        of_the_prompt = {name: last[name] for name in OF_A_PROMPT if name in last}
        return {**without(reported, ("total_tokens",)), **of_the_prompt, "completion_tokens": most}
    missing = [name for name in DETAILS if not isinstance(reported.get(name), dict)]
    for name in missing:
        same = (each[name] for each in others if each["prompt_tokens"] == prompt and isinstance(each.get(name), dict))
        if (details := next(same, None)) is not None:
            reported = {**reported, name: details}
    return reported


def _details(reported: dict[str, Any], name: str) -> dict[str, Any]:
    details = reported.get(name)
    return details if isinstance(details, dict) else {}
