"""Why an answer ended: the API's reasons, and the words that upstreams have for them and for failures."""

from collections.abc import Collection, Mapping
from typing import Any

Json = dict[str, Any]

FINISH_REASONS = frozenset({"stop", "length", "content_filter", "tool_calls"})
# Other words for them, in lower case and with `_` between their parts.
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
# Words for no reason at all, as servers in Python and JavaScript write out what is absent.
NO_REASONS = frozenset({"none", "null", "undefined"})
# Words that say that the answer has failed.
FAILURES = frozenset(
    {"abort", "aborted", "canceled", "cancelled", "error", "failed", "insufficient_system_resource", "network_error"}
)


def finish_reason(reported: Any) -> str | None:
    """One of the API's reasons. An upstream's own word for the end counts as `stop`."""
    if not isinstance(reported, str) or not reported:
        return None
    if reported in FINISH_REASONS:
        return reported
    name = _plain_word(reported)
    if name in NO_REASONS:
        return None
    return FINISH_SYNONYMS.get(name, name if name in FINISH_REASONS else "stop")


def failure_of(choice: Mapping[str, Any]) -> Json | None:
    """Returns the error that a choice has or that its finish reason names, as an answer has one; else None."""
    error, reason = choice.get("error"), choice.get("finish_reason")
    if not error and isinstance(reason, str) and _plain_word(reason) in FAILURES:
        error = {"message": f"The answer finished with {reason!r}."}
    return {"error": error} if error else None


def _plain_word(reported: str) -> str:
    return reported.lower().replace("-", "_")


def after_calls(reason: str, calls: Collection[Any], *, has_function_call: bool) -> str:
    """Returns the finish reason of a choice with these tool calls, of which `function_call` is the older form.

    Clients run tools at `tool_calls` alone, and wait for one then. Some upstreams say `stop` after a call, or
    `tool_calls` after a text.
    """
    if calls:
        return "tool_calls" if reason == "stop" else reason
    return "stop" if reason == "tool_calls" and not has_function_call else reason
