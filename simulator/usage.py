"""Makes the usage that upstreams of OpenAI's form report.

The words `cached` and `cache-write` add to the tokens of the messages, so that they never contradict them.
"""

from simulator.answers import Tokens
from simulator.behaviour import CACHE_HITS, EARLY_USAGES, Behaviour
from simulator.call import Call, Json

_AUDIO_TOKENS = 300  # of a prompt


def usage_of(tokens: Tokens, call: Call, *, ends_stream: bool = False) -> Json | None:
    """Returns the usage in the shape that the behaviour asks for, or None if the provider reports none.

    With EARLY_USAGES, the last usage of a stream leaves out a part that earlier ones have reported.
    """
    counted = counts(tokens, call)
    if counted is None or (call.behaviour.usage_shape in EARLY_USAGES and not ends_stream):
        return counted
    return {**_shaped(counted, tokens, call.behaviour), **call.marked}


def counts(tokens: Tokens, call: Call) -> Json | None:
    """Returns the usage in OpenAI's own shape, correct or contradictory, or None if the provider reports none."""
    behaviour = call.behaviour
    if behaviour.no_usage:
        return None
    written = _written(behaviour)
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
    match behaviour.bad_usage:
        case "cached":
            usage["prompt_tokens_details"]["cached_tokens"] = prompt + 1000
        case "negative":
            usage["prompt_tokens"] = -1
        case "fraction":
            usage["prompt_tokens"] += 0.5
        case "total":
            usage["total_tokens"] += 1000
    return {**usage, **call.marked}


def _shaped(usage: Json, tokens: Tokens, behaviour: Behaviour) -> Json:
    match behaviour.usage_shape:
        case name if name in CACHE_HITS:
            del usage["prompt_tokens_details"]
            usage[name] = behaviour.cached
        case "thinking":
            usage["completion_tokens"] -= tokens.reasoning
            del usage["completion_tokens_details"]
        case "audio":
            usage["prompt_tokens_details"]["audio_tokens"] = _AUDIO_TOKENS
            usage["total_tokens"] += _AUDIO_TOKENS
        case "zero":
            usage |= dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"), 0)
        case "no-completion":
            usage = {"prompt_tokens": usage["prompt_tokens"], "total_tokens": usage["prompt_tokens"]}
        case "total-alone":
            usage = {"total_tokens": usage["total_tokens"]}
        case "zero-prompt" | "prompt-once":
            usage |= {"prompt_tokens": 0, "total_tokens": usage["completion_tokens"]}
        case "details-once":
            del usage["prompt_tokens_details"], usage["completion_tokens_details"]
        case "two-hits":
            usage["prompt_tokens_details"]["cached_tokens"] = 0
            usage["prompt_cache_hit_tokens"] = behaviour.cached
        case "cache-names":
            del usage["prompt_tokens_details"]
            usage |= {"cache_read_input_tokens": behaviour.cached, "cache_creation_input_tokens": _written(behaviour)}
        case "message-names":
            usage = {
                "input_tokens": tokens.prompt,
                "output_tokens": usage["completion_tokens"],
                "cache_read_input_tokens": behaviour.cached,
                "cache_creation_input_tokens": _written(behaviour),
            }
    return usage


def _written(behaviour: Behaviour) -> int:
    return behaviour.cache_write_5m + behaviour.cache_write_1h
