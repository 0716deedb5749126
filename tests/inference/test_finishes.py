"""The reason for an answer's end is given in words that clients know."""

import pytest

from inference.finishes import finish_reason


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        ("stop", "stop"),
        ("eos", "stop"),
        ("MAX_TOKENS", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "tool_calls"),
        ("SAFETY", "content_filter"),
        ("content-filtered", "content_filter"),
    ],
)
def test_a_finish_reason_is_one_of_the_four_that_clients_know(reported: str, expected: str) -> None:
    assert finish_reason(reported) == expected
