"""Both dialects handle fields that an upstream does not accept."""

from typing import Any

import orjson
import pytest

from catalogue.routing.routes import Route
from gateway.errors import InvalidRequest
from gateway.fastpath.http_client import UpstreamRequest
from inference.call import Call
from inference.dialects import DIALECTS
from tests.inference.dialects.routes import call, route, upstream

TOOL = {"type": "function", "function": {"name": "weather"}}
USUAL: list[dict[str, Any]] = [
    {"logprobs": False},
    {"top_logprobs": 0},
    {"logit_bias": {}},
    {"modalities": ["text"]},
    {"n": 1},
    {"presence_penalty": 0},
    {"frequency_penalty": 0.0},
    {"response_format": {"type": "text"}},
    {"parallel_tool_calls": True},
    {"parallel_tool_calls": False, "tools": []},
    {"tool_choice": "none"},
    {"functions": [], "function_call": "auto"},
    {"store": False},
    {"verbosity": "medium"},
    {"best_of": 1, "echo": False, "suffix": ""},
]
UNUSUAL: list[dict[str, Any]] = [
    {"logprobs": True},
    {"top_logprobs": 2, "logprobs": False},
    {"logit_bias": {"50256": -100}},
    {"modalities": ["text", "audio"]},
    {"audio": {"voice": "alloy", "format": "wav"}},
    {"n": 2},
    {"seed": 0},
    {"functions": [{"name": "weather"}], "function_call": "auto"},
    {"function_call": {"name": "weather"}},
    {"verbosity": "low"},
    {"best_of": 2},
]
ids = lambda fields: ", ".join(f"{name}={value}" for name, value in fields.items())  # noqa: E731


def refusing(dialect: str, *names: str) -> Route:
    return route(upstream(dialect=dialect, refused_parameters=frozenset(names)))


def dispatch(dialect: str, asked: Call, at: Route) -> UpstreamRequest:
    DIALECTS[dialect].check(asked, at)
    return DIALECTS[dialect].request(asked, at)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("fields", USUAL, ids=ids)
def test_fields_that_ask_for_the_usual_are_left_out_if_the_provider_refuses_them(
    dialect: str, fields: dict[str, Any]
) -> None:
    request = dispatch(dialect, call(**fields), refusing(dialect, *fields))
    assert orjson.loads(request.body).keys() <= {"model", "messages", "max_tokens"}
    assert request.adjusted == ()


@pytest.mark.parametrize("fields", USUAL, ids=ids)
def test_the_usual_is_sent_unchanged_if_nothing_is_known_of_the_provider(fields: dict[str, Any]) -> None:
    body = orjson.loads(DIALECTS["openai"].request(call(**fields), route()).body)
    assert {name: body[name] for name in fields} == fields


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("fields", UNUSUAL, ids=ids)
def test_what_would_change_the_answer_is_refused_by_name(dialect: str, fields: dict[str, Any]) -> None:
    """Anthropic's dialect refuses these fields even if the catalogue does not list them."""
    asked = call(**fields, choices=fields.get("n", 1))
    at = route(upstream(dialect=dialect)) if dialect == "anthropic" else refusing(dialect, *fields)
    with pytest.raises(InvalidRequest) as caught:
        DIALECTS[dialect].check(asked, at)
    assert caught.value.param in fields


def test_a_choice_among_tools_is_no_usual_one() -> None:
    with pytest.raises(InvalidRequest) as caught:
        DIALECTS["openai"].check(call(tools=[TOOL], tool_choice="none"), refusing("openai", "tool_choice"))
    assert caught.value.param == "tool_choice"


@pytest.mark.parametrize("name", ["prediction", "prompt_cache_key", "prompt_cache_retention", "metadata"])
def test_a_hint_that_has_no_counterpart_is_left_out_and_disclosed(name: str) -> None:
    value: Any = {"trace": "7"} if name in ("metadata", "prediction") else "x"
    for dialect, at in (("anthropic", route()), ("openai", refusing("openai", name))):
        request = dispatch(dialect, call(**{name: value}), at)
        assert name not in orjson.loads(request.body)
        assert request.adjusted == (name,)
