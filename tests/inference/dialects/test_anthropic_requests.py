"""The Anthropic dialect converts a chat request to a message request."""

from typing import Any

import orjson
import pytest

from gateway.errors import InvalidRequest
from inference.call import Call, Shape
from inference.dialects.anthropic import AnthropicDialect
from tests.envelope import names_the_field
from tests.inference.dialects.routes import call, route, upstream
from tests.simulator.process import running

DIALECT = AnthropicDialect()
USER = {"role": "user", "content": "hi"}
PNG = "iVBORw0KGgo="
CACHED = {"type": "ephemeral", "ttl": "1h"}
TOOL = {"type": "function", "function": {"name": "weather"}}
CUSTOM = {"type": "custom", "custom": {"name": "grep"}}


def sent(*messages: dict[str, Any], **fields: Any) -> Any:
    return orjson.loads(DIALECT.request(call(*messages, **fields), route()).body)


def adjusted(**fields: Any) -> tuple[str, ...]:
    return DIALECT.request(call(**fields), route()).adjusted


def tool_call(arguments: str = '{"city":"Paris"}', call_id: str = "call_1") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "weather", "arguments": arguments}}


def tool_use(call_id: str = "call_1") -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "weather", "input": {"city": "Paris"}}


def refused_param(*messages: dict[str, Any], **fields: Any) -> str | None:
    """Returns the `param` of the refusal, whichever step makes it."""
    with pytest.raises(InvalidRequest) as caught:
        dispatch(call(*messages, **fields))
    assert names_the_field(caught.value.message, caught.value.param)
    return caught.value.param


def dispatch(ours: Call) -> None:
    DIALECT.check(ours, route())
    DIALECT.request(ours, route())


def test_the_version_is_in_a_header_that_a_provider_may_replace() -> None:
    headers = DIALECT.request(call(), route()).headers
    assert headers["anthropic-version"] == "2023-06-01"
    newer = route(upstream(extra_headers={"anthropic-version": "2030-01-01"}))
    assert DIALECT.request(call(), newer).headers["anthropic-version"] == "2030-01-01"


@pytest.mark.parametrize(("asked", "published", "cap"), [(5, 8192, 5), (None, 8192, 8192), (None, None, 4096)])
def test_max_tokens_is_always_sent(asked: int | None, published: int | None, cap: int) -> None:
    request = DIALECT.request(call(max_tokens=asked), route(max_output_tokens=published))
    assert orjson.loads(request.body)["max_tokens"] == cap


def test_nothing_else_is_made_up() -> None:
    assert sent(USER) == {"model": "model-upstream", "max_tokens": 8192, "messages": [USER]}


def test_embeddings_are_refused() -> None:
    assert refused_param(shape=Shape.EMBEDDING) == "model"


def test_a_bare_prompt_is_refused() -> None:
    with pytest.raises(InvalidRequest) as caught:
        DIALECT.check(Call(shape=Shape.COMPLETION, model="m", body={"prompt": "hi"}), route())
    assert caught.value.param == "model"


def test_more_than_one_choice_is_refused() -> None:
    assert refused_param(n=2, choices=2) == "n"
    assert "n" not in sent(n=1)


def test_system_and_developer_messages_become_system_blocks_in_order() -> None:
    cached = {"type": "text", "text": "two", "cache_control": CACHED}
    body = sent(
        {"role": "system", "content": "one"},
        USER,
        {"role": "developer", "content": [cached]},
        {"role": "system", "content": ""},
    )
    assert body["system"] == [{"type": "text", "text": "one"}, cached]
    assert body["messages"] == [USER]


def test_a_top_level_system_comes_first() -> None:
    body = sent({"role": "system", "content": "two"}, USER, system="one")
    assert [block["text"] for block in body["system"]] == ["one", "two"]
    assert refused_param(USER, system=7) == "system"


def test_content_blocks_go_as_they_came() -> None:
    blocks = [
        {"type": "text", "text": "look", "cache_control": CACHED},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}, "title": None},
        {"type": "image", "source": {"type": "url", "url": "https://pics.example/1.png"}},
    ]
    assert sent({"role": "user", "content": blocks})["messages"] == [{"role": "user", "content": blocks}]


def test_a_cache_mark_on_a_message_is_on_its_last_block() -> None:
    body = sent({**USER, "cache_control": CACHED})
    assert body["messages"][0]["content"] == [{"type": "text", "text": "hi", "cache_control": CACHED}]


@pytest.mark.parametrize(
    ("url", "source"),
    [
        (f"data:image/png;base64,{PNG}", {"type": "base64", "media_type": "image/png", "data": PNG}),
        (f"data:image/webp;name=a;base64,{PNG}", {"type": "base64", "media_type": "image/webp", "data": PNG}),
        ("https://pics.example/1.png", {"type": "url", "url": "https://pics.example/1.png"}),
        ("HTTP://pics.example/1.png", {"type": "url", "url": "HTTP://pics.example/1.png"}),
    ],
)
def test_images_are_translated(url: str, source: dict[str, str]) -> None:
    block = {"type": "image_url", "image_url": {"url": url, "detail": "low"}, "cache_control": CACHED}
    [message] = sent({"role": "user", "content": [block]})["messages"]
    assert message["content"] == [{"type": "image", "source": source, "cache_control": CACHED}]


@pytest.mark.parametrize("role", ["user", "system"])
def test_sound_is_refused(role: str) -> None:
    content = [{"type": "text", "text": "hear"}, {"type": "input_audio", "input_audio": {"data": "AAAA"}}]
    assert refused_param(USER, {"role": role, "content": content}) == "messages[1].content[1].type"


@pytest.mark.parametrize("url", ["ftp://pics.example/1", "data:image/png,raw", "data:;base64,AA", "", 7, None])
def test_an_image_from_elsewhere_is_refused(url: Any) -> None:
    content = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": url}}]
    assert refused_param(USER, {"role": "user", "content": content}) == "messages[1].content[1].image_url.url"


def test_tool_calls_become_blocks_after_the_text() -> None:
    assistant = {"role": "assistant", "content": "wait", "tool_calls": [tool_call(), tool_call(call_id="call_2")]}
    [message] = sent(assistant)["messages"]
    assert message == {
        "role": "assistant",
        "content": [{"type": "text", "text": "wait"}, tool_use(), tool_use("call_2")],
    }


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [TOOL, CUSTOM]}, "tools[1].type"),
        ({"tools": [TOOL], "tool_choice": CUSTOM}, "tool_choice.type"),
        ({"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "allowed_tools": {}}}, "tool_choice.type"),
    ],
)
def test_what_custom_tools_need_is_refused(fields: dict[str, Any], param: str) -> None:
    assert refused_param(USER, **fields) == param


def test_a_call_of_a_custom_tool_is_refused() -> None:
    calls = [tool_call(), {"id": "call_2", "type": "custom", "custom": {"name": "grep", "input": "a"}}]
    param = refused_param(USER, {"role": "assistant", "tool_calls": calls})
    assert param == "messages[1].tool_calls[1].type"


BLANK: dict[str, Any] = {"type": "text", "text": " \n"}
HI: dict[str, Any] = {"type": "text", "text": "hi"}


def test_blank_texts_are_left_out_of_lists() -> None:
    """Anthropic refuses blank texts, and with them the rest of the conversation."""
    called = {"role": "assistant", "content": [{**BLANK, "text": ""}], "tool_calls": [tool_call()]}
    answered = {"role": "tool", "tool_call_id": "call_1", "content": [BLANK]}
    body = sent({"role": "system", "content": [BLANK, HI]}, {"role": "user", "content": [BLANK, HI]}, called, answered)
    assert body["system"] == [HI]
    question, call_made, result = (message["content"] for message in body["messages"])
    assert (question, call_made) == ([HI], [tool_use()])
    assert result == [{"type": "tool_result", "tool_use_id": "call_1", "content": []}]


def test_an_assistant_that_said_nothing_but_white_space_is_left_out() -> None:
    user = {"role": "user", "content": "hi"}
    for content in ("", " ", [BLANK], []):
        assert sent(user, {"role": "assistant", "content": content}, user)["messages"] == [user, user]


def test_a_user_message_without_text_is_refused() -> None:
    for content in ([], [BLANK]):
        assert (
            refused_param({"role": "user", "content": "hi"}, {"role": "user", "content": content})
            == "messages[1].content"
        )
    assert refused_param({"role": "system", "content": "hi"}) == "messages"


@pytest.mark.parametrize("content", [None, ""])
def test_an_empty_text_next_to_tool_calls_makes_no_block(content: str | None) -> None:
    [message] = sent({"role": "assistant", "content": content, "tool_calls": [tool_call()]})["messages"]
    assert message["content"] == [tool_use()]


@pytest.mark.parametrize("arguments", ["{not json", '"text"', "[1]", "null"])
def test_arguments_that_are_no_json_object_are_the_clients_fault(arguments: str) -> None:
    assistant = {"role": "assistant", "tool_calls": [tool_call(), tool_call(arguments)]}
    assert refused_param(USER, assistant) == "messages[1].tool_calls[1].function.arguments"


def test_arguments_keep_their_text() -> None:
    arguments = '{"b": 123456789012345678901234567890, "a": 1.10}'
    request = DIALECT.request(call({"role": "assistant", "tool_calls": [tool_call(arguments)]}), route())
    assert arguments.encode() in request.body


@pytest.mark.parametrize("arguments", ["", " "])
def test_empty_arguments_are_an_empty_object(arguments: str) -> None:
    [message] = sent({"role": "assistant", "tool_calls": [tool_call(arguments)]})["messages"]
    assert message["content"][0]["input"] == {}


def test_tool_messages_become_one_user_message_with_the_results_first() -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://pics.example/1.png"}}
    body = sent(
        {"role": "assistant", "tool_calls": [tool_call(), tool_call(call_id="call_2")]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
        {"role": "user", "content": "and?"},
        {"role": "tool", "tool_call_id": "call_2", "content": [picture], "cache_control": CACHED},
        {"role": "assistant", "content": "well"},
        {"role": "user", "content": "thanks"},
    )
    image = {"type": "image", "source": {"type": "url", "url": "https://pics.example/1.png"}}
    assert body["messages"][1:] == [
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "call_1", "content": "sunny"},
                {"type": "tool_result", "tool_use_id": "call_2", "content": [image], "cache_control": CACHED},
                {"type": "text", "text": "and?"},
            ],
        },
        {"role": "assistant", "content": "well"},
        {"role": "user", "content": "thanks"},
    ]


def test_user_messages_without_results_stay_apart() -> None:
    assert len(sent(USER, USER)["messages"]) == 2


def test_ids_of_other_providers_are_made_acceptable_on_both_sides() -> None:
    body = sent(
        {"role": "assistant", "tool_calls": [tool_call(call_id="functions.weather:0")]},
        {"role": "tool", "tool_call_id": "functions.weather:0", "content": "sunny"},
    )
    assert body["messages"][0]["content"][0]["id"] == "functions_weather_0"
    assert body["messages"][1]["content"][0]["tool_use_id"] == "functions_weather_0"


def test_the_functions_of_old_become_tool_calls() -> None:
    body = sent(
        USER,
        {"role": "assistant", "content": None, "function_call": {"name": "weather", "arguments": '{"city":"Paris"}'}},
        {"role": "function", "name": "weather", "content": "sunny"},
    )
    assert body["messages"][1:] == [
        {"role": "assistant", "content": [tool_use("function_call_1")]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "function_call_1", "content": "sunny"}],
        },
    ]


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "function", "name": "weather", "content": "sunny"}, "messages[0].role"),
        ({"role": "assistant", "function_call": "weather"}, "messages[0].function_call"),
        (
            {"role": "assistant", "function_call": {"name": "weather", "arguments": "{"}},
            "messages[0].function_call.arguments",
        ),
    ],
)
def test_functions_of_old_that_make_no_sense_are_refused(message: dict[str, Any], param: str) -> None:
    assert refused_param(message) == param


def test_thinking_comes_back_unmodified_and_first() -> None:
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "sig", "new": 1}
    redacted = {"type": "redacted_thinking", "data": "opaque"}
    assistant = {
        "role": "assistant",
        "content": "well",
        "reasoning_content": "Hm.",
        "thinking_blocks": [{"index": 0, **thinking}, {"index": 1, **redacted}],
        "tool_calls": [tool_call()],
    }
    [message] = sent(assistant)["messages"]
    assert message["content"] == [thinking, redacted, {"type": "text", "text": "well"}, tool_use()]


def test_thinking_in_the_content_keeps_its_place() -> None:
    blocks = [{"type": "thinking", "thinking": "Hm.", "signature": "sig"}, {"type": "text", "text": "well"}]
    assistant = {"role": "assistant", "content": blocks, "thinking_blocks": [blocks[0]]}
    assert sent(assistant)["messages"] == [{"role": "assistant", "content": blocks}]


def test_unsigned_reasoning_is_dropped() -> None:
    unsigned = {"type": "thinking", "thinking": "Hm."}
    assistant = {"role": "assistant", "content": "well", "reasoning_content": "Hm.", "thinking_blocks": [unsigned]}
    assert sent(assistant)["messages"] == [{"role": "assistant", "content": "well"}]


def test_thinking_blocks_of_another_shape_are_refused() -> None:
    assistant = {"role": "assistant", "content": "well", "thinking_blocks": "Hm."}
    assert refused_param(USER, assistant) == "messages[1].thinking_blocks"


def test_an_assistant_that_said_nothing_is_left_out() -> None:
    assert sent(USER, {"role": "assistant", "content": ""}, USER)["messages"] == [USER, USER]


def test_a_refusal_in_the_history_is_text_and_names_are_dropped() -> None:
    assistant = {"role": "assistant", "name": "bot", "content": [{"type": "refusal", "refusal": "No."}]}
    assert sent(assistant)["messages"] == [{"role": "assistant", "content": [{"type": "text", "text": "No."}]}]


@pytest.mark.parametrize("content", [{"content": None}, {"content": ""}, {}], ids=str)
def test_a_refusal_in_place_of_content_is_what_the_assistant_said(content: dict[str, Any]) -> None:
    assistant = {"role": "assistant", **content, "refusal": "No."}
    assert sent(USER, assistant, USER)["messages"] == [USER, {"role": "assistant", "content": "No."}, USER]
    assert sent(USER, {**assistant, "content": "Yes."})["messages"][1] == {"role": "assistant", "content": "Yes."}


def test_tools_are_flattened() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    function = {"name": "clock", "description": "The time.", "parameters": schema, "strict": False}
    body = sent(tools=[TOOL, {"type": "function", "function": function, "cache_control": CACHED}])
    assert body["tools"] == [
        {"name": "weather", "input_schema": {"type": "object", "properties": {}}},
        {"cache_control": CACHED, "name": "clock", "description": "The time.", "input_schema": schema},
    ]


@pytest.mark.parametrize(
    ("choice", "parallel", "expected"),
    [
        (None, None, None),
        ("none", None, {"type": "none"}),
        ("auto", None, {"type": "auto"}),
        ("required", True, {"type": "any"}),
        (TOOL, None, {"type": "tool", "name": "weather"}),
        (None, False, {"type": "auto", "disable_parallel_tool_use": True}),
        ("auto", False, {"type": "auto", "disable_parallel_tool_use": True}),
        ("required", False, {"type": "any", "disable_parallel_tool_use": True}),
        (TOOL, False, {"type": "tool", "name": "weather", "disable_parallel_tool_use": True}),
        ("none", False, {"type": "none"}),
    ],
)
def test_the_tool_choice_is_translated(choice: Any, parallel: bool | None, expected: Any) -> None:
    fields = {"tool_choice": choice, "parallel_tool_calls": parallel}
    body = sent(tools=[TOOL], **{name: value for name, value in fields.items() if value is not None})
    assert body.get("tool_choice") == expected
    assert "parallel_tool_calls" not in body


@pytest.mark.parametrize("fields", [{"parallel_tool_calls": False}, {"tool_choice": "auto"}, {"tool_choice": "none"}])
def test_without_tools_there_is_nothing_to_choose(fields: Any) -> None:
    """Without tools the API refuses any choice, even one that changes nothing."""
    assert not {"tools", "tool_choice"} & sent(tools=[], **fields).keys()


@pytest.mark.parametrize(("stop", "sequences"), [("x", ["x"]), (["x", "y"], ["x", "y"]), ([], None)])
def test_stop_becomes_stop_sequences(stop: Any, sequences: list[str] | None) -> None:
    body = sent(stop=stop)
    assert body.get("stop_sequences") == sequences
    assert "stop" not in body


def test_the_user_is_in_the_metadata() -> None:
    assert sent(user="u1")["metadata"] == {"user_id": "u1"}
    assert sent(user="u1", metadata={"user_id": "own"})["metadata"] == {"user_id": "own"}
    assert sent(metadata={"user_id": "own"})["metadata"] == {"user_id": "own"}
    assert sent(safety_identifier="s1")["metadata"] == {"user_id": "s1"}
    assert "user" not in sent(user="u1")


@pytest.mark.parametrize(
    ("asked", "expected", "disclosed"),
    [(0, 0, ()), (0.7, 0.7, ()), (1, 1, ()), (1.01, 1, ("temperature",)), (2, 1, ("temperature",))],
)
def test_a_temperature_above_one_is_clamped_and_disclosed(
    asked: float, expected: float, disclosed: tuple[str, ...]
) -> None:
    assert sent(temperature=asked)["temperature"] == expected
    assert adjusted(temperature=asked) == disclosed


@pytest.mark.parametrize("name", ["presence_penalty", "frequency_penalty"])
def test_a_penalty_is_left_out_if_it_is_zero_and_otherwise_refused(name: str) -> None:
    nothing: dict[str, Any] = {name: 0}
    assert name not in sent(**nothing)
    assert adjusted(**nothing) == ()
    asked: dict[str, Any] = {name: 0.5}
    with pytest.raises(InvalidRequest) as caught:
        DIALECT.check(call(**asked), route())
    assert caught.value.param == name


@pytest.mark.parametrize(
    ("tier", "expected"), [("auto", "auto"), ("default", "standard_only"), ("standard_only", "standard_only")]
)
def test_the_usual_service_tiers_are_translated(tier: str, expected: str) -> None:
    assert sent(service_tier=tier)["service_tier"] == expected


def test_store_false_is_what_anthropic_does_anyway() -> None:
    assert "store" not in sent(store=False)


def test_the_usual_speed_is_taken() -> None:
    assert sent(speed="standard")["speed"] == "standard"


def test_anthropics_own_fields_go_as_they_came() -> None:
    own = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "top_k": 5, "cache_control": CACHED}
    body = sent(**own, top_p=0.5)
    assert {name: body[name] for name in own} == own
    assert body["top_p"] == 0.5


def test_the_simulated_provider_takes_a_whole_conversation() -> None:
    weather = {"role": "assistant", "content": None, "tool_calls": [tool_call()]}
    sunny = {"role": "tool", "tool_call_id": "call_1", "content": "sunny"}
    with running() as provider:
        request = DIALECT.request(
            call({"role": "system", "content": "be brief"}, USER, weather, sunny, tools=[TOOL]),
            route(upstream_model="tools", base_url=provider.url),
        )
        with provider.open("/v1/messages", orjson.loads(request.body)) as response:
            reply = DIALECT.reply(response.read(), call())
    assert "sunny" in reply.body["choices"][0]["message"]["content"]
    assert reply.usage is not None
