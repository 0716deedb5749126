"""The Anthropic dialect converts messages and event streams to OpenAI's shape."""

from typing import Any

import orjson
import pytest

from catalogue.pricing import ContradictoryUsage, Usage
from gateway.fastpath.faults import UpstreamFault
from inference.call import Shape
from inference.dialects.anthropic import AnthropicDialect
from inference.dialects.anthropic.answers import STOP_REASONS, grown_usage, usage_of
from inference.dialects.errors import MalformedReply, ReportedError
from inference.finishes import finish_reason
from tests.inference.dialects import recorded_anthropic
from tests.inference.dialects.playback import PlaybackResult, events, play
from tests.inference.dialects.routes import call, route

DIALECT = AnthropicDialect()
Json = dict[str, Any]

THINKING = {"type": "thinking", "thinking": "Hm.", "signature": "sig"}
REDACTED = {"type": "redacted_thinking", "data": "opaque"}
START: Json = {"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant"}}
END: Json = {"type": "message_stop"}


def answered(*content: Json, **fields: Any) -> Json:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "content": content, **fields}
    return DIALECT.reply(orjson.dumps(message), call()).body


def message_of(*content: Json) -> Json:
    message: Json = answered(*content)["choices"][0]["message"]
    return message


def block(index: int, content: Json, *deltas: Json) -> list[Json]:
    """Returns the events of one content block."""
    return [
        {"type": "content_block_start", "index": index, "content_block": content},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def text(index: int, *pieces: str) -> list[Json]:
    return block(index, {"type": "text", "text": ""}, *({"type": "text_delta", "text": piece} for piece in pieces))


def tool(index: int, name: str, *pieces: str, **start: Any) -> list[Json]:
    content = {"type": "tool_use", "id": f"toolu_{name}", "name": name, "input": {}, **start}
    return block(index, content, *({"type": "input_json_delta", "partial_json": piece} for piece in pieces))


def finish(reason: str | None = "end_turn", **fields: Any) -> Json:
    return {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, **fields}


def played(*payloads: Json) -> PlaybackResult:
    return play(DIALECT, events(START, *payloads, END))


@pytest.mark.parametrize(("theirs", "ours"), [*STOP_REASONS.items(), ("compaction", "stop"), (None, None)])
def test_stop_reasons(theirs: str | None, ours: str | None) -> None:
    told = answered({"type": "text", "text": "hi"}, stop_reason=theirs)["choices"][0]["finish_reason"]
    assert finish_reason(told) == ours
    said = tool(0, "weather", "{}") if theirs == "tool_use" else text(0, "hi")
    assert played(*said, finish(theirs)).finish == ours


@pytest.mark.parametrize("shape", [Shape.CHAT, Shape.MESSAGES])
def test_a_stop_reason_that_says_failure_is_an_error(shape: Shape) -> None:
    """Servers that offer both Messages and OpenAI's API use such words, whole and in streams."""
    message = {"type": "message", "content": [{"type": "text", "text": "h"}], "stop_reason": "error"}
    with pytest.raises(ReportedError, match="error"):
        DIALECT.reply(orjson.dumps(message), call(shape=shape))
    with pytest.raises(ReportedError, match="error"):
        played(*text(0, "h"), finish("error"))


def test_the_stop_reasons_of_the_notes() -> None:
    assert STOP_REASONS.items() >= {
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("max_tokens", "length"),
        ("tool_use", "tool_calls"),
        ("refusal", "content_filter"),
    }


def test_texts_are_joined() -> None:
    assert message_of({"type": "text", "text": "one "}, {"type": "text", "text": "two"})["content"] == "one two"
    assert played(*text(0, "one "), *text(1, "two"), finish()).text() == "one two"


def test_content_is_null_only_if_there_are_only_tools() -> None:
    use = {"type": "tool_use", "id": "toolu_1", "name": "clock", "input": {}}
    assert message_of(use)["content"] is None
    assert message_of({"type": "text", "text": ""}, use)["content"] is None
    assert message_of({"type": "text", "text": "wait"}, use)["content"] == "wait"
    assert message_of()["content"] == ""


def test_a_tools_input_is_dumped() -> None:
    use = {"type": "tool_use", "id": "toolu_1", "name": "clock", "input": {"é": 1}, "caller": {"type": "direct"}}
    assert message_of(use)["tool_calls"] == [
        {
            "id": "toolu_1",
            "type": "function",
            "function": {"name": "clock", "arguments": '{"é":1}'},
            "caller": {"type": "direct"},
        }
    ]


def test_thinking_is_text_to_read_and_blocks_to_send_back() -> None:
    message = message_of(THINKING, REDACTED, {"type": "text", "text": "well"})
    assert message["reasoning_content"] == "Hm."
    assert message["thinking_blocks"] == [{"index": 0, **THINKING}, {"index": 1, **REDACTED}]
    again = orjson.loads(DIALECT.request(call(message), route()).body)["messages"]
    assert again == [{"role": "assistant", "content": [THINKING, REDACTED, {"type": "text", "text": "well"}]}]


def test_what_openai_has_no_name_for_stays() -> None:
    cited = {"type": "text", "text": "a", "citations": [{"cited_text": "x"}]}
    body = answered(cited, cited, stop_reason="stop_sequence", stop_sequence="###", container=None, new={"a": 1})
    assert (body["stop_sequence"], body["new"]) == ("###", {"a": 1})
    assert "container" not in body
    assert body["choices"][0]["message"]["citations"] == [{"cited_text": "x"}] * 2


def test_the_simulators_extra_fields_stay() -> None:
    body = DIALECT.reply(recorded_anthropic.EXTRA_WHOLE, call()).body
    assert body["sim_answer"] == {"kept": True}
    assert body["choices"][0]["message"]["sim_block"] == "kept"
    streamed = play(DIALECT, [recorded_anthropic.EXTRA_STREAM])
    assert streamed.chunks[0]["sim_answer"] == {"kept": True}
    assert streamed.deltas[0]["sim_block"] == "kept"
    assert streamed.deltas[0]["sim_delta"] is True


@pytest.mark.parametrize("content", [None, "text", ["text"], {"type": "text"}])
def test_a_message_without_blocks_is_malformed(content: Any) -> None:
    with pytest.raises(MalformedReply):
        DIALECT.reply(orjson.dumps({"type": "message", "content": content}), call())


def test_usage_has_disjoint_buckets() -> None:
    parts = {"ephemeral_5m_input_tokens": 7, "ephemeral_1h_input_tokens": 3}
    reported = {"input_tokens": 5, "cache_read_input_tokens": 20, "cache_creation_input_tokens": 10}
    counted = {**reported, "cache_creation": parts, "output_tokens": 9}
    usage = usage_of({**counted, "output_tokens_details": {"thinking_tokens": 4}})
    expected = Usage(uncached_prompt=5, cache_read=20, cache_write_5m=7, cache_write_1h=3, completion=9, reasoning=4)
    assert usage == expected
    assert expected.prompt == 35


def parts(for_5m: int, for_1h: int) -> Json:
    return {"ephemeral_5m_input_tokens": for_5m, "ephemeral_1h_input_tokens": for_1h}


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ({}, (None, None)),
        ({"cache_creation_input_tokens": 0}, (0, None)),
        ({"cache_creation_input_tokens": 10}, (10, None)),
        ({"cache_creation": {"ephemeral_5m_input_tokens": 7, "ephemeral_1h_input_tokens": 3}}, (7, 3)),
        ({"cache_creation_input_tokens": 10, "cache_creation": {"ephemeral_1h_input_tokens": 3}}, (7, 3)),
        # The total grew after the parts were reported.
        ({"cache_creation_input_tokens": 12, "cache_creation": {"ephemeral_5m_input_tokens": 7}}, (12, None)),
        # If the parts exceed the total, the total is billed: the dearer parts are left out.
        ({"cache_creation_input_tokens": 0, "cache_creation": {"ephemeral_1h_input_tokens": 3}}, (0, 0)),
        ({"cache_creation_input_tokens": 10, "cache_creation": parts(8, 4)}, (8, 2)),
        ({"cache_creation_input_tokens": 5, "cache_creation": parts(8, 1)}, (5, 0)),
    ],
)
def test_cache_writes_without_a_breakdown_are_of_five_minutes(
    written: Json, expected: tuple[int | None, int | None]
) -> None:
    usage = usage_of({"input_tokens": 5, "output_tokens": 1, **written})
    assert usage is not None
    assert (usage.cache_write_5m, usage.cache_write_1h) == expected
    assert usage.cache_read is None
    exceeds = sum(written.get("cache_creation", {}).values()) > written.get("cache_creation_input_tokens", 10**9)
    assert usage.flags == (("cache_counts_differ",) if exceeds else ())


def test_an_input_that_includes_the_cached_tokens_is_billed_once() -> None:
    """Alibaba's endpoint counts both as Anthropic and as OpenAI do."""
    counted = {"input_tokens": 1000, "output_tokens": 5, "cache_read_input_tokens": 900}
    usage = usage_of({**counted, "prompt_tokens_details": {"cached_tokens": 900}})
    assert usage == Usage(100, cache_read=900, completion=5, flags=("cache_counts_differ",))


@pytest.mark.parametrize(
    ("added", "expected"),
    [
        ({"input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 5}, Usage(15, cache_read=5, completion=5)),
        ({"input_tokens": 20, "cache_read_input_tokens": 0, "output_tokens": 5}, Usage(20, cache_read=0, completion=5)),
        ({"input_tokens": None, "output_tokens": 5}, Usage(15, cache_read=5, completion=5)),
    ],
)
def test_an_input_that_was_counted_does_not_fall_back_to_nothing(added: Json, expected: Usage) -> None:
    known = {"input_tokens": 15, "cache_read_input_tokens": 5, "output_tokens": 1}
    assert usage_of(grown_usage(known, added)) == expected


@pytest.mark.parametrize("reported", [None, {}, [], {"input_tokens": 5}, {"input_tokens": None, "output_tokens": 1}])
def test_usage_that_lacks_prompt_or_completion_is_none(reported: Any) -> None:
    assert usage_of(reported) is None


@pytest.mark.parametrize("wrong", [-1, 1.5, "3", True])
@pytest.mark.parametrize(
    "name", ["input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"]
)
def test_a_count_that_cannot_be_is_contradictory(name: str, wrong: Any) -> None:
    with pytest.raises(ContradictoryUsage):
        usage_of({"input_tokens": 5, "output_tokens": 1, name: wrong})


def test_the_parts_of_a_cache_write_are_checked_too() -> None:
    parts = {"ephemeral_5m_input_tokens": 1, "ephemeral_1h_input_tokens": -1}
    with pytest.raises(ContradictoryUsage):
        usage_of({"input_tokens": 5, "output_tokens": 1, "cache_creation": parts})


def test_null_usage_fields_of_the_end_are_unchanged_since_the_start() -> None:
    counted = {"input_tokens": 5, "cache_read_input_tokens": 2, "output_tokens": 1}
    start = {"type": "message_start", "message": {"usage": counted}}
    end = finish(usage={"input_tokens": None, "cache_read_input_tokens": None, "output_tokens": 9})
    streamed = play(DIALECT, events(start, *text(0, "hi"), end, END))
    assert streamed.usage == Usage(uncached_prompt=5, cache_read=2, completion=9)


def test_usage_at_the_end_replaces_that_of_the_start() -> None:
    start = {"type": "message_start", "message": {"usage": {"input_tokens": 0, "output_tokens": 0}}}
    end = finish(usage={"input_tokens": 5, "output_tokens": 9})
    assert play(DIALECT, events(start, *text(0, "hi"), end, END)).usage == Usage(uncached_prompt=5, completion=9)


def test_an_answer_that_breaks_off_is_counted_on_its_prompt_alone() -> None:
    """The first `output_tokens` is a placeholder: taken as the count, it would make a broken stream almost free."""
    start = {"type": "message_start", "message": {"usage": {"input_tokens": 5, "output_tokens": 1}}}
    broken = play(DIALECT, events(start, *text(0, "one", "two")))
    assert broken.usage is None
    assert broken.prompt_usage == Usage(uncached_prompt=5)


def test_late_usage_is_no_second_finish() -> None:
    streamed = play(DIALECT, [recorded_anthropic.LATE_USAGE_STREAM])
    assert [chunk["choices"][0]["finish_reason"] for chunk in streamed.chunks][-2:] == [None, "stop"]
    assert streamed.usage == Usage(uncached_prompt=5, cache_read=0, cache_write_5m=0, cache_write_1h=0, completion=5)


def test_only_output_and_the_finish_make_chunks() -> None:
    streamed = played({"type": "ping"}, {"type": "brand_new", "x": 1}, *text(0, "", "hi"), finish())
    assert [chunk["choices"] for chunk in streamed.raw] == [
        [{"index": 0, "delta": {"content": "hi"}, "finish_reason": None}],
        [{"index": 0, "delta": {}, "finish_reason": "stop"}],
    ]
    assert streamed.reached_end


def test_a_tools_index_is_its_ordinal_among_tools() -> None:
    streamed = played(
        *text(0, "wait"), *tool(1, "clock", "", '{"a"', ":1}"), *tool(2, "weather", "{}"), finish("tool_use")
    )
    assert streamed.tool_calls() == [
        {"id": "toolu_clock", "name": "clock", "arguments": '{"a":1}'},
        {"id": "toolu_weather", "name": "weather", "arguments": "{}"},
    ]


def test_interleaved_tools_keep_their_own_arguments() -> None:
    first, second = tool(0, "clock", '{"a":1}'), tool(1, "weather", '{"b":2}')
    mixed = [first[0], second[0], second[1], first[1], second[2], first[2]]
    assert [each["arguments"] for each in played(*mixed, finish("tool_use")).tool_calls()] == ['{"a":1}', '{"b":2}']


def test_a_tool_without_arguments_gets_an_empty_object() -> None:
    streamed = play(DIALECT, [recorded_anthropic.NO_ARGUMENTS_STREAM])
    assert [each["arguments"] for each in streamed.tool_calls()] == ["{}"]


def test_input_that_comes_whole_at_the_start_is_not_lost() -> None:
    streamed = played(*tool(0, "clock", input={"a": 1}), finish("tool_use"))
    assert [each["arguments"] for each in streamed.tool_calls()] == ['{"a":1}']


def test_streamed_thinking_can_come_back_unmodified() -> None:
    deltas = [{"type": "thinking_delta", "thinking": piece} for piece in ("H", "m.")]
    thinking = block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        *deltas,
        {"type": "signature_delta", "signature": "sig"},
    )
    streamed = played(*thinking, *block(1, REDACTED), *text(2, "well"), finish())
    assert streamed.text("reasoning_content") == "Hm."
    blocks = [entry for delta in streamed.deltas for entry in delta.get("thinking_blocks", ())]
    assert blocks == [{"index": 0, **THINKING}, {"index": 1, **REDACTED}]


def test_thinking_that_shows_no_text_waits_for_the_first_output() -> None:
    """A separate chunk before the first output would never reach the client."""
    hidden = block(
        0, {"type": "thinking", "thinking": "", "signature": ""}, {"type": "signature_delta", "signature": "sig"}
    )
    streamed = played(*hidden, *text(1, "well"), finish())
    expected = {"index": 0, "type": "thinking", "thinking": "", "signature": "sig"}
    assert streamed.deltas[0] == {"role": "assistant", "content": "well", "thinking_blocks": [expected]}


def test_citations_ride_on_the_next_chunk_numbered() -> None:
    cite = {"type": "citations_delta", "citation": {"cited_text": "x"}}
    streamed = played(
        *block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "a"}, cite, cite), finish()
    )
    cited = [{"index": 0, "cited_text": "x"}, {"index": 1, "cited_text": "x"}]
    assert streamed.deltas[-2:] == [{"citations": cited}, {}]


def test_what_the_end_says_beyond_its_reason_is_on_the_finish_chunk() -> None:
    end = {"type": "message_delta", "delta": {"stop_reason": "stop_sequence", "stop_sequence": "###"}}
    assert played(*text(0, "hi"), end).chunks[-1]["stop_sequence"] == "###"


def test_server_tools_are_no_tool_calls() -> None:
    server = tool(0, "web_search", '{"q":1}', type="server_tool_use")
    streamed = played(*server, *text(1, "hi"), finish())
    assert (streamed.tool_calls(), streamed.text()) == ([], "hi")


@pytest.mark.parametrize(
    ("kind", "status"), [("overloaded_error", 529), ("rate_limit_error", 429), ("api_error", 500), ("new_error", None)]
)
def test_an_error_event_has_the_status_of_its_type(kind: str, status: int | None) -> None:
    [event] = events({"type": "error", "error": {"type": kind, "message": "Sorry."}})
    with pytest.raises(UpstreamFault) as caught:
        play(DIALECT, [event])
    assert (caught.value.message, caught.value.status) == ("reported an error: Sorry.", status)


def test_words_that_may_hold_a_key_are_not_quoted() -> None:
    with pytest.raises(UpstreamFault) as caught:
        DIALECT.reply(recorded_anthropic.STATUS_401, call())
    assert caught.value.message.startswith("refuses the gateway itself")
    assert caught.value.status == 401


def test_an_error_event_without_words_is_an_error_all_the_same() -> None:
    with pytest.raises(UpstreamFault):
        play(DIALECT, events({"type": "error"}))


@pytest.mark.parametrize(
    "broken",
    [
        {"type": "message_start"},
        {"type": "content_block_start", "index": 0},
        {"type": "content_block_delta", "index": 0, "delta": "text"},
        {"type": "content_block_stop", "index": {}},
    ],
)
def test_an_event_without_its_parts_is_malformed(broken: Json) -> None:
    with pytest.raises(MalformedReply):
        play(DIALECT, events(broken))


def test_deltas_of_no_known_block_or_kind_say_nothing() -> None:
    delta = {"type": "content_block_delta", "index": 7}
    strays: list[Json] = [
        {**delta, "delta": {"type": "input_json_delta", "partial_json": "{}"}},
        {**delta, "delta": {"type": "brand_new"}},
        {**delta, "delta": {"type": "text_delta", "text": 7}},
        {"type": "content_block_stop", "index": 7},
        {"type": "message_delta", "delta": None, "usage": "many"},
    ]
    assert played(*strays).raw == []


def test_input_nested_too_deeply_is_malformed() -> None:
    body = b'{"content":[{"type":"tool_use","id":"t","name":"n","input":' + b'{"a":' * 300 + b"1" + b"}" * 300 + b"}]}"
    with pytest.raises(MalformedReply):
        DIALECT.reply(body, call())
