"""Tests the simulated provider as Anthropic's Messages API."""

import json

import pytest

from tests.simulator.process import Provider, frames


def test_echo_answers_with_a_block_of_text(provider: Provider) -> None:
    answer = provider.messages("echo", "one two", system="be brief")
    assert answer["content"] == [{"type": "text", "text": "one two"}]
    assert answer["stop_reason"] == "end_turn"
    assert (answer["usage"]["input_tokens"], answer["usage"]["output_tokens"]) == (4, 2)


def test_a_stream_names_its_events(provider: Provider) -> None:
    text = provider.messages_stream("echo", "one two").read().decode()
    names = [line.removeprefix("event: ") for line in text.splitlines() if line.startswith("event: ")]
    assert names == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert [frame["type"] for frame in frames(text)] == names


def test_usage_is_split_over_start_and_delta(provider: Provider) -> None:
    events = frames(provider.messages_stream("cached:10+cache-write:3:4", "one two").read().decode())
    assert events[0]["message"]["usage"] == {
        "input_tokens": 2,
        "cache_creation_input_tokens": 7,
        "cache_read_input_tokens": 10,
        "cache_creation": {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 4},
        "output_tokens": 1,
        "service_tier": "standard",
    }
    assert events[-2]["usage"]["output_tokens"] == 2
    assert events[-2]["usage"]["input_tokens"] is None


def test_late_usage_has_an_event_of_its_own(provider: Provider) -> None:
    deltas = [
        event
        for event in frames(provider.messages_stream("late-usage:0.001").read().decode())
        if event["type"] == "message_delta"
    ]
    assert ["usage" in event for event in deltas] == [False, True]


def test_no_usage_is_nowhere(provider: Provider) -> None:
    assert "usage" not in provider.messages("no-usage")
    assert '"usage"' not in provider.messages_stream("no-usage").read().decode()


def test_bad_usage_is_negative(provider: Provider) -> None:
    assert provider.messages("bad-usage")["usage"]["input_tokens"] == -1


def test_a_tool_loop_ends_with_the_tools_result(provider: Provider) -> None:
    tools = [{"name": "weather", "input_schema": {"type": "object"}}]
    asked = provider.messages("tools", "rain?", tools=tools)
    block = asked["content"][0]
    assert (block["type"], block["name"], block["input"]) == ("tool_use", "weather", {"query": "rain?"})
    assert asked["stop_reason"] == "tool_use"
    result = {"type": "tool_result", "tool_use_id": block["id"], "content": "sunny"}
    messages = [
        {"role": "user", "content": "rain?"},
        {"role": "assistant", "content": asked["content"]},
        {"role": "user", "content": [result]},
    ]
    assert "sunny" in provider.messages("tools", messages=messages, tools=tools)["content"][0]["text"]


def test_a_tools_arguments_are_streamed_in_fragments(provider: Provider) -> None:
    events = frames(provider.messages_stream("tools", "will it rain").read().decode())
    fragments = [event["delta"]["partial_json"] for event in events if event["type"] == "content_block_delta"]
    assert len(fragments) > 1
    assert json.loads("".join(fragments)) == {"query": "will it rain"}


@pytest.mark.parametrize(("choice", "calls"), [({"type": "auto"}, 2), ({"type": "none"}, 0)])
def test_both_makes_two_calls_if_tools_may_be_called(provider: Provider, choice: object, calls: int) -> None:
    blocks = provider.messages("tools", "both please", tool_choice=choice)["content"]
    assert sum(block["type"] == "tool_use" for block in blocks) == calls


def test_parallel_calls_can_be_forbidden(provider: Provider) -> None:
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    assert len(provider.messages("tools", "both please", tool_choice=choice)["content"]) == 1


def test_thinking_is_a_signed_block_before_the_text(provider: Provider) -> None:
    whole = provider.messages("reasoning", "hi")["content"]
    assert [block["type"] for block in whole] == ["thinking", "text"]
    events = frames(provider.messages_stream("reasoning", "hi").read().decode())
    kinds = [event["delta"]["type"] for event in events if event["type"] == "content_block_delta"]
    assert kinds == ["thinking_delta"] * 5 + ["signature_delta", "text_delta"]
    assert whole[0]["signature"] in json.dumps(events)


@pytest.mark.parametrize(
    ("model", "more", "reason", "sequence"),
    [
        ("echo", {"max_tokens": 1}, "max_tokens", None),
        ("echo", {"stop_sequences": ["there"]}, "stop_sequence", "there"),
        ("refusal", {}, "refusal", None),
        ("finish:pause_turn", {}, "pause_turn", None),
    ],
)
def test_it_says_why_it_stopped(
    provider: Provider, model: str, more: dict[str, object], reason: str, sequence: str | None
) -> None:
    answer = provider.messages(model, "hello there", **more)
    assert (answer["stop_reason"], answer["stop_sequence"]) == (reason, sequence)


@pytest.mark.parametrize(
    "wrong", [{"max_tokens": None}, {"messages": [{"role": "system", "content": "x"}]}, {"messages": []}]
)
def test_what_the_api_does_not_take_is_refused(provider: Provider, wrong: dict[str, object]) -> None:
    answer = provider.messages("echo", "hi", **wrong)
    assert (answer["type"], answer["error"]["type"]) == ("error", "invalid_request_error")


@pytest.mark.parametrize(
    ("status", "kind"), [(401, "authentication_error"), (429, "rate_limit_error"), (529, "overloaded_error")]
)
def test_a_status_has_the_dialects_error(provider: Provider, status: int, kind: str) -> None:
    with provider.messages_stream(f"status:{status}") as response:
        assert response.status == status
        assert json.loads(response.read())["error"]["type"] == kind


def test_pings_are_events_before_the_first(provider: Provider) -> None:
    events = frames(provider.messages_stream("pings:2:0.001").read().decode())
    assert [event["type"] for event in events[:3]] == ["ping", "ping", "message_start"]


def test_an_error_in_mid_stream_is_an_event(provider: Provider) -> None:
    text = provider.messages_stream("error-frame:2").read().decode()
    assert text.count("text_delta") == 2
    assert "event: error\n" in text
    assert frames(text)[-1]["error"]["type"] == "overloaded_error"


def test_no_done_leaves_out_the_last_event(provider: Provider) -> None:
    assert frames(provider.messages_stream("no-done").read().decode())[-1]["type"] == "message_delta"


def test_describe_shows_what_arrived(provider: Provider) -> None:
    shown = json.loads(provider.messages("describe", "hi", top_k=3)["content"][0]["text"])
    assert shown["body"]["top_k"] == 3
    assert shown["path"] == "/v1/messages"
