"""Counting an answer in each dialect's words, truly or in contradiction, as the behaviour asks.

`cached` and `cache-write` come on top of the words of the messages, so that they never contradict them: OpenAI's
`prompt_tokens` is the sum of all, Anthropic's `input_tokens` the words alone.
"""

from dataclasses import dataclass

from inference.simulator.behaviour import Behaviour
from inference.simulator.call import Json


@dataclass(frozen=True, slots=True)
class Tokens:
    """The words of a prompt and those produced so far; `completion` includes `reasoning`."""

    prompt: int
    completion: int
    reasoning: int = 0


def openai(tokens: Tokens, behaviour: Behaviour) -> Json | None:
    """Count as OpenAI does; None where the provider reports nothing."""
    if behaviour.no_usage:
        return None
    written = behaviour.cache_write_5m + behaviour.cache_write_1h
    prompt = tokens.prompt + behaviour.cached + written
    usage: Json = {
        "prompt_tokens": prompt,
        "completion_tokens": tokens.completion - (tokens.reasoning if behaviour.reasoning_outside else 0),
        "total_tokens": prompt + tokens.completion,
        "prompt_tokens_details": {"cached_tokens": behaviour.cached, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": tokens.reasoning, "audio_tokens": 0},
    }
    if written:
        usage["prompt_tokens_details"]["cache_write_tokens"] = written
    return _contradicted_openai(usage, behaviour)


def anthropic_start(tokens: Tokens, behaviour: Behaviour) -> Json | None:
    """Count what is known at the start: the prompt, and one token of the answer, as Anthropic does."""
    if behaviour.no_usage:
        return None
    written = {
        "ephemeral_5m_input_tokens": behaviour.cache_write_5m,
        "ephemeral_1h_input_tokens": behaviour.cache_write_1h,
    }
    usage: Json = {
        "input_tokens": tokens.prompt,
        "cache_creation_input_tokens": behaviour.cache_write_5m + behaviour.cache_write_1h,
        "cache_read_input_tokens": behaviour.cached,
        "cache_creation": written,
        "output_tokens": min(tokens.completion, 1),
        "service_tier": "standard",
    }
    return _contradicted_anthropic(usage, behaviour, "input_tokens")


def anthropic_whole(tokens: Tokens, behaviour: Behaviour) -> Json | None:
    """Count a whole answer."""
    if (usage := anthropic_start(tokens, behaviour)) is not None:
        usage["output_tokens"] = tokens.completion
    return usage


def anthropic_delta(tokens: Tokens, behaviour: Behaviour) -> Json | None:
    """Count what was produced so far; the null fields are unchanged since the start."""
    if behaviour.no_usage:
        return None
    usage: Json = {
        "input_tokens": None,
        "cache_creation_input_tokens": None,
        "cache_read_input_tokens": None,
        "output_tokens": tokens.completion,
    }
    return usage


def _contradicted_openai(usage: Json, behaviour: Behaviour) -> Json:
    match behaviour.bad_usage:
        case "cached":
            usage["prompt_tokens_details"]["cached_tokens"] = usage["prompt_tokens"] + 1000
        case "negative":
            usage["prompt_tokens"] = -1
        case "fraction":
            usage["prompt_tokens"] += 0.5
        case "total":
            usage["total_tokens"] += 1000
    return usage


def _contradicted_anthropic(usage: Json, behaviour: Behaviour, name: str) -> Json:
    """Contradict in the only ways there are: the parts of this usage are disjoint, and there is no total."""
    match behaviour.bad_usage:
        case "cached" | "negative":
            usage[name] = -1
        case "fraction":
            usage[name] += 0.5
    return usage
