"""The OpenAI dialect handles what only servers with OpenAI's API send or require."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from catalogue.pricing import ContradictoryUsage, Usage
from inference.answers import chat_answer
from inference.call import Shape
from inference.deltas import NO_CHOICE, ReportedFailure, StreamEnd, TextDelta, UsageReport
from inference.dialects.openai import OpenAIDialect
from inference.dialects.openai_usage import usage_of
from inference.words import object_of
from tests.inference.dialects.playback import events, play
from tests.inference.dialects.routes import call, route, upstream

DIALECT = OpenAIDialect()
SAID = {"choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": None}]}
FINISH = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
MISMATCH = ("total_mismatch",)


def cached(tokens: int, **more: int) -> dict[str, Any]:
    return {"prompt_tokens_details": {"cached_tokens": tokens, **more}}


def sent(**fields: Any) -> Any:
    return orjson.loads(DIALECT.request(call(**fields), route()).body)


@pytest.mark.parametrize(
    ("shape", "path"),
    [
        (Shape.CHAT, "/chat/completions"),
        (Shape.COMPLETION, "/completions"),
        (Shape.EMBEDDING, "/embeddings"),
    ],
)
def test_each_shape_has_its_path(shape: Shape, path: str) -> None:
    assert DIALECT.request(call(shape=shape), route()).url == f"https://par.acme.example/v1{path}"


@pytest.mark.parametrize(
    ("field", "other"), [("max_tokens", "max_completion_tokens"), ("max_completion_tokens", "max_tokens")]
)
def test_the_cap_goes_in_the_one_field_that_the_upstream_wants(field: str, other: str) -> None:
    body = orjson.loads(DIALECT.request(call(max_tokens=9), route(max_tokens_field=field)).body)
    assert body[field] == 9
    assert other not in body


def test_no_cap_and_no_default_is_made_up() -> None:
    assert sent() == {"messages": [{"role": "user", "content": "hello"}], "model": "model-upstream"}


def test_usage_is_requested_if_the_upstream_takes_stream_options() -> None:
    asked = orjson.loads(DIALECT.request(call(stream=True), route()).body)
    silent = orjson.loads(DIALECT.request(call(stream=True), route(upstream(stream_options=False))).body)
    assert asked["stream_options"] == {"include_usage": True}
    assert "stream_options" not in silent


def test_nothing_is_adjusted_but_a_hint_that_the_provider_refuses() -> None:
    assert DIALECT.request(call(temperature=2, user="u1"), route()).adjusted == ()
    refusing = route(upstream(refused_parameters=frozenset({"user", "n"})))
    assert DIALECT.request(call(n=1, user="u1"), refusing).adjusted == ("user",)


DEVELOPER = {"role": "developer", "content": "Be brief."}
THOUGHT = {"reasoning_content": "Hm.", "reasoning": "Hm.", "reasoning_details": [{}], "thinking_blocks": [{}]}
SAID_BEFORE = {"role": "assistant", "content": "Well."}


@pytest.mark.parametrize(("takes", "role"), [(True, "developer"), (False, "system")])
def test_a_developer_message_is_a_system_message_if_that_role_is_not_taken(takes: bool, role: str) -> None:
    request = DIALECT.request(call(DEVELOPER), route(upstream(developer_role=takes)))
    assert orjson.loads(request.body)["messages"] == [{"role": role, "content": "Be brief."}]


@pytest.mark.parametrize("takes", [True, False])
def test_the_reasoning_of_earlier_turns_is_sent_if_the_provider_takes_it(takes: bool) -> None:
    request = DIALECT.request(call({**SAID_BEFORE, **THOUGHT}), route(upstream(reasoning_content=takes)))
    assert orjson.loads(request.body)["messages"] == [{**SAID_BEFORE, **(THOUGHT if takes else {})}]


def test_cached_tokens_are_part_of_the_prompt() -> None:
    details = {"prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": {"reasoning_tokens": 2}}
    usage = usage_of({"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13, **details})
    assert usage == Usage(uncached_prompt=6, cache_read=4, completion=3, reasoning=2)
    assert usage.prompt == 10


def test_written_tokens_are_part_of_the_prompt() -> None:
    usage = usage_of(
        {
            "prompt_tokens": 1001,
            "completion_tokens": 1,
            "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 1000},
        }
    )
    assert usage == Usage(uncached_prompt=1, cache_read=0, cache_write_5m=1000, completion=1)


@pytest.mark.parametrize(
    ("total", "completion", "flags"),
    [(15, 5, ()), (None, 5, ()), ("15", 5, ()), (17, 7, ()), (16, 5, MISMATCH), (0, 5, MISMATCH)],
)
def test_reasoning_is_a_part_of_the_completion_unless_the_total_says_otherwise(
    total: Any, completion: int, flags: tuple[str, ...]
) -> None:
    usage = usage_of(
        {
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "total_tokens": total,
            "completion_tokens_details": {"reasoning_tokens": 2},
        }
    )
    assert usage == Usage(uncached_prompt=10, completion=completion, reasoning=2, flags=flags)


@pytest.mark.parametrize("reported", [None, {}, {"prompt_tokens": None}, {"completion_tokens": 3}, "many"])
def test_usage_without_prompt_tokens_is_none(reported: Any) -> None:
    assert usage_of(reported) is None


@pytest.mark.parametrize("wrong", [-1, 1.5, "3", True])
def test_a_count_that_cannot_be_is_contradictory(wrong: Any) -> None:
    for name in ("prompt_tokens", "completion_tokens"):
        with pytest.raises(ContradictoryUsage):
            usage_of({"prompt_tokens": 1, "completion_tokens": 1, name: wrong})


@pytest.mark.parametrize("details", [{"cached_tokens": 3}, {"cached_tokens": 1, "cache_write_tokens": 2}])
def test_more_cached_and_written_than_prompt_tokens_is_all_prompt(details: dict[str, int]) -> None:
    usage = usage_of({"prompt_tokens": 2, "completion_tokens": 1, "prompt_tokens_details": details})
    assert usage == Usage(uncached_prompt=2, completion=1, flags=("cache_mismatch",))


@pytest.mark.parametrize("name", ["cached_tokens", "num_cached_tokens", "prompt_cache_hit_tokens"])
def test_cache_hits_are_read_under_other_names_if_the_details_lack_them(name: str) -> None:
    reported = {"prompt_tokens": 10, "completion_tokens": 3, name: 4}
    assert usage_of(reported) == Usage(uncached_prompt=6, cache_read=4, completion=3)
    detailed = usage_of({**reported, "prompt_tokens_details": {"cached_tokens": 1}})
    assert detailed == Usage(uncached_prompt=9, cache_read=1, completion=3)
    none = usage_of({**reported, "prompt_tokens_details": {"cached_tokens": 0}})
    assert none == Usage(uncached_prompt=6, cache_read=4, completion=3, flags=("cache_counts_differ",))


RELAYED = {"prompt_tokens": 1100, "completion_tokens": 5}
PARTS = {"ephemeral_5m_input_tokens": 400, "ephemeral_1h_input_tokens": 600}
OF_A_MESSAGE = {"input_tokens": 100, "output_tokens": 5}


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        ({**RELAYED, "cache_creation_input_tokens": 1000, "cache_read_input_tokens": 50}, Usage(50, 50, 1000)),
        ({**RELAYED, **cached(50, cache_creation_tokens=1000)}, Usage(50, 50, 1000)),
        ({**RELAYED, **cached(50, cached_creation_tokens=1000)}, Usage(50, 50, 1000)),
        ({**RELAYED, "cache_creation_input_tokens": 1000, "cache_creation": PARTS}, Usage(100, None, 400, 600)),
        ({**RELAYED, "cache_read_input_tokens": 1000}, Usage(100, 1000)),
        (
            {**OF_A_MESSAGE, "cache_read_input_tokens": 1000, "cache_creation_input_tokens": 500},
            Usage(100, 1000, 500),
        ),
        ({**OF_A_MESSAGE, "prompt_tokens": 0, "completion_tokens": 0}, Usage(100)),
    ],
)
def test_a_relay_counts_the_cache_by_anthropics_names(reported: dict[str, Any], expected: Usage) -> None:
    assert usage_of(reported) == replace(expected, completion=5)


Counts = tuple[int, int, int | None]  # prompt, completion and cached tokens


@pytest.mark.parametrize(
    ("earlier", "newest", "expected"),
    [
        # Details that were sent once apply as long as the prompt's count stays the same.
        ([(1000, 1, 900)], (1000, 5, None), Usage(100, 900, completion=5)),
        ([(1000, 1, 900), (1000, 3, None)], (1000, 5, None), Usage(100, 900, completion=5)),
        ([(900, 1, 900)], (1000, 5, None), Usage(1000, completion=5)),
        ([(1000, 1, 900)], (1000, 5, 0), Usage(1000, 0, completion=5)),
        # A count of a prompt or a completion does not fall back to 0.
        ([(100, 1, None)], (0, 5, None), Usage(100, completion=5)),
        ([(100, 3, 60)], (0, 1, None), Usage(40, 60, completion=3)),
        ([(0, 3, None)], (0, 5, None), Usage(0, completion=5)),
    ],
)
def test_the_newest_usage_of_a_stream_is_completed_by_earlier_ones(
    earlier: list[Counts], newest: Counts, expected: Usage
) -> None:
    *before, last = [
        {"prompt_tokens": prompt, "completion_tokens": completion, **({} if hits is None else cached(hits))}
        for prompt, completion, hits in (*earlier, newest)
    ]
    assert usage_of(DIALECT.decoder(call()).completed(last, before[::-1])) == expected


# Thinking is only in the total, as with Gemini, and a prompt's audio is counted, as with Mistral.
THOUGHT_BESIDE: dict[str, Any] = {"prompt_tokens": 20, "completion_tokens": 10, "total_tokens": 90}
HEARD_BESIDE: dict[str, Any] = {
    "prompt_tokens": 9,
    "prompt_tokens_details": {"audio_tokens": 300, "cached_tokens": 0},
    "completion_tokens": 100,
    "total_tokens": 409,
}


@pytest.mark.parametrize(
    ("reported", "includes", "expected"),
    [
        (THOUGHT_BESIDE, {"reasoning"}, Usage(20, completion=70, reasoning=60)),
        (THOUGHT_BESIDE, {"audio_prompts"}, Usage(20, completion=10, flags=MISMATCH)),
        ({**THOUGHT_BESIDE, "total_tokens": 29}, {"reasoning"}, Usage(20, completion=10, flags=MISMATCH)),
        (HEARD_BESIDE, {"audio_prompts"}, Usage(309, 0, completion=100)),
        (HEARD_BESIDE, (), Usage(9, 0, completion=100, flags=MISMATCH)),
        ({**HEARD_BESIDE, "total_tokens": 410}, {"audio_prompts"}, Usage(9, 0, completion=100, flags=MISMATCH)),
    ],
)
def test_tokens_that_are_only_in_the_total_count_if_the_provider_counts_like_this(
    reported: Any, includes: Any, expected: Usage
) -> None:
    assert usage_of(reported, includes) == expected


def test_a_missing_completion_is_zero_if_the_total_is_the_prompt() -> None:
    assert usage_of({"prompt_tokens": 9, "total_tokens": 9}) == Usage(9)
    assert usage_of({"prompt_tokens": 9, "total_tokens": 10}) is None


def test_the_total_of_an_embedding_is_its_prompt() -> None:
    assert DIALECT.usage({"total_tokens": 3}, is_embedding=True) == Usage(3)
    assert DIALECT.usage({"prompt_tokens": 2, "total_tokens": 3}, is_embedding=True) == Usage(2)


def test_usage_on_every_chunk_is_cumulative() -> None:
    counted = [{**SAID, "usage": {"prompt_tokens": 1, "completion_tokens": n}} for n in (1, 2)]
    played = play(DIALECT, [*events(*counted, FINISH), b"data: [DONE]\n\n"])
    assert played.usage == Usage(uncached_prompt=1, completion=2)
    assert all("usage" not in chunk for chunk in played.raw)


def finished(index: int) -> dict[str, Any]:
    return {"choices": [{"index": index, "delta": {}, "finish_reason": "stop"}]}


def counted(completion: int) -> dict[str, Any]:
    return {
        "choices": [],
        "usage": {"prompt_tokens": 7, "completion_tokens": completion, "total_tokens": 7 + completion},
    }


@pytest.mark.parametrize(
    ("stream", "completion"),
    [
        ([finished(0), counted(3), finished(1), counted(3)], 6),  # llama.cpp: each choice's count after its finish
        ([finished(1), counted(3), finished(0), counted(9)], 12),
        ([finished(0), finished(1), counted(6)], 6),
        ([finished(0), finished(1), counted(6), counted(6)], 6),  # sent twice
        ([{**finished(0), "usage": counted(3)["usage"]}, finished(1), counted(6)], 6),  # cumulative, vLLM
        ([counted(0), finished(0), finished(1), counted(6)], 6),  # the prompt's count first
    ],
)
def test_usage_of_several_choices_is_added_up_if_each_has_its_own_count(
    stream: list[dict[str, Any]], completion: int
) -> None:
    decoder = DIALECT.decoder(call(n=2, choices=2))
    said = decoder.decode(map(orjson.dumps, stream))
    reported = [each.reported for each in said if isinstance(each, UsageReport)][-1]
    usage, _ = decoder.counted(reported)
    assert usage == Usage(uncached_prompt=7, completion=completion)
    assert DIALECT.usage(reported, is_embedding=False) == usage


def test_a_stream_without_done_is_complete_by_its_finish() -> None:
    played = play(DIALECT, events(SAID, FINISH))
    assert (played.reached_end, played.is_complete) == (False, True)


def thinking(*texts: str) -> dict[str, Any]:
    """Returns a thought in Mistral's form."""
    return {"type": "thinking", "thinking": [{"type": "text", "text": text} for text in texts], "closed": False}


TEXT = {"type": "text", "text": "Paris"}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ([TEXT, {"type": "text", "text": "."}], {"content": "Paris."}),
        ([thinking("Let ", "me"), thinking(" see."), TEXT], {"content": "Paris", "reasoning_content": "Let me see."}),
        ([thinking("Hm.")], {"reasoning_content": "Hm."}),
        (
            [{"type": "thinking", "thinking": "Hm.", "signature": "s"}, TEXT],
            {"content": "Paris", "reasoning_content": "Hm."},
        ),
        ([{"type": "refusal", "refusal": "No."}], {"refusal": "No."}),
        ([{"type": "output_text", "text": "Par"}, "is"], {"content": "Paris"}),
        ([TEXT, {"type": "reference", "reference_ids": [1]}], {"content": "Paris"}),
        ([{"type": "thinking", "thinking": [5, {"type": "reference"}]}, 5, None, {"type": []}, []], {}),
        ([], {}),
    ],
    ids=str,
)
def test_content_in_blocks_is_put_in_words(content: list[Any], expected: dict[str, str]) -> None:
    """Content in blocks is converted alike in whole answers and in streams."""
    reply = DIALECT.reply(orjson.dumps({"choices": [{"message": {"content": content, "x": 1}}]}), call())
    [choice] = chat_answer(reply.body, id="gen-1", created=1, model="m")["choices"]
    assert choice["message"] == {"role": "assistant", "content": None, "refusal": None, "x": 1, **expected}
    played = play(DIALECT, events({"choices": [{"index": 0, "delta": {"content": content, "x": 1}}]}, SAID, FINISH))
    first, *others = played.deltas
    assert (first["role"], first["x"]) == ("assistant", 1)
    assert others[-2:] == [{"content": "hi"}, {}]
    said = {name: played.text(name) for name in ("content", "reasoning_content", "refusal")}
    wanted = {**dict.fromkeys(said, ""), **expected}
    assert said == {**wanted, "content": wanted["content"] + "hi"}


def test_thinking_that_comes_as_blocks_and_as_text_is_delivered_once() -> None:
    delta = {"content": [thinking("Hm."), TEXT], "reasoning_content": "Hm."}
    assert play(DIALECT, events({"choices": [{"index": 0, "delta": delta}]})).deltas == [
        {"role": "assistant", "reasoning_content": "Hm."},
        {"content": "Paris"},
    ]


PASSED = {"input": "hi", "tools": [{"type": "function", "name": "weather"}]}
COUNTED = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 4},
    "output_tokens": 3,
    "output_tokens_details": {"reasoning_tokens": 2},
    "total_tokens": 13,
}


def test_a_response_is_requested_unchanged_and_never_stored() -> None:
    asked = call(shape=Shape.RESPONSES, max_tokens=99, stream=True, **PASSED)
    request = DIALECT.request(asked, route())
    assert request.url.endswith("/responses")
    assert orjson.loads(request.body) == {
        **PASSED, "model": "model-upstream", "store": False, "max_output_tokens": 99, "stream": True
    }  # fmt: skip


def test_the_usage_of_a_response_is_counted_as_that_of_a_chat() -> None:
    assert usage_of(COUNTED) == Usage(uncached_prompt=6, cache_read=4, completion=3, reasoning=2)
    assert usage_of({"input_tokens": 10}) is None
    with pytest.raises(ContradictoryUsage):
        usage_of({**COUNTED, "input_tokens": -3})


def test_a_streamed_response_ends_with_its_usage_and_fails_in_the_upstreams_words() -> None:
    decoder = DIALECT.decoder(call(shape=Shape.RESPONSES, **PASSED))
    delta = {"type": "response.output_text.delta", "delta": "hi"}
    assert decoder.decode([orjson.dumps(delta)]) == [TextDelta(delta, NO_CHOICE, delta["type"], "hi")]
    for kind in ("response.completed", "response.incomplete", "response.done"):
        last = {"type": kind, "response": {"output": [], "usage": COUNTED}}
        _, reported, end = decoder.decode([orjson.dumps(last)])
        assert (reported, end, decoder.counted(COUNTED)) == (
            UsageReport(COUNTED),
            StreamEnd(),
            (usage_of(COUNTED), None),
        )
    failed = {"type": "response.failed", "response": {"error": {"code": "server_error", "message": "Out of order."}}}
    for event in (failed, {"type": "error", "code": "server_error", "message": "Out of order."}):
        (failure,) = decoder.decode([orjson.dumps(event)])
        assert isinstance(failure, ReportedFailure)
        assert "Out of order" in failure.error.message
    counted = {"type": "response.failed", "response": {**object_of(failed["response"]), "usage": COUNTED}}
    reported, failure = decoder.decode([orjson.dumps(counted)])
    assert reported == UsageReport(COUNTED)
    assert isinstance(failure, ReportedFailure)


@pytest.mark.parametrize(
    ("said", "finish"),
    [
        ({"content": "hi"}, "stop"),
        ({"function_call": {"name": "f", "arguments": "{}"}}, "tool_calls"),
        ({"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "f"}}]}, "tool_calls"),
    ],
    ids=["a text", "a function call", "a tool call"],
)
def test_an_answer_finishes_with_tool_calls_only_if_it_has_one(said: dict[str, Any], finish: str) -> None:
    called = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    deltas = {"choices": [{"index": 0, "delta": said, "finish_reason": None}]}
    assert play(DIALECT, events(deltas, called)).finish == finish
    whole = {"choices": [{"index": 0, "message": said, "finish_reason": "tool_calls"}]}
    assert chat_answer(whole, id="gen-1", created=1, model="a/b/c")["choices"][0]["finish_reason"] == finish
