"""The fast check of a request and the serializer agree: the same values, or the same refusal."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rest_framework.serializers import ValidationError

from gateway.edge.exception_handler import from_exception
from gateway.edge.strict_fields import FastSerializer
from gateway.errors import ApiError, InvalidRequest
from inference.wire_forms import chat, completions, embeddings
from inference.wire_forms.chat import MAX_MESSAGES, MAX_TOOLS, _checked_message, _checked_tool, _message, _tool

Json = dict[str, Any]
CALL = {"id": "a", "type": "function", "function": {"name": "a", "arguments": ""}}
words = st.sampled_from(["", "none", "auto", "required", "function", "custom", "base64", "user", "tool", "assistant"])
scalars = st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False) | words | st.text(max_size=3)
values = st.recursive(
    st.none() | scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
named = st.fixed_dictionaries(
    {}, optional={"name": words | values, "arguments": words | values, "description": words, "parameters": values}
)
tools = st.fixed_dictionaries(
    {"type": words | values}, optional={"function": named, "custom": named, "id": words | values}
)
messages = st.fixed_dictionaries(
    {"role": words | values, "content": words | values},
    optional={"name": words | values, "tool_calls": st.lists(tools, max_size=2) | values, "tool_call_id": words},
)
likely = {
    "messages": st.lists(messages | values, max_size=3),
    "tools": st.lists(tools | values, max_size=2),
    "tool_choice": tools,
    "stream_options": st.fixed_dictionaries({}, optional={"include_usage": values}),
    "prompt": st.lists(words, max_size=2),
    "input": st.lists(words | st.integers(-1, 9) | st.lists(st.integers(-1, 9), max_size=2), max_size=3),
}


def bodies(checks: FastSerializer) -> st.SearchStrategy[Json]:
    declared: dict[str, Any] = dict(checks.serializer.fields.items())
    fields: Json = {
        name: (likely.get(name, scalars) | values).filter(lambda value: value is not None) for name in declared
    }
    required: Json = {name: fields.pop(name) for name, field in declared.items() if field.required}
    optional: Json = {**fields, "unknown": scalars}
    return st.fixed_dictionaries(required, optional=optional)


def outcome(check: Callable[[Json], Json], body: Json) -> Json | tuple[str, str | None]:
    try:
        return check(body)
    except (ApiError, ValidationError) as error:
        refusal = from_exception(error)
        return refusal.message, refusal.param


@pytest.mark.parametrize(
    "checks", [chat.CHECKS, completions.CHECKS, embeddings.CHECKS], ids=["chat", "completion", "embeddings"]
)
@given(data=st.data())
def test_both_ways_say_the_same(checks: FastSerializer, data: st.DataObject) -> None:
    body = data.draw(bodies(checks))
    assert outcome(lambda body: checks.checked(body)[1], body) == outcome(checks.serializer.run_validation, body)


usual = st.fixed_dictionaries(
    {"role": words, "content": st.none() | words},
    optional={
        "tool_call_id": words,
        "tool_calls": st.lists(
            st.fixed_dictionaries(
                {"id": words, "type": words, "function": st.fixed_dictionaries({"name": words, "arguments": words})}
            ),
            max_size=2,
        ),
    },
)


@given(message=usual | messages | values)
@example(message={"role": "assistant", "content": None, "tool_calls": [CALL]})
@example(message={"role": "tool", "content": "", "tool_call_id": "a"})
def test_the_short_check_of_a_message_says_what_the_long_one_says(message: Any) -> None:
    assert outcome(_message, message) == outcome(_checked_message, message)


usual_functions = st.fixed_dictionaries(
    {"name": words}, optional={"description": words, "parameters": st.just({}) | values, "strict": st.none() | values}
)


@given(
    tool=tools | values | st.fixed_dictionaries({"type": words, "function": usual_functions}, optional={"id": words})
)
@example(tool={"type": "function", "function": {"name": "a", "description": "", "parameters": {}}})
@example(tool={"type": "function", "function": {"name": "a", "description": "", "parameters": {}, "strict": None}})
def test_the_short_check_of_a_tool_says_what_the_long_one_says(tool: Any) -> None:
    assert outcome(_tool, tool) == outcome(_checked_tool, tool)


TINY_MESSAGE = {"role": "user", "content": ""}
TINY_TOOL = {"type": "function", "function": {"name": "a"}}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": [TINY_MESSAGE] * (MAX_MESSAGES + 1)}, "messages"),
        ({"messages": [TINY_MESSAGE], "tools": [TINY_TOOL] * (MAX_TOOLS + 1)}, "tools"),
    ],
    ids=["messages", "tools"],
)
def test_messages_and_tools_are_counted_once_they_are_parsed(body: Json, param: str) -> None:
    """The way in which their names are written does not matter: `"r\\u006fle"` and `"role"` differ in their bytes."""
    with pytest.raises(InvalidRequest) as refused:
        chat.CHECKS.checked({"model": "a/b/c", **body})
    assert refused.value.param == param


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{**TINY_MESSAGE, "name": "a"}] * 5000},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": ""}] * 5000}]},
        {"messages": [{"role": "assistant", "tool_calls": [{"id": "a", **TINY_TOOL}] * 5000}]},
        {"messages": [TINY_MESSAGE], "tools": [TINY_TOOL] * 5000},
    ],
    ids=["messages", "blocks", "tool calls", "tools"],
)
def test_others_have_their_turn_while_many_items_are_checked(body: Json, monkeypatch: pytest.MonkeyPatch) -> None:
    for item in body["messages"][0].get("tool_calls", []):
        item["function"] = {"name": "a", "arguments": ""}
    pauses: list[float] = []
    monkeypatch.setattr("gateway.server.turns.time.sleep", pauses.append)
    chat.CHECKS.checked({"model": "a/b/c", **body})
    assert len(pauses) >= 4


@pytest.mark.parametrize(
    "checks", [chat.CHECKS, completions.CHECKS, embeddings.CHECKS], ids=["chat", "completion", "embeddings"]
)
def test_no_field_has_validators_that_the_short_way_would_leave_out(checks: FastSerializer) -> None:
    assert [name for name, field in checks.serializer.fields.items() if field.validators] == []
    assert checks.serializer.validators == []
