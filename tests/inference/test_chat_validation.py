"""A chat completion request is checked (docs/api.md#chat-completions), and each fault is reported with its `param`."""

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests import bills
from tests.chat import HELLO, PATH, answer, ask, question, received
from tests.conftest import OpenAccount
from tests.envelope import faulty_field, message, refusal
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer

Json = dict[str, Any]

USER: Json = {"role": "user", "content": "hello there"}
FUNCTION: Json = {"name": "weather", "description": "The weather.", "parameters": {"type": "object"}}
TOOL: Json = {"type": "function", "function": FUNCTION}
CUSTOM_TOOL: Json = {"type": "custom", "custom": {"name": "grep", "description": "", "format": {"type": "text"}}}
CUSTOM_CALL: Json = {"id": "call_2", "type": "custom", "custom": {"name": "grep", "input": "a b"}}
ALLOWED_TOOLS: Json = {"mode": "auto", "tools": [{"type": "custom", "custom": {"name": "grep"}}]}
TOOL_CALL: Json = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
CALLING: Json = {"role": "assistant", "tool_calls": [TOOL_CALL]}
MISSING = object()

NOT_TEXT: tuple[object, ...] = (5, True, [], {})
NOT_NUMBERS: tuple[object, ...] = ("1", True, [], {})
NOT_WHOLE: tuple[object, ...] = ("1", True, 1.5, [], {})
NOT_FLAGS: tuple[object, ...] = ("true", 1, 0, [], {})


def each(*values: object) -> tuple[object, ...]:
    return values


def chat(*messages: object) -> Json:
    return {"messages": list(messages)}


def calling(**changes: object) -> Json:
    """Returns a conversation with changes to an assistant's only tool call."""
    return chat(USER, {**CALLING, "tool_calls": [changed(TOOL_CALL, changes)]})


def tool(**changes: object) -> Json:
    return {"tools": [changed(TOOL, changes)]}


def changed(whole: Json, changes: Json) -> Json:
    return {name: value for name, value in {**whole, **changes}.items() if value is not MISSING}


# Lists faulty requests, each with the field that the error names.
FAULTS: list[tuple[Json, str]] = [
    ({"model": MISSING}, "model"),
    ({"model": None}, "model"),
    *(({"model": value}, "model") for value in NOT_TEXT),
    ({"messages": MISSING}, "messages"),
    ({"messages": None}, "messages"),
    *(({"messages": value}, "messages") for value in each([], {}, "hello", 5, True)),
    (chat("hello"), "messages[0]"),
    (chat(None), "messages[0]"),
    (chat(USER, [USER]), "messages[1]"),
    (chat({"content": "hello"}), "messages[0].role"),
    *(
        (chat(USER, {"role": role, "content": "hello"}), "messages[1].role")
        for role in each(None, "robot", "User", 1, [])
    ),
    *((chat({"role": role}), "messages[0].content") for role in each("system", "user", "assistant", "function")),
    (chat(USER, CALLING, {"role": "tool", "tool_call_id": "call_1"}), "messages[2].content"),
    *((chat({"role": "user", "content": value}), "messages[0].content") for value in each(None, 5, True, {})),
    (chat({"role": "assistant", "content": None, "tool_calls": []}), "messages[0].content"),
    *((chat({"role": "assistant", "refusal": value}), "messages[0].content") for value in each(None, "", 5, ["No."])),
    (chat({"role": "user", "content": None, "refusal": "No."}), "messages[0].content"),
    (chat({"role": "assistant", "content": {}, "refusal": "No."}), "messages[0].content"),
    (chat({"role": "user", "content": ["hello"]}), "messages[0].content[0]"),
    (chat({"role": "user", "content": [{"text": "hello"}]}), "messages[0].content[0].type"),
    (chat({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": 5}]}), "messages[0].content[1].type"),
    *((chat({**USER, "name": value}), "messages[0].name") for value in NOT_TEXT),
    *(
        (chat({**CALLING, "tool_calls": value}), "messages[0].tool_calls")
        for value in each("weather", 5, True, TOOL_CALL)
    ),
    (chat({**USER, "tool_calls": [TOOL_CALL]}), "messages[0].tool_calls"),
    (chat({**CALLING, "tool_calls": ["weather"]}), "messages[0].tool_calls[0]"),
    *((calling(id=value), "messages[1].tool_calls[0].id") for value in each(MISSING, None, 5)),
    *((calling(type=value), "messages[1].tool_calls[0].type") for value in each("", "tool", 5)),
    *((calling(function=value), "messages[1].tool_calls[0].function") for value in each(MISSING, None, "weather", [])),
    *(
        (calling(function={"name": value, "arguments": "{}"}), "messages[1].tool_calls[0].function.name")
        for value in each(None, 5)
    ),
    *(
        (calling(function={"name": "weather", "arguments": value}), "messages[1].tool_calls[0].function.arguments")
        for value in each(None, {}, 5)
    ),
    *(
        (chat(USER, CALLING, {"role": "tool", "content": "sunny", "tool_call_id": value}), "messages[2].tool_call_id")
        for value in each(None, 5, [])
    ),
    (chat(USER, CALLING, {"role": "tool", "content": "sunny"}), "messages[2].tool_call_id"),
    *(({"temperature": value}, "temperature") for value in each(-0.1, 2.1, *NOT_NUMBERS)),
    *(({"top_p": value}, "top_p") for value in each(-0.1, 1.1, *NOT_NUMBERS)),
    *(({"n": value}, "n") for value in each(0, -1, *NOT_WHOLE)),
    *(({"stream": value}, "stream") for value in NOT_FLAGS),
    *(({"stop": value}, "stop") for value in each(5, True, {}, [5], ["a", None])),
    *(({"max_tokens": value}, "max_tokens") for value in each(0, -1, *NOT_WHOLE)),
    *(({"max_completion_tokens": value}, "max_completion_tokens") for value in each(0, -1, *NOT_WHOLE)),
    *(({"presence_penalty": value}, "presence_penalty") for value in each(-2.1, 2.1, *NOT_NUMBERS)),
    *(({"frequency_penalty": value}, "frequency_penalty") for value in each(-2.1, 2.1, *NOT_NUMBERS)),
    *(({"user": value}, "user") for value in NOT_TEXT),
    *(({"tools": value}, "tools") for value in each({}, "weather", 5, True, TOOL)),
    *(({"tools": [TOOL, value]}, "tools[1]") for value in each("weather", None, [])),
    *((tool(type=value), "tools[0].type") for value in each("", "search", 5)),
    *((tool(function=value), "tools[0].function") for value in each(MISSING, None, "weather", [])),
    *((tool(function={**FUNCTION, "name": value}), "tools[0].function.name") for value in each(None, 5, [])),
    (tool(function={}), "tools[0].function.name"),
    *((tool(function={**FUNCTION, "description": value}), "tools[0].function.description") for value in NOT_TEXT),
    *(
        (tool(function={**FUNCTION, "parameters": value}), "tools[0].function.parameters")
        for value in each("{}", 5, [])
    ),
    *(({"tool_choice": value}, "tool_choice") for value in each("some", "", 5, True, [])),
    ({"tool_choice": {"type": "auto"}}, "tool_choice.type"),
    *(({"tool_choice": value}, "tool_choice.function") for value in each({}, {"type": None})),
    *((tool(type="custom", custom=value), "tools[0].custom") for value in each(MISSING, None, "grep", [])),
    (tool(type="custom", custom={"format": {}}), "tools[0].custom.name"),
    (tool(type="custom", custom={"name": "grep", "description": 5}), "tools[0].custom.description"),
    (tool(type="custom", custom={"name": "grep", "format": "text"}), "tools[0].custom.format"),
    (calling(type="custom"), "messages[1].tool_calls[0].custom"),
    *(
        (calling(type="custom", custom={"name": value, "input": "a"}), "messages[1].tool_calls[0].custom.name")
        for value in each(None, 5)
    ),
    *(
        (calling(type="custom", custom={"name": "grep", "input": value}), "messages[1].tool_calls[0].custom.input")
        for value in each(None, {}, 5)
    ),
    ({"tool_choice": {"type": "custom", "custom": {}}}, "tool_choice.custom.name"),
    *(
        ({"tool_choice": {"type": "allowed_tools", "allowed_tools": value}}, "tool_choice.allowed_tools")
        for value in each(None, [], "auto")
    ),
    *(
        ({"tool_choice": {"type": "allowed_tools", "allowed_tools": value}}, f"tool_choice.allowed_tools.{name}")
        for value, name in (
            ({"tools": []}, "mode"),
            ({"mode": "none", "tools": []}, "mode"),
            ({"mode": ["auto"], "tools": []}, "mode"),
            ({"mode": "auto"}, "tools"),
            ({"mode": "auto", "tools": {}}, "tools"),
            ({"mode": "auto", "tools": ["grep"]}, "tools[0]"),
        )
    ),
    ({"tool_choice": {"type": "function"}}, "tool_choice.function"),
    ({"tool_choice": {"type": "function", "function": {}}}, "tool_choice.function.name"),
    ({"tool_choice": {"type": "function", "function": {"name": 5}}}, "tool_choice.function.name"),
    *(({"parallel_tool_calls": value}, "parallel_tool_calls") for value in NOT_FLAGS),
    *(({"stream_options": value}, "stream_options") for value in each("usage", 5, True, [])),
    *(({"stream_options": {"include_usage": value}}, "stream_options.include_usage") for value in each("yes", 1)),
    # These would change price, place or provider without the gateway's knowledge.
    *(({"service_tier": value}, "service_tier") for value in each("priority", "flex", "scale", "")),
    *(({name: "x"}, name) for name in ("inference_geo", "provider", "models", "route", "web_search_options")),
    ({"store": True}, "store"),
]

ACCEPTED: list[Json] = [
    *({"temperature": value} for value in (0, 0.5, 1, 2, 2.0)),
    *({"top_p": value} for value in (0, 0.5, 1)),
    *({name: value} for name in ("presence_penalty", "frequency_penalty") for value in (-2, 0, 0.5, 2)),
    *({name: 1} for name in ("n", "max_tokens", "max_completion_tokens")),
    {"n": 3},
    {"max_tokens": 2**63},
    {"stream": False},
    {"stream": False, "stream_options": {"include_usage": True}},
    {"stop": "zebra"},
    {"stop": ["zebra", "lion"]},
    {"stop": []},
    {"user": ""},
    {"tools": [TOOL]},
    {"tools": []},
    {"tools": [{"type": "function", "function": {"name": "weather", "strict": True}}]},
    *({"tools": [TOOL], "tool_choice": value} for value in ("none", "auto", "required", "any")),
    {"tools": [TOOL], "tool_choice": {"type": None, "function": {"name": "weather"}}},
    {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "weather"}}},
    {"tools": [CUSTOM_TOOL, TOOL], "tool_choice": {"type": "custom", "custom": {"name": "grep"}}},
    {"tools": [CUSTOM_TOOL], "tool_choice": {"type": "allowed_tools", "allowed_tools": ALLOWED_TOOLS}},
    chat(USER, {**CALLING, "tool_calls": [CUSTOM_CALL]}, {"role": "tool", "tool_call_id": "call_2", "content": "x"}),
    {"tools": [TOOL], "parallel_tool_calls": False},
    *(chat({"role": role, "content": "hello"}, USER) for role in ("system", "developer", "user", "assistant")),
    chat({"role": "function", "name": "weather", "content": "sunny"}, USER),
    chat({**USER, "name": "Ann"}),
    chat(USER, CALLING, {"role": "tool", "tool_call_id": "call_1", "content": "sunny"}),
    chat(USER, {**CALLING, "content": None, "refusal": None, "name": None}, USER),
    chat(USER, {"role": "assistant", "content": None, "refusal": "No."}, USER),
    chat(USER, {"role": "assistant", "refusal": "No."}, USER),
    chat({"role": "user", "content": [{"type": "text", "text": "hello"}]}),
    chat({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}, {"type": "of our own"}]}),
    {"service_tier": "auto"},
    {"service_tier": "default"},
    {"store": False},
    {"response_format": {"type": "json_object"}, "seed": 7, "logit_bias": {"50256": -100}, "metadata": {"a": "b"}},
]

OPTIONAL = [
    "temperature",
    "top_p",
    "n",
    "stream",
    "stream_options",
    "stop",
    "max_tokens",
    "max_completion_tokens",
    "presence_penalty",
    "frequency_penalty",
    "user",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "service_tier",
    "store",
    "seed",
    "response_format",
]

# These bodies are not JSON objects.
UNSOUND: dict[str, bytes] = {
    "empty": b"",
    "blank": b"  ",
    "cut short": b'{"model": "sim/test/echo"',
    "a trailing comma": b'{"model": "sim/test/echo",}',
    "two objects": b"{}{}",
    "single quotes": b"{'model': 'x'}",
    "a form": b"model=x&messages=y",
    "bad UTF-8": b'{"model": "\xff\xfe"}',
    "half a surrogate pair": b'{"model": "\\ud800"}',
    "a raw newline in a string": b'{"model": "a\nb"}',
    "NaN": b'{"temperature": NaN}',
    "Infinity": b'{"temperature": Infinity}',
    "too deep": b'{"a":' * 100_000,
    "deep but closed": b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}",
    "an array": b"[]",
    "a string": b'"hello"',
    "a number": b"5",
    "null": b"null",
    "true": b"true",
}


@pytest.fixture(scope="module")
def customer(gateway: GatewayServer) -> Iterator[Customer]:
    """Opens one account for all tests: refused requests cost nothing."""
    with closing(Customer.open(gateway)) as opened:
        yield opened


@pytest.mark.parametrize(("changes", "param"), FAULTS, ids=[f"{param}-{i}" for i, (_, param) in enumerate(FAULTS)])
def test_a_fault_is_answered_with_400_and_the_field(customer: Customer, changes: Json, param: str) -> None:
    reply = customer.http.post(PATH, json=changed(question("echo"), changes))
    assert faulty_field(reply) == param
    assert reply.headers["x-should-retry"] == "false"


@pytest.mark.parametrize("fields", ACCEPTED, ids=[json.dumps(fields)[:60] for fields in ACCEPTED])
def test_what_the_spec_allows_is_served(customer: Customer, fields: Json) -> None:
    assert ask(customer, "echo", **fields).status_code == 200


@pytest.mark.parametrize("name", OPTIONAL)
def test_null_is_absent(customer: Customer, name: str) -> None:
    assert name not in received(customer, **{name: None})["body"]


@pytest.mark.parametrize("body", UNSOUND.values(), ids=UNSOUND)
def test_a_body_that_is_no_json_object_is_refused(customer: Customer, body: bytes) -> None:
    reply = customer.http.post(PATH, data=body, headers={"Content-Type": "application/json"})
    assert refusal(reply) == (400, "invalid_request_error", "invalid_request_error", None)


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "",
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "multipart/form-data; boundary=x",
        "application/json; charset=latin-1",
        "application/json; charset=nonsense",
        "nonsense",
    ],
)
def test_json_is_read_whatever_the_content_type(customer: Customer, content_type: str | None) -> None:
    body = json.dumps(question("echo", messages=[{"role": "user", "content": "wörld"}]), ensure_ascii=False).encode()
    reply = customer.http.post(PATH, data=body, headers={"Content-Type": content_type})
    assert reply.json()["choices"][0]["message"]["content"] == "wörld"


@pytest.mark.parametrize("digits", ["18446744073709551616", "-9223372036854775809", "1" + "0" * 30, "-1" + "0" * 300])
@pytest.mark.parametrize("place", ['{"seed": %s,', '{"metadata": {"a": [%s]},'], ids=["seed", "metadata"])
def test_an_integer_beyond_64_bits_is_refused(customer: Customer, digits: str, place: str) -> None:
    reply = customer.http.post(PATH, data=place % digits + json.dumps(question("echo"))[1:])
    assert refusal(reply)[:3] == (400, "invalid_request_error", "invalid_request_error")
    assert "64 bits" in message(reply)


@pytest.mark.parametrize("number", [2**63, 2**64 - 1, -(2**63), 2**53 + 1])
def test_an_integer_of_64_bits_arrives_exactly(customer: Customer, number: int) -> None:
    assert received(customer, seed=number)["body"]["seed"] == number


def test_long_digits_in_a_text_are_no_integer(customer: Customer) -> None:
    digits = "1" * 400
    said_back = answer(customer, "echo", messages=[{"role": "user", "content": digits}])
    assert said_back["choices"][0]["message"]["content"] == digits


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_nesting_too_deep_to_be_sent_on_is_refused(customer: Customer, streams: bool) -> None:
    body = '{"metadata": ' + "[" * 500 + "]" * 500 + "," + json.dumps(question("echo", stream=streams))[1:]
    assert refusal(customer.http.post(PATH, data=body))[:3] == (400, "invalid_request_error", "invalid_request_error")


@pytest.mark.parametrize("number", ["1e400", "1" + "0" * 5000], ids=["1e400", "5001 digits"])
def test_a_number_too_large_for_json_is_refused(customer: Customer, number: str) -> None:
    reply = customer.http.post(PATH, data=f'{{"seed": {number},' + json.dumps(question("echo"))[1:])
    assert refusal(reply)[:3] == (400, "invalid_request_error", "invalid_request_error")


def test_a_fault_of_shape_is_found_before_the_balance_is_looked_at(
    gateway: GatewayServer, open_account: OpenAccount
) -> None:
    poor = open_account(gateway, credit=None)
    assert refusal(ask(poor, "echo", temperature=3)).param == "temperature"
    assert refusal(ask(poor, "nowhere")).code == "insufficient_credits"


def test_a_fault_is_the_same_for_a_stream_and_costs_nothing(account: Customer) -> None:
    assert refusal(ask(account, "echo", stream=True, messages=[])).param == "messages"
    assert bills.untouched(account)


def test_a_fault_does_not_repeat_what_the_client_sent(customer: Customer) -> None:
    reply = ask(customer, "echo", user={"password": "hunter2"}, messages=HELLO)
    assert "hunter2" not in reply.text
