"""The Anthropic dialect translates the requested amount of thinking and the requested form of the answer."""

from typing import Any

import orjson
import pytest

from gateway.errors import InvalidRequest
from gateway.fastpath.http_client import UpstreamRequest
from inference.dialects.anthropic import AnthropicDialect
from tests.inference.dialects.routes import call, route

DIALECT = AnthropicDialect()
USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "weather"}}
SCHEMA = {
    "type": "object",
    "properties": {"kind": {"enum": [None, "a"], "default": None}},
    "additionalProperties": False,
}
JSON = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": SCHEMA}}


def requested(*messages: dict[str, Any], thinking: str = "budget", cap: int | None = None, **fields: Any) -> Any:
    own = {} if "own" not in fields else {"thinking": fields.pop("own")}
    return DIALECT.request(
        call(*messages, max_tokens=cap, **fields, **own), route(thinking=thinking, max_output_tokens=64000)
    )


def sent(request: UpstreamRequest) -> Any:
    return orjson.loads(request.body)


@pytest.mark.parametrize(
    ("effort", "cap", "budget"),
    [
        ("minimal", None, 1024),
        ("low", None, 2048),
        ("medium", None, 8192),
        ("high", None, 16384),
        ("xhigh", None, 32000),
        ("high", 10000, 5000),
        ("high", 1500, 1024),
        ("minimal", 1025, 1024),
    ],
)
def test_an_effort_becomes_a_budget_within_the_cap(effort: str, cap: int | None, budget: int) -> None:
    request = requested(reasoning_effort=effort, cap=cap)
    assert sent(request)["thinking"] == {"type": "enabled", "budget_tokens": budget}
    assert "reasoning_effort" not in sent(request)
    assert request.adjusted == ()


def test_a_cap_without_room_for_the_least_budget_leaves_thinking_out() -> None:
    request = requested(reasoning_effort="high", cap=1024, temperature=0.5)
    assert sent(request)["temperature"] == 0.5
    assert "thinking" not in sent(request)
    assert request.adjusted == ("reasoning_effort",)


@pytest.mark.parametrize(
    ("effort", "word"),
    [("minimal", "low"), ("low", "low"), ("medium", "medium"), ("high", "high"), ("xhigh", "xhigh")],
)
def test_an_effort_is_sent_as_such_to_a_model_that_decides_by_itself(effort: str, word: str) -> None:
    request = requested(reasoning_effort=effort, cap=16, thinking="adaptive")
    assert sent(request)["thinking"] == {"type": "adaptive"}
    assert sent(request)["output_config"] == {"effort": word}
    assert request.adjusted == ()


@pytest.mark.parametrize(("thinking", "expected"), [("budget", None), ("adaptive", {"type": "disabled"})])
def test_no_effort_is_no_thinking(thinking: str, expected: Any) -> None:
    request = requested(reasoning_effort="none", thinking=thinking, temperature=0.5)
    assert sent(request).get("thinking") == expected
    assert sent(request)["temperature"] == 0.5
    assert "output_config" not in sent(request)


@pytest.mark.parametrize("effort", ["extreme", 5, ["low"], ""])
def test_an_effort_that_does_not_exist_is_refused(effort: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        DIALECT.check(call(reasoning_effort=effort), route())
    assert caught.value.param == "reasoning_effort"


@pytest.mark.parametrize("thinking", ["budget", "adaptive"])
def test_the_clients_own_thinking_wins(thinking: str) -> None:
    own = {"type": "enabled", "budget_tokens": 2000}
    request = requested(reasoning_effort="high", thinking=thinking, own=own, temperature=0.5)
    assert sent(request)["thinking"] == own
    assert sent(request)["temperature"] == 0.5
    assert request.adjusted == (("reasoning_effort",) if thinking == "budget" else ())


@pytest.mark.parametrize("thinking", ["budget", "adaptive"])
def test_thinking_wins_over_the_sampling_that_it_forbids(thinking: str) -> None:
    fields: dict[str, Any] = {"reasoning_effort": "low", "thinking": thinking}
    request = requested(**fields, temperature=0.5, top_p=0.5, top_k=5)
    assert not {"temperature", "top_p", "top_k"} & sent(request).keys()
    assert request.adjusted == ("temperature", "top_p", "top_k")
    usual = requested(**fields, temperature=1, top_p=0.95)
    assert (sent(usual)["temperature"], sent(usual)["top_p"], usual.adjusted) == (1, 0.95, ())


@pytest.mark.parametrize("choice", ["required", TOOL])
def test_a_forced_tool_wins_over_thinking(choice: Any) -> None:
    fields: dict[str, Any] = {"reasoning_effort": "low", "tools": [TOOL], "tool_choice": choice, "temperature": 0.5}
    request = requested(**fields)
    assert "thinking" not in sent(request)
    assert request.adjusted == ("reasoning_effort",)
    adaptive = requested(**fields, thinking="adaptive")
    assert "thinking" not in sent(adaptive)
    assert (sent(adaptive)["output_config"], adaptive.adjusted) == ({"effort": "low"}, ())
    assert "thinking" in sent(requested(**{**fields, "tool_choice": "auto"}))


def test_tool_results_after_a_turn_without_its_thinking_go_on_without_any() -> None:
    called = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "sig"}
    turn = {"role": "assistant", "tool_calls": [called]}
    result = {"role": "tool", "tool_call_id": "1", "content": "sunny"}
    bare = requested(USER, turn, result, reasoning_effort="low", tools=[TOOL])
    assert "thinking" not in sent(bare)
    assert bare.adjusted == ("reasoning_effort",)
    kept = requested(USER, {**turn, "thinking_blocks": [thought]}, result, reasoning_effort="low", tools=[TOOL])
    assert "thinking" in sent(kept)
    assert "thinking" in sent(requested(USER, turn, result, {"role": "assistant", "content": "Sunny."}, USER,
                                        reasoning_effort="low", tools=[TOOL]))  # fmt: skip
    assert "thinking" in sent(requested(USER, turn, result, reasoning_effort="low", tools=[TOOL], thinking="adaptive"))


def test_a_turn_that_the_client_began_goes_on_without_thinking() -> None:
    request = requested(USER, {"role": "assistant", "content": "The answer is ("}, reasoning_effort="low")
    assert "thinking" not in sent(request)
    assert request.adjusted == ("reasoning_effort",)


def test_a_schema_of_the_answer_is_the_output_format() -> None:
    request = requested(response_format=JSON, reasoning_effort="low", thinking="adaptive")
    assert sent(request)["output_config"] == {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}}
    assert "response_format" not in sent(request)


def test_the_clients_own_output_config_wins() -> None:
    own = {"effort": "max", "x_new": 1}
    request = requested(response_format=JSON, reasoning_effort="low", thinking="adaptive", output_config=own)
    assert sent(request)["output_config"] == {"format": {"type": "json_schema", "schema": SCHEMA}, **own}
    assert sent(requested(output_config=own))["output_config"] == own


@pytest.mark.parametrize(
    ("form", "param"),
    [
        ({"type": "grammar"}, "response_format"),
        ("json", "response_format"),
        ({"type": "json_schema"}, "response_format.json_schema.schema"),
        ({"type": "json_schema", "json_schema": {"name": "answer"}}, "response_format.json_schema.schema"),
    ],
)
def test_a_form_that_has_no_counterpart_is_refused(form: Any, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        DIALECT.check(call(response_format=form), route())
    assert caught.value.param == param
