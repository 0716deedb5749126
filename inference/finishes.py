"""Maps upstreams' words for why an answer ended to the API's finish reasons, or to a failure."""

from collections.abc import Collection, Mapping
from typing import Any

Json = dict[str, Any]

FINISH_REASONS = frozenset({"stop", "length", "content_filter", "tool_calls"})
# Other words for the API's reasons, in lower case and with `_` between their parts.
FINISH_SYNONYMS = {
    **dict.fromkeys(("function_call", "tool_use", "tool_call"), "tool_calls"),
    **dict.fromkeys(
        (
            "context_length_exceeded",
            "max_length",
            "max_output_tokens",
            "max_tokens",
            "model_context_window_exceeded",
            "model_length",
            "repetition_truncation",
            "token_limit",
            "truncated",
        ),
        "length",
    ),
    **dict.fromkeys(
        ("blocklist", "content_filtered", "prohibited_content", "recitation", "refusal", "safety", "sensitive", "spii"),
        "content_filter",
    ),
}
# Words that mean no reason: servers in Python and JavaScript may write an absent value like this.
NO_REASONS = frozenset({"none", "null", "undefined"})
# Words that mean that the answer has failed.
FAILURES = frozenset(
    {"abort", "aborted", "canceled", "cancelled", "error", "failed", "insufficient_system_resource", "network_error"}
)


def finish_reason(reported: Any) -> str | None:
    """Returns one of the API's reasons, or None if none was reported. An unknown word counts as `stop`."""
    if not isinstance(reported, str) or not reported:
        return None
    if reported in FINISH_REASONS:
        return reported
    name = _plain_word(reported)
    if name in NO_REASONS:
        return None
    return FINISH_SYNONYMS.get(name, name if name in FINISH_REASONS else "stop")


def failure_of(choice: Mapping[str, Any]) -> Json | None:
    """Returns a choice's error, or one for a finish reason that means failure, in an error envelope; else None."""
    error, reason = choice.get("error"), choice.get("finish_reason")
    if not error and isinstance(reason, str) and _plain_word(reason) in FAILURES:
        error = {"message": f"The answer finished with {reason!r}."}
    return {"error": error} if error else None


def _plain_word(reported: str) -> str:
    return reported.lower().replace("-", "_")


def after_calls(reason: str, calls: Collection[Any], *, has_function_call: bool) -> str:
    """Corrects the finish reason of a choice by its tool calls; a `function_call` is the older form of one.

    Clients run tools only for `tool_calls`, and then expect at least one. Some upstreams send `stop` after a call, or
    `tool_calls` after a text.
    """
    if calls:
        return "tool_calls" if reason == "stop" else reason
    return "stop" if reason == "tool_calls" and not has_function_call else reason
