"""A Responses request becomes the chat that goes upstream, or is refused."""

from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from rest_framework import serializers

from gateway.edge.exception_handler import from_exception
from gateway.errors import InvalidRequest
from inference.call import Call
from inference.wire_forms.responses.requests import call_of
from inference.wire_forms.responses.tools import Tools, choice_of
from inference.wire_forms.signatures import envelope_of

Json = dict[str, Any]

PNG = "data:image/png;base64,iVBORw0KGgo="
WEATHER = {"type": "function", "name": "weather", "description": "Of a city.", "parameters": {"type": "object"}}
PATCH = {"type": "custom", "name": "apply_patch", "description": "Edits files."}
NAMESPACE = {"type": "namespace", "name": "agents", "tools": [{"type": "function", "name": "close", "strict": False}]}
HI = {"role": "user", "content": "hi"}


def call(**fields: Any) -> Call:
    return call_of({"model": "sim/test/echo", "input": "hi", **fields})


def messages(*items: Json, **fields: Any) -> list[Json]:
    translated: list[Json] = call(input=list(items), **fields).body["messages"]
    return translated


def refused(**fields: Any) -> tuple[str | None, str]:
    """Returns the `param` and the message of a refusal."""
    with pytest.raises((InvalidRequest, serializers.ValidationError)) as caught:
        call(**fields)
    error = from_exception(caught.value)
    return error.param, error.message


def function_call(call_id: str, **fields: Any) -> Json:
    return {"type": "function_call", "call_id": call_id, "name": "weather", "arguments": "{}", **fields}


def output(call_id: str, text: Any = "rain") -> Json:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def called(call_id: str, name: str = "weather", arguments: str = "{}") -> Json:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def text(*texts: str) -> list[Json]:
    return [{"type": "input_text", "text": each} for each in texts]


def test_a_string_is_what_a_user_says_and_instructions_go_before_it() -> None:
    assert call(instructions="Be brief.").body["messages"] == [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}
    ]  # fmt: skip


def test_messages_keep_their_roles_and_their_content() -> None:
    image = {"type": "input_image", "image_url": PNG, "detail": "low"}
    file = {"type": "input_file", "file_data": "data:application/pdf;base64,AA==", "filename": "a.pdf"}
    answered = [{"type": "output_text", "text": "a", "annotations": []}, {"type": "output_text", "text": "b"}]
    assert messages(
        {"type": "message", "role": "developer", "content": text("one", "two")},
        {"role": "system", "content": text("one")},
        {"role": "user", "content": [*text("Look."), image, file]},
        {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "content": answered},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
    ) == [
        {"role": "developer", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
        {"role": "system", "content": "one"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Look."},
                {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
                {"type": "file", "file": {"file_data": file["file_data"], "filename": "a.pdf"}},
            ],
        },
        {"role": "assistant", "content": "ab"},
        {"role": "assistant", "content": None, "refusal": "No."},
    ]


def test_what_an_assistant_did_in_one_turn_is_one_message() -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
    spoken = {"role": "assistant", "content": "I will look."}
    assert messages(HI, thought, spoken, function_call("a"), function_call("b"), output("a"), output("b", "sun")) == [
        HI,
        {
            "role": "assistant",
            "content": "I will look.",
            "reasoning_content": "Hm.",
            "tool_calls": [called("a"), called("b")],
        },
        {"role": "tool", "tool_call_id": "a", "content": "rain"},
        {"role": "tool", "tool_call_id": "b", "content": "sun"},
    ]


def test_turns_that_follow_each_other_stay_apart() -> None:
    spoken = [{"role": "assistant", "content": "one"}, {"role": "assistant", "content": "two"}]
    assert messages(HI, *spoken) == [HI, *spoken]
    assert [message["role"] for message in messages(HI, function_call("a"), output("a"), function_call("b"))] == [
        "user", "assistant", "tool", "assistant"
    ]  # fmt: skip


def test_signed_thinking_comes_back_out_of_its_envelope_and_foreign_envelopes_are_left_out() -> None:
    blocks = [{"type": "thinking", "thinking": "Hm.", "signature": "sig"}]
    own = {"type": "reasoning", "summary": [], "encrypted_content": envelope_of(blocks)}
    foreign = {"type": "reasoning", "summary": [], "encrypted_content": "gAAAA"}
    broken = {"type": "reasoning", "summary": [], "encrypted_content": "gw1.!"}
    (_, turn) = messages(HI, own, foreign, broken, function_call("a"))
    assert turn["thinking_blocks"] == blocks
    assert "reasoning_content" not in turn


SAID: Json = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Yes."}]}


@pytest.mark.parametrize(
    ("fields", "disclosed"),
    [
        ({"reasoning": {"effort": "low", "max_tokens": 5000}}, "reasoning.max_tokens"),
        ({"reasoning": {"max_tokens": "many"}}, "reasoning.max_tokens"),
        ({"reasoning": {"max_tokens": 5000}}, None),
        ({"text": {"format": {"type": "text", "strict": True}}}, "text.format.strict"),
        ({"text": {"format": {"type": "json_object"}}}, None),
        ({"tool_choice": "required"}, None),
        ({"input": [{**HI, "output": "x"}]}, "output"),
        ({"input": [{**HI, "status": "completed", "id": "msg_1", "type": "message"}]}, None),
        ({"input": [HI, {**function_call("a"), "input": "x"}]}, "input"),
        ({"input": [HI, function_call("a"), {**output("a"), "name": "f"}]}, "name"),
        ({"input": [HI, {**SAID, "content": [{**SAID["content"][0], "cache_control": {"a": 1}}]}]}, "cache_control"),
        ({"input": [HI, {**SAID, "content": [{**SAID["content"][0], "annotations": [], "logprobs": []}]}]}, None),
        ({"input": [{"role": "user", "content": [{"type": "input_text", "text": "x", "detail": "low"}]}]}, "detail"),
        (
            {"input": [{"role": "user", "content": [
                {"type": "input_image", "image_url": "https://x.example/a.png", "filename": "a.png"}
            ]}]},
            "filename",
        ),
        (
            {"input": [HI, {
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": "Hm."}],
                "content": [{"type": "reasoning_text", "text": "Hm, well."}],
            }, SAID]},
            "summary",
        ),
    ],
)  # fmt: skip
def test_fields_that_a_chat_gets_differently_or_not_at_all_are_disclosed(fields: Json, disclosed: str | None) -> None:
    call = call_of({"model": "sim/test/echo", "input": "hi", **fields})
    assert list(call.adjusted_fields) == ([disclosed] if disclosed else [])


def test_reasoning_that_nothing_follows_is_left_out() -> None:
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}
    assert messages(HI, thought, HI) == [HI, HI]


def test_images_among_the_results_of_tools_stay_with_their_texts() -> None:
    shown = [*text("a chart"), {"type": "input_image", "image_url": PNG}]
    image = {"type": "image_url", "image_url": {"url": PNG}}
    *_, one, after = messages(HI, function_call("a"), output("a", shown), function_call("c"))
    assert one["content"] == [{"type": "text", "text": "a chart"}, image]
    assert after["tool_calls"] == [called("c")]


def test_function_tools_are_nested_and_custom_ones_become_functions_of_one_string() -> None:
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: WORD"}
    asked = call(tools=[WEATHER, {**PATCH, "format": grammar}, NAMESPACE])
    weather, patch, close = asked.body["tools"]
    assert weather["function"] == {"name": "weather", "description": "Of a city.", "parameters": {"type": "object"}}
    assert patch["function"]["parameters"]["required"] == ["input"]
    assert patch["function"]["description"] == "Edits files.\n\n`input` follows this lark grammar:\nstart: WORD"
    assert close["function"] == {"name": "agents__close", "strict": False}


def test_a_field_too_long_to_be_held_is_repeated_as_if_it_were_absent() -> None:
    schema = {"type": "json_schema", "name": "x", "schema": {"a": "b" * 200_000}}
    echo = orjson.loads(
        orjson.dumps(call(instructions="x" * 200_000, text={"format": schema}, user="u").form_state.echo)
    )
    assert (echo["instructions"], echo["text"], echo["user"]) == (None, {"format": {"type": "text"}}, "u")


def test_fields_that_may_not_be_null_are_absent_from_the_echo_if_they_were_not_sent() -> None:
    schema: Json = {"type": "json_schema", "name": "x", "schema": {}, "description": None}
    for asked in (call(text={"format": schema}), call(text={"format": schema}, user="u" * 200_000)):
        echo = orjson.loads(orjson.dumps(asked.form_state.echo))
        assert "user" not in echo
        assert echo["text"]["format"] == {"type": "json_schema", "name": "x", "schema": {}, "strict": None}
    described = call(text={"format": {**schema, "description": "Of a city."}}).form_state.echo["text"]
    assert orjson.loads(orjson.dumps(described))["format"]["description"] == "Of a city."


def test_the_message_names_every_kind_of_item() -> None:
    with pytest.raises(InvalidRequest, match=r"must be one of message, additional_tools, reasoning, .*_output\.$"):
        call(input=[{"type": "odd"}])


def test_tools_may_be_added_by_an_item() -> None:
    added = {"type": "additional_tools", "role": "developer", "tools": [NAMESPACE, PATCH]}
    asked = call(input=[added, HI], tools=[WEATHER])
    assert asked.body["messages"] == [HI]
    assert [tool["function"]["name"] for tool in asked.body["tools"]] == ["weather", "agents__close", "apply_patch"]
    assert refused(input=[HI, {**added, "tools": [{"type": "mcp"}]}])[0] == "input[1].tools[0].type"
    assert refused(input=[HI, {"type": "additional_tools"}])[0] == "input[1].tools"


def test_calls_of_custom_tools_and_of_namespaces_are_those_of_their_functions() -> None:
    custom = {"type": "custom_tool_call", "call_id": "a", "name": "apply_patch", "input": "*** Begin"}
    result = {"type": "custom_tool_call_output", "call_id": "a", "output": "ok"}
    *_, turn, answered, other = messages(HI, custom, result, function_call("b", name="close", namespace="agents"))
    assert turn["tool_calls"] == [called("a", "apply_patch", '{"input":"*** Begin"}')]
    assert answered == {"role": "tool", "tool_call_id": "a", "content": "ok"}
    assert other["tool_calls"] == [called("b", "agents__close")]


def test_a_name_that_is_too_long_ends_in_a_digest_the_same_each_time() -> None:
    tool = {"type": "namespace", "name": "n" * 60, "tools": [{"type": "function", "name": "close"}]}
    names = {call(tools=[tool]).body["tools"][0]["function"]["name"] for _ in range(2)}
    (name,) = names
    assert len(name) == 64


@pytest.mark.parametrize(
    ("choice", "sent", "names"),
    [
        ("auto", "auto", ["weather", "apply_patch", "agents__close"]),
        ("none", "none", ["weather", "apply_patch", "agents__close"]),
        ("required", "required", ["weather", "apply_patch", "agents__close"]),
        (
            {"type": "function", "name": "weather"},
            {"type": "function", "function": {"name": "weather"}},
            ["weather", "apply_patch", "agents__close"],
        ),
        (
            {"type": "custom", "name": "apply_patch"},
            {"type": "function", "function": {"name": "apply_patch"}},
            ["weather", "apply_patch", "agents__close"],
        ),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "custom", "name": "apply_patch"}]},
            "required",
            ["apply_patch"],
        ),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "close"}]},
            "auto",
            ["agents__close"],
        ),
    ],
)
def test_a_tool_choice_of_each_form(choice: Any, sent: Any, names: list[str]) -> None:
    body = call(tools=[WEATHER, PATCH, NAMESPACE], tool_choice=choice).body
    assert body["tool_choice"] == sent
    assert [tool["function"]["name"] for tool in body["tools"]] == names


class Walked(list[Json]):
    """Counts how often the list is iterated."""

    walks = 0

    def __iter__(self) -> Iterator[Json]:
        self.walks += 1
        return super().__iter__()


@pytest.mark.parametrize("many", [2, 50])
def test_allowed_tools_are_found_in_two_walks_however_many_there_are(many: int) -> None:
    """One walk for each would take a hundred million steps for ten thousand tools, and block all other requests."""
    functions = Walked({"type": "function", "function": {"name": f"f{number}"}} for number in range(many))
    allowed = [{"type": "function", "name": f"f{number}"} for number in range(many)]
    choice_of({"type": "allowed_tools", "mode": "auto", "tools": allowed}, Tools(functions, {}))
    assert functions.walks == 2


def test_a_choice_without_tools_is_left_out_unless_it_demands_a_call() -> None:
    assert "tool_choice" not in call(tool_choice="auto", parallel_tool_calls=True).body
    assert "parallel_tool_calls" not in call(tools=[], parallel_tool_calls=True).body
    assert call(tool_choice="required").body["tool_choice"] == "required"


def test_the_settings_go_by_their_names_in_chat() -> None:
    schema = {"type": "json_schema", "name": "city", "schema": {"type": "object"}, "strict": True}
    asked = call(
        max_output_tokens=100,
        text={"format": schema, "verbosity": "low"},
        reasoning={"effort": "high", "summary": "auto"},
        include=["message.output_text.logprobs", "reasoning.encrypted_content"],
        top_logprobs=3,
        temperature=0.5,
        user="u",
        prompt_cache_key="k",
        seed=7,
        client_metadata={"turn": "1"},
        metadata={"a": "b"},
        truncation="disabled",
        store=False,
        background=False,
        previous_response_id=None,
        max_tool_calls=3,
        stream=True,
        stream_options={"include_obfuscation": False},
    )
    assert (asked.max_tokens, asked.stream) == (100, True)
    assert asked.body == {
        "messages": [{"role": "user", "content": "hi"}],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "city", "schema": {"type": "object"}, "strict": True},
        },
        "verbosity": "low",
        "reasoning_effort": "high",
        "logprobs": True,
        "top_logprobs": 3,
        "temperature": 0.5,
        "user": "u",
        "prompt_cache_key": "k",
        "seed": 7,
    }


@pytest.mark.parametrize(
    ("field", "value"),
    [("store", True), ("previous_response_id", "resp_1"), ("conversation", "conv_1"), ("background", True)],
)
def test_what_needs_a_memory_is_refused_with_the_stateless_way(field: str, value: Any) -> None:
    param, message = refused(**{field: value})
    assert param == field
    assert "send the items of earlier responses back" in message
    assert "reasoning.encrypted_content" in message


@pytest.mark.parametrize("item", [{"type": "item_reference", "id": "msg_1"}, {"id": "msg_1"}])
def test_a_reference_to_an_item_is_refused_with_the_stateless_way(item: Json) -> None:
    param, message = refused(input=[HI, item])
    assert param == "input[1].type"
    assert "send the items of earlier responses back" in message
    assert "ask with `store: false`" in message


@pytest.mark.parametrize(
    "kind", ["web_search", "file_search", "computer_use_preview", "code_interpreter", "mcp", "image_generation"]
)
def test_tools_that_a_provider_runs_are_refused(kind: str) -> None:
    param, message = refused(tools=[WEATHER, {"type": kind}])
    assert param == "tools[1].type"
    assert "price and a place of its own" in message


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": 7}, "input"),
        ({"input": [7]}, "input[0]"),
        ({"input": [{"type": "web_search_call", "id": "ws_1"}]}, "input[0].type"),
        ({"input": [{"type": ["message"]}]}, "input[0].type"),
        ({"input": [{"role": "tool", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": 7}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": [7]}]}, "input[0].content[0]"),
        ({"input": [{"role": "user", "content": [{"type": "odd"}]}]}, "input[0].content[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input[0].content[0].text"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]},
            "input[0].content[0].file_id",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_file", "file_url": "u"}]}]},
            "input[0].content[0].file_url",
        ),
        ({"input": [{"role": "assistant", "content": [{"type": "input_image"}]}]}, "input[0].content[0].type"),
        ({"input": [{"type": "function_call", "call_id": "a", "name": "b"}]}, "input[0].arguments"),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0].call_id"),
        ({"input": [{"type": "reasoning", "summary": "x"}]}, "input[0].summary"),
        ({"input": [{"type": "reasoning", "summary": []}]}, "input"),
        ({"instructions": 7}, "instructions"),
        ({"max_output_tokens": 15}, "max_output_tokens"),
        ({"temperature": 3}, "temperature"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"truncation": "none"}, "truncation"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"metadata": {str(number): "x" for number in range(17)}}, "metadata"),
        ({"include": [1]}, "include"),
        ({"tools": [7]}, "tools[0]"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [{**WEATHER, "name": "n" * 129}]}, "tools[0].name"),
        ({"tools": [{"type": "function", "name": "a", "parameters": []}]}, "tools[0].parameters"),
        ({"tools": [{"type": "namespace", "name": "a"}]}, "tools[0].tools"),
        ({"tools": [{**NAMESPACE, "tools": [{"type": "mcp"}]}]}, "tools[0].tools[0].type"),
        ({"tool_choice": "some"}, "tool_choice"),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice.type"),
        ({"tool_choice": {"type": "function", "name": "absent"}, "tools": [WEATHER]}, "tool_choice.name"),
        ({"tool_choice": {"type": "allowed_tools", "mode": "odd"}, "tools": [WEATHER]}, "tool_choice.mode"),
        ({"tool_choice": {"type": "allowed_tools", "mode": "auto"}, "tools": [WEATHER]}, "tool_choice.tools"),
        ({"text": {"format": {"type": "odd"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "text.format.schema"),
        ({"reasoning": {"effort": 7}}, "reasoning.effort"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"context_management": [{"type": "compaction"}]}, "context_management"),
        ({"n": 2}, "n"),
        ({"messages": [HI]}, "messages"),
    ],
)
def test_what_is_wrong_is_named(fields: Json, param: str) -> None:
    assert refused(**fields)[0] == param
