"""Tests the bytes and chunks of the simulated provider when it imitates peculiarities of real providers."""

import json
from typing import Any

import pytest

from simulator.behaviour import ERRORS, WORDS, parse
from tests.faults import DRAWN, ENDLESS, KEPT
from tests.simulator.process import Json, Provider, frames, texts

TOOLS: list[Json] = [{"type": "function", "function": {"name": name}} for name in ("weather", "clock")]


def sent(provider: Provider, model: str, content: str = "hello there", **fields: Any) -> str:
    """Returns the text of a stream."""
    return provider.chat_stream(model, content, **fields).read().decode()


def fragments(provider: Provider, model: str) -> list[list[Json]]:
    """Returns the pieces of two calls, chunk by chunk."""
    chunks = frames(sent(provider, f"tools+{model}", "both", tools=TOOLS))
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    return [delta["tool_calls"] for delta in deltas if "tool_calls" in delta]


@pytest.mark.parametrize(
    ("index", "numbers"), [("same", {0}), ("none", {None}), ("one", {1, 2}), ("negative", {-1}), ("", {0, 1})]
)
def test_calls_are_numbered_as_asked(provider: Provider, index: str, numbers: set[int | None]) -> None:
    pieces = fragments(provider, f"index:{index}" if index else "echo")
    assert {piece.get("index") for chunk in pieces for piece in chunk} == numbers


def test_blocks_of_messages_are_numbered_as_asked(provider: Provider) -> None:
    events = frames(provider.messages_stream("reasoning+index:same").read().decode())
    assert [event["index"] for event in events if event["type"] == "content_block_start"] == [0, 0]


@pytest.mark.parametrize(
    ("how", "names"),
    [
        ("pieces", ["wea", "ther", "cl", "ock"]),
        ("late", ["weather", "clock"]),
        ("growing", ["wea", "weather", "cl", "clock"]),
    ],
)
def test_a_tools_name_is_streamed_as_asked(provider: Provider, how: str, names: list[str]) -> None:
    functions = [piece["function"] for chunk in fragments(provider, f"tool-name:{how}") for piece in chunk]
    assert [function["name"] for function in functions if "name" in function] == names
    assert ("name" in functions[0]) == (how != "late")


def test_every_fragment_repeats_name_and_id(provider: Provider) -> None:
    pieces = [piece for chunk in fragments(provider, "tool-name:repeated") for piece in chunk]
    assert all("id" in piece and piece["function"]["name"] for piece in pieces)


def test_all_calls_are_in_one_chunk(provider: Provider) -> None:
    ((first, second),) = fragments(provider, "whole-calls+object-arguments+no-call-ids")
    assert first["function"] == {"name": "weather", "arguments": {"query": "both"}}
    assert "id" not in second


def test_calls_have_one_id(provider: Provider) -> None:
    ((first, second),) = fragments(provider, "whole-calls+same-call-ids")
    assert first["id"] == second["id"]
    tools = [{"name": "weather"}, {"name": "clock"}]
    first, second = provider.messages("tools+same-call-ids", "both", tools=tools)["content"]
    assert (first["id"], first["name"], second["name"]) == (second["id"], "weather", "clock")


def test_arguments_are_a_blank_or_are_repeated_after_their_pieces(provider: Provider) -> None:
    def pieces(model: str) -> list[str]:
        return [piece["function"]["arguments"] for chunk in fragments(provider, model) for piece in chunk]

    assert pieces("blank-arguments") == ["", " "] * 2
    assert pieces("arguments-again") == ["", '{"query"', ':"both"}', '{"query":"both"}'] * 2
    assert pieces("arguments-again+cut-arguments") == ["", '{"query"'] * 2


def test_a_call_comes_without_a_list_or_a_function_around_it(provider: Provider) -> None:
    chunks = frames(sent(provider, "tools+unlisted-calls+flat-calls", tools=TOOLS))
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    head = next(delta["tool_calls"] for delta in deltas if "tool_calls" in delta)
    assert head == {"index": 0, "id": head["id"], "type": "function", "name": "weather", "arguments": ""}
    message = provider.chat("tools+unlisted-calls+flat-calls", tools=TOOLS)["choices"][0]["message"]
    assert message["tool_calls"]["arguments"] == '{"query":"hello there"}'


def test_half_a_character_is_an_escape_on_the_wire(provider: Provider) -> None:
    assert r'there\ud83d"' in sent(provider, "surrogates:halves")
    assert r'"\ude00"' in sent(provider, "surrogates:halves")
    assert r'\udcf0\udc9f"' in sent(provider, "surrogates:bytes")
    assert provider.messages("surrogates:halves")["content"][0]["text"] == "hello there\U0001f600"


def test_a_call_ends_with_half_a_character_that_the_model_escaped(provider: Provider) -> None:
    call = provider.chat("tools+surrogates:escaped", tools=TOOLS)["choices"][0]["message"]["tool_calls"][0]
    assert call["function"]["arguments"] == r'{"query":"hello there\ud83d"}'


def test_logprobs_are_no_numbers(provider: Provider) -> None:
    assert '"logprob": NaN' in sent(provider, "not-finite")


def test_events_without_data_come_before_each_event(provider: Provider) -> None:
    text = sent(provider, "blank-data:3+spaced-done")
    assert text.startswith("data:\n\ndata: \n\nevent: ping\ndata:\n\ndata: {")
    assert text.endswith("data:  [DONE] \t\n\n")


def test_events_come_as_asked(provider: Provider) -> None:
    assert sent(provider, "data-comments").startswith("data: : PROCESSING\n\ndata: {")
    assert sent(provider, "quoted-done").endswith('data: "[DONE]"\n\n')
    lines = sent(provider, "no-blank-lines").splitlines()
    assert [line[:7] for line in lines] == ["data: {"] * 4 + ["data: ["]
    assert sent(provider, "byte-order-marks").count("\ufeffdata: ") == 5
    assert provider.messages_stream("byte-order-marks").read().decode().startswith("\ufeffevent: message_start\n")


def test_an_unreadable_event_does_not_end_the_stream(provider: Provider) -> None:
    lines = [line for line in sent(provider, "unreadable:1:2").splitlines() if line]
    assert [line.startswith("data: {this") for line in lines] == [False, False, True, True, False, False, False]


def test_every_chunk_of_output_has_the_finish_reason(provider: Provider) -> None:
    chunks = frames(sent(provider, "finish-every-chunk"))
    assert texts(chunks) == ["hello", " there"]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, "stop", "stop", "stop"]


def test_a_choice_has_a_message_instead_of_a_delta(provider: Provider) -> None:
    chunks = frames(sent(provider, "message-for-delta"))
    assert "".join(chunk["choices"][0]["message"].get("content", "") for chunk in chunks) == "hello there"
    assert all("delta" not in chunk["choices"][0] for chunk in chunks)


def test_a_whole_answer_has_a_delta_instead_of_a_message(provider: Provider) -> None:
    (choice,) = provider.chat("delta-for-message")["choices"]
    assert choice["delta"]["content"] == "hello there"
    assert "message" not in choice


def test_reasoning_is_a_part_of_the_content(provider: Provider) -> None:
    thought, said = provider.chat("reasoning+reasoning-parts")["choices"][0]["message"]["content"]
    summary = [{"type": "summary_text", "text": "First I read the question."}]
    assert (thought, said) == ({"type": "reasoning", "summary": summary}, {"type": "text", "text": "hello there"})


def test_messages_lack_the_events_that_are_named(provider: Provider) -> None:
    words = "tools+reasoning+no-message-start+no-block-start+no-block-stop"
    events = frames(provider.messages_stream(words, tools=[{"name": "weather"}]).read().decode())
    framing = [event for event in events if event["type"] != "content_block_delta"]
    assert [event["type"] for event in framing] == ["content_block_start", "message_delta", "message_stop"]
    assert framing[0]["content_block"]["name"] == "weather"
    assert framing[1]["usage"]["input_tokens"] == 2


@pytest.mark.parametrize("shape", ERRORS)
@pytest.mark.parametrize(("code", "status"), [("", 400), (":200", 200), (":500", 500)])
def test_an_error_has_the_shape_and_the_status(provider: Provider, shape: str, code: str, status: int) -> None:
    with provider.open("/v1/chat/completions", {"model": f"error-in:{shape}{code}", "messages": []}) as response:
        assert (response.status, json.loads(response.read())) == (status, ERRORS[shape])


def test_lists_come_one_after_the_other_and_together_in_a_whole_answer(provider: Provider) -> None:
    deltas = [chunk["choices"][0]["delta"] for chunk in frames(sent(provider, "lists:3"))]
    message = provider.chat("lists:3")["choices"][0]["message"]
    for name in ("annotations", "images", "reasoning_details"):
        lists = [delta[name] for delta in deltas if name in delta]
        assert [len(each) for each in lists] == [1, 1, 1]
        assert message[name] == [item for each in lists for item in each]


def test_the_other_kind_of_answer_is_sent(provider: Provider) -> None:
    assert json.loads(sent(provider, "other-kind"))["object"] == "chat.completion"
    with provider.open("/v1/chat/completions", {"model": "other-kind", "messages": TOOLS}) as response:
        assert response.headers["Content-Type"].startswith("text/event-stream")


@pytest.mark.parametrize(
    ("shape", "last"),
    [
        ("details-once", {"prompt_tokens": 12, "completion_tokens": 2, "total_tokens": 14}),
        ("message-names", {"input_tokens": 2, "output_tokens": 2, "cache_read_input_tokens": 10}),
    ],
)
def test_the_last_usage_of_a_stream_has_the_shape(provider: Provider, shape: str, last: Json) -> None:
    text = sent(provider, f"cached:10+usage-shape:{shape}", stream_options={"include_usage": True})
    usage = frames(text)[-1]["usage"]
    assert last.items() <= usage.items()
    assert not any(name.endswith("_details") for name in usage)


@pytest.mark.parametrize(
    "word", ["index:odd", "surrogates", "tool-name:", "lists:0", "unreadable:1:0", "stop-in:x", "error-in"]
)
def test_an_argument_that_a_word_does_not_take_is_an_error(word: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse(word)


def test_the_fuzzer_draws_every_word() -> None:
    drawn = {name.partition(":")[0] for name in DRAWN}
    assert drawn | ENDLESS | KEPT == WORDS.keys()
    assert all(parse(name) for name in DRAWN)
