"""The upstream of a chat completion gets the right request, and clients get what it sends beyond docs/api.md."""

import json

import pytest

from tests.chat import HELLO, PATH, answer, question, received, stream
from tests.inference.greeting import HI, WEATHER, Json
from tests.servers.customer import Customer

# --- The upstream's request


def test_the_upstream_gets_what_was_asked_and_no_defaults(account: Customer) -> None:
    request = received(account)
    assert (request["method"], request["path"], request["query"]) == ("POST", "/v1/chat/completions", {})
    assert request["body"] == {"model": "describe", "messages": HELLO, "max_tokens": 16}


def test_a_streamed_request_asks_the_upstream_for_usage_and_for_nothing_else(account: Customer) -> None:
    streamed = stream(account, "describe", max_tokens=16, stream_options={"include_usage": False, "else": 1})
    own = {"stream": True, "stream_options": {"include_usage": True}}
    assert json.loads(streamed.text)["body"] == {"model": "describe", "messages": HELLO, "max_tokens": 16, **own}


def test_every_field_of_the_spec_reaches_the_upstream_unchanged(account: Customer) -> None:
    fields: Json = {
        "temperature": 0,
        "top_p": 0.5,
        "n": 1,
        "stop": ["zebra"],
        "presence_penalty": -2,
        "frequency_penalty": 2,
        "user": "opaque",
        "tools": [WEATHER],
        "tool_choice": "none",
        "parallel_tool_calls": False,
    }
    body = received(account, **fields)["body"]
    assert {name: body[name] for name in fields} == fields


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"a": [None, 1.5]}}}},
        {"seed": 7},
        {"logprobs": True, "top_logprobs": 3},
        {"metadata": {"a": "b"}},
        {"reasoning_effort": "low"},
        {"of our own": [1, {"deep": [True, None, "wörld 🌍"]}]},
        {"service_tier": "auto"},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_fields_that_the_spec_does_not_name_reach_the_upstream_untouched(account: Customer, fields: Json) -> None:
    body = received(account, **fields)["body"]
    assert {name: body[name] for name in fields} == fields


def test_messages_reach_the_upstream_untouched_but_for_a_role_that_it_does_not_take(account: Customer) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"a": 1}'}, "extra": 1}
    messages: list[Json] = [
        {"role": "developer", "content": "Be brief.", "cache_control": {"type": "ephemeral"}},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}, {"type": "own", "a": [1]}]},
        {"role": "assistant", "content": "Hm.", "reasoning_content": "…", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny", "name": "weather"},
        {"role": "function", "name": "old", "content": "older"},
        {"role": "assistant", "content": None, "refusal": "No."},
    ]
    as_system = {**messages[0], "role": "system"}
    assert received(account, messages=messages)["body"]["messages"] == [as_system, *messages[1:]]


def test_nulls_within_messages_and_tools_are_absent_and_those_of_schemas_stay(account: Customer) -> None:
    schema = {"type": "object", "properties": {"a": {"enum": [None, 1], "default": None}}, "title": None}
    function = {"name": "weather", "arguments": "{}"}
    block = {"type": "text", "text": "hi", "cache_control": None}
    nothing = dict.fromkeys(("name", "refusal", "audio", "function_call", "reasoning_content"))
    sent: Json = {
        "messages": [
            {"role": "user", "content": [block], "name": None, "tool_calls": None},
            {
                **nothing,
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "1", "type": "function", "index": None, "custom": None, "function": {**function, "x": None}}
                ],
            },
            {"role": "tool", "tool_call_id": "1", "content": "sunny", "name": None},
        ],
        "tools": [
            {
                "type": "function",
                "cache_control": None,
                "function": {"name": "weather", "description": None, "strict": None, "parameters": schema},
            },
            {"type": "function", "function": {"name": "clock", "parameters": None}},
        ],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "description": None, "strict": None, "schema": schema},
        },
    }
    body = received(account, **sent)["body"]
    assert {name: body[name] for name in sent} == {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "1", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": "1", "content": "sunny"},
        ],
        "tools": [
            {"type": "function", "function": {"name": "weather", "parameters": schema}},
            {"type": "function", "function": {"name": "clock"}},
        ],
        "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}},
    }


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "custom", "custom": {"name": "grep"}},
        {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "custom"}]}},
    ],
    ids=lambda choice: choice["type"],
)
def test_custom_tools_and_their_calls_reach_the_upstream_untouched(account: Customer, choice: Json) -> None:
    tool = {"type": "custom", "custom": {"name": "grep", "format": {"type": "grammar", "grammar": {"syntax": "lark"}}}}
    call = {"id": "call_1", "type": "custom", "custom": {"name": "grep", "input": "a b"}}
    messages: list[Json] = [
        *HELLO,
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "found"},
    ]
    body = received(account, messages=messages, tools=[tool], tool_choice=choice)["body"]
    assert (body["messages"], body["tools"], body["tool_choice"]) == (messages, [tool], choice)


@pytest.mark.parametrize(
    ("caps", "sent"),
    [
        ({"max_tokens": 7}, 7),
        ({"max_completion_tokens": 8}, 8),
        ({"max_tokens": 7, "max_completion_tokens": 8}, 8),
        ({"max_tokens": 7, "max_completion_tokens": None}, 7),
        ({"max_tokens": None, "max_completion_tokens": 8}, 8),
    ],
)
def test_one_cap_reaches_the_upstream(account: Customer, caps: Json, sent: int) -> None:
    body = received(account, **{"max_tokens": None, **caps})["body"]
    assert {name: body[name] for name in body if name.startswith("max_")} == {"max_tokens": sent}


def test_the_cap_has_the_name_that_the_upstream_wants_and_the_credential_is_the_providers(
    account: Customer,
) -> None:
    request = received(account, model="simkey/test/other-cap", max_tokens=7)
    caps = {name: value for name, value in request["body"].items() if name.startswith("max_")}
    assert caps == {"max_completion_tokens": 7}
    assert header(request, "authorization") == "Bearer sim-secret-that-must-not-leak"


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_nothing_but_the_body_reaches_the_upstream(account: Customer, streams: bool) -> None:
    private = {
        "Cookie": "session=secret-1",
        "User-Agent": "secret-2",
        "X-Forwarded-For": "203.0.113.3",
        "X-Request-Id": "secret-4",
        "OpenAI-Organization": "secret-5",
        "traceparent": "00-secret-6-01",
        "Accept-Language": "secret-7",
        "Referer": "http://secret-8.example",
    }
    body = question("describe", stream=streams, max_tokens=16)
    text = account.http.post(PATH, json=body, headers=private).text
    assert "application/json" in text
    assert account.key not in text
    assert "secret" not in text
    assert "203.0.113.3" not in text


def header(request: Json, name: str) -> str | None:
    """Returns a header of the request that reached the upstream."""
    headers: dict[str, str] = request["headers"]
    return {key.lower(): value for key, value in headers.items()}.get(name)


def test_an_upstream_that_needs_no_credential_gets_none(account: Customer) -> None:
    assert header(received(account), "authorization") is None


# --- Fields of an answer beyond docs/api.md


def test_fields_of_an_answer_that_the_spec_does_not_name_are_passed_back(account: Customer) -> None:
    result = answer(account, "extra-fields", max_tokens=16)
    (choice,) = result["choices"]
    assert result["sim_answer"] == {"kept": True}
    assert choice["sim_choice"] == "kept"
    assert choice["message"]["sim_message"] == {"kept": True}
    assert result["system_fingerprint"] == "fp_simulated"


def test_fields_of_a_chunk_that_the_spec_does_not_name_are_passed_back(account: Customer) -> None:
    first = stream(account, "extra-fields").chunks[0]
    assert first["sim_answer"] == {"kept": True}
    assert first["choices"][0]["delta"]["sim_delta"] is True


@pytest.mark.parametrize("slug", ["reasoning", "content-blocks"])
def test_reasoning_is_passed_back(account: Customer, slug: str) -> None:
    message = answer(account, slug, max_tokens=16)["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("First I read the question.", "hello there")
    streamed = stream(account, slug)
    deltas = [choice["delta"] for chunk in streamed.chunks for choice in chunk["choices"]]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "First I read the question."
    assert streamed.text == "hello there"


def test_json_that_comes_as_an_object_is_the_text_that_clients_parse(account: Customer) -> None:
    assert (
        answer(account, "object-content", max_tokens=16)["choices"][0]["message"]["content"] == '{"said":"hello there"}'
    )


def test_a_refusal_is_passed_back(account: Customer) -> None:
    message = answer(account, "refusal")["choices"][0]["message"]
    assert (message["refusal"], message["content"]) == ("I cannot help with that.", None)
    with account.openai().chat.completions.stream(model="sim/test/refusal", messages=HI) as events:
        assert events.get_final_completion().choices[0].message.refusal == "I cannot help with that."


def test_logprobs_are_passed_back(account: Customer) -> None:
    tokens = [entry["token"] for entry in answer(account, "logprobs")["choices"][0]["logprobs"]["content"]]
    assert "".join(tokens) == "hello there"
    with account.openai().chat.completions.stream(model="sim/test/logprobs", messages=HI) as events:
        logprobs = events.get_final_completion().choices[0].logprobs
    assert logprobs is not None
    assert [entry.token for entry in logprobs.content or ()] == tokens
