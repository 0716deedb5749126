"""Anthropic's dialect works from end to end, and the official client's helpers work with both dialects."""

import json
from decimal import Decimal
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion
from pydantic import BaseModel

from tests import bills
from tests.chat import HELLO, PATH, Stream
from tests.envelope import message, refusal
from tests.inference.shapes import WAYS, post
from tests.servers.customer import Customer

Json = dict[str, Any]

WAY = WAYS["chat-anthropic"]
INVALID = (400, "invalid_request_error", "invalid_request_error")
UPSTREAM_FAILED = (503, "provider_error", "provider_error", None)
WEATHER: Json = {
    "type": "function",
    "function": {"name": "weather", "description": "Of a place.", "parameters": {"type": "object", "properties": {}}},
}
CLOCK: Json = {"type": "function", "function": {"name": "clock"}}
# If the question contains `both`, the simulator calls two tools at once.
ASK_BOTH: list[Json] = [{"role": "user", "content": "both please"}]

both_dialects = pytest.mark.parametrize("models", ["sim/test", "simanthropic/claude"])
every_mode = pytest.mark.parametrize(
    "fields", [{"max_tokens": 64}, {"max_tokens": 1000}, {"stream": True}], ids=["whole", "aggregated", "streamed"]
)


def answer(customer: Customer, slug: str, **fields: object) -> Json:
    reply = post(customer, WAY, slug, **fields)
    assert reply.status_code == 200, reply.text
    result: Json = reply.json()
    return result


def received(customer: Customer, slug: str = "describe", **fields: object) -> Json:
    """Returns the request that reached the upstream."""
    described: Json = json.loads(answer(customer, slug, **fields)["choices"][0]["message"]["content"])
    return described


# --- The upstream's request


def test_a_conversation_is_a_message_request(account: Customer) -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "both please"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "weather", "arguments": '{"at":"Paris"}'}},
                {"id": "b", "type": "function", "function": {"name": "clock", "arguments": ""}},
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "sunny"},
        {"role": "tool", "tool_call_id": "b", "content": "noon"},
        {
            "role": "developer",
            "content": [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}],
        },
    ]
    fields: Json = {"stop": "zebra", "user": "opaque", "temperature": 0.5, "top_p": 0.9, "parallel_tool_calls": False}
    request = received(
        account, messages=messages, tools=[WEATHER, CLOCK], tool_choice="required", max_tokens=64, **fields
    )
    assert (request["method"], request["path"]) == ("POST", "/v1/messages")
    assert request["headers"]["anthropic-version"] == "2023-06-01"
    assert request["body"] == {
        "model": "describe",
        "max_tokens": 64,
        "system": [
            {"type": "text", "text": "Be brief."},
            {"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}},
        ],
        "messages": [
            {"role": "user", "content": "both please"},
            {
                "role": "assistant",
                "content": [
                    {"type": "tool_use", "id": "a", "name": "weather", "input": {"at": "Paris"}},
                    {"type": "tool_use", "id": "b", "name": "clock", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "a", "content": "sunny"},
                    {"type": "tool_result", "tool_use_id": "b", "content": "noon"},
                ],
            },
        ],
        "tools": [
            {
                "name": "weather",
                "description": "Of a place.",
                "input_schema": {"type": "object", "properties": {}},
            },
            {"name": "clock", "input_schema": {"type": "object", "properties": {}}},
        ],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "stop_sequences": ["zebra"],
        "metadata": {"user_id": "opaque"},
        "temperature": 0.5,
        "top_p": 0.9,
    }


@pytest.mark.parametrize(
    ("slug", "fields", "cap"),
    [
        ("describe", {"max_tokens": 7}, 7),
        ("describe", {"max_completion_tokens": 8, "max_tokens": 7}, 8),
        ("describe", {}, 8192),  # the catalogue's value
        ("uncapped", {}, 4096),
    ],
)
def test_max_tokens_is_the_clients_else_the_catalogues_else_4096(
    account: Customer, slug: str, fields: Json, cap: int
) -> None:
    body = received(account, slug, **fields)["body"]
    assert {name: value for name, value in body.items() if name.startswith("max_")} == {"max_tokens": cap}


def test_nothing_of_the_client_but_its_body_reaches_the_upstream(account: Customer) -> None:
    private = {
        "Cookie": "session=secret-1",
        "X-Forwarded-For": "203.0.113.3",
        "anthropic-beta": "secret-2",
        "anthropic-version": "secret-3",
        "x-api-key": "secret-4",
    }
    text = account.http.post(PATH, json=WAY.request("describe"), headers=private).text
    assert "2023-06-01" in text
    assert not [word for word in (account.key, "secret", "203.0.113.3") if word in text]


@pytest.mark.parametrize(
    ("fields", "sent", "adjusted"),
    [
        ({"temperature": 1}, {"temperature": 1}, None),
        ({"temperature": 1.7}, {"temperature": 1}, "temperature"),
        ({"temperature": 2, "presence_penalty": 0}, {"temperature": 1}, "temperature"),
        ({"frequency_penalty": 0}, {}, None),
        ({"temperature": 1.2, "prompt_cache_key": "k"}, {"temperature": 1}, "temperature, prompt_cache_key"),
    ],
    ids=str,
)
@pytest.mark.parametrize("mode", [{"max_tokens": 64}, {"stream": True}], ids=["whole", "streamed"])
def test_a_parameter_that_is_changed_is_disclosed(
    account: Customer, fields: Json, sent: Json, adjusted: str | None, mode: Json
) -> None:
    reply = post(account, WAY, "describe", **fields, **mode)
    assert reply.headers.get("X-Gateway-Adjusted-Params") == adjusted
    text = Stream.of(reply).text if "stream" in mode else reply.json()["choices"][0]["message"]["content"]
    body = json.loads(text)["body"]
    assert {
        name: body[name] for name in body if name in ("temperature", "presence_penalty", "frequency_penalty")
    } == sent


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 2}, "n"),
        *(({name: "x"}, name) for name in ("inference_geo", "container", "mcp_servers", "betas", "provider")),
        ({"service_tier": "priority"}, "service_tier"),
        ({"speed": "fast"}, "speed"),
        ({"presence_penalty": 1}, "presence_penalty"),
        ({"store": True}, "store"),
        (
            {
                "messages": [
                    *HELLO,
                    {
                        "role": "assistant",
                        "tool_calls": [
                            {"id": "a", "type": "function", "function": {"name": "weather", "arguments": "{no"}}
                        ],
                    },
                ]
            },
            "messages[1].tool_calls[0].function.arguments",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_what_cannot_or_must_not_be_sent_is_refused(account: Customer, fields: Json, param: str, streams: bool) -> None:
    assert refusal(post(account, WAY, "echo", stream=streams, **fields)) == (*INVALID, param)
    assert bills.untouched(account)


# --- The upstream's answer


@every_mode
def test_cache_writes_of_both_lifetimes_are_shown_and_priced(account: Customer, fields: Json) -> None:
    """The tokens are 2 prompt, 20 read, 7 and 3 written (5 minutes, an hour), 2 out: 1.2 + 1.2 + 5.25 + 3.6 + 2.4."""
    reply = post(account, WAY, "cache-everything", **fields)
    last = Stream.of(reply).chunks[-1] if "stream" in fields else reply.json()
    assert {name: value for name, value in last["gateway_metadata"].items() if name.startswith("cache")} == {
        "cache_read_tokens": 20,
        "cache_creation_tokens": 10,
        "cache_creation_5m_tokens": 7,
        "cache_creation_1h_tokens": 3,
    }
    assert (last["usage"]["prompt_tokens"], last["usage"]["total_tokens"]) == (32, 34)
    assert last["usage"]["prompt_tokens_details"] == {"cached_tokens": 20, "cache_write_tokens": 10}
    assert bills.debits(account) == [Decimal("0.00001365")] == [bills.exact(last["usage"]["cost"])]


@every_mode
def test_thinking_is_reasoning_and_can_come_back_signed(account: Customer, fields: Json) -> None:
    reply = post(account, WAY, "reasoning", **fields)
    if "stream" in fields:
        deltas = [choice["delta"] for chunk in Stream.of(reply).chunks for choice in chunk["choices"]]
        blocks = [block for delta in deltas for block in delta.get("thinking_blocks", ())]
        reasoning = "".join(delta.get("reasoning_content", "") for delta in deltas)
    else:
        result = reply.json()["choices"][0]["message"]
        blocks, reasoning = result["thinking_blocks"], result["reasoning_content"]
    assert reasoning == "First I read the question."
    (block,) = blocks
    assert block["signature"].startswith("sig-sim-")
    turn = {"role": "assistant", "content": "hello there", "thinking_blocks": blocks}
    sent = received(account, messages=[*HELLO, turn, *HELLO])["body"]["messages"][1]
    assert sent["content"][0] == {name: value for name, value in block.items() if name != "index"}


@pytest.mark.parametrize(("finish", "reason"), [("finish-length", "length"), ("finish-refusal", "content_filter")])
@every_mode
def test_stop_reasons_are_the_specs(account: Customer, finish: str, reason: str, fields: Json) -> None:
    reply = post(account, WAY, finish, **fields)
    last = Stream.of(reply).chunks[-1] if "stream" in fields else reply.json()
    assert last["choices"][0]["finish_reason"] == reason


@pytest.mark.parametrize(("code", "words"), [(404, "model: status:404"), (429, "rate limit"), (529, "Overloaded")])
def test_its_errors_are_quoted(account: Customer, code: int, words: str) -> None:
    reply = post(account, WAY, f"status-{code}")
    assert refusal(reply) == UPSTREAM_FAILED
    assert "'simanthropic'" in message(reply)
    assert words in message(reply)


# --- The official client's helpers


def run_tool_loop(create: Any, models: str) -> None:
    """Runs two tool calls at once, sends their results, and reads the answer made from them."""
    messages: list[Any] = [*ASK_BOTH]
    request = {"model": f"{models}/tools", "tools": [WEATHER, CLOCK]}
    asked = create(messages=messages, **request).choices[0]
    assert asked.finish_reason == "tool_calls"
    assert [call.function.name for call in asked.message.tool_calls] == ["weather", "clock"]
    messages.append(asked.message.to_dict())
    messages += [
        {"role": "tool", "tool_call_id": call.id, "content": f"{call.function.name}."}
        for call in asked.message.tool_calls
    ]
    final = create(messages=messages, **request).choices[0]
    assert (final.message.content, final.finish_reason) == ("The tool says: weather. clock.", "stop")


@pytest.mark.parametrize("how", ["whole", "aggregated", "streamed"])
def test_the_official_client_runs_a_tool_loop(account: Customer, how: str) -> None:
    client = account.openai().chat.completions

    def ask_whole(**request: Any) -> ChatCompletion:
        result: ChatCompletion = client.create(**request, max_tokens=64 if how == "whole" else 1000)
        return result

    def ask_streamed(**request: Any) -> Any:
        with client.stream(**request) as events:
            return events.get_final_completion()

    run_tool_loop(ask_streamed if how == "streamed" else ask_whole, "simanthropic/claude")


@pytest.mark.parametrize("options", [openai.NOT_GIVEN, {"include_usage": True}], ids=["plain", "asks for usage"])
@pytest.mark.parametrize("slug", ["echo", "reasoning", "cache-everything", "crlf", "split", "no-done", "pings"])
def test_the_official_clients_stream_helper_ends_with_the_whole_answer(
    account: Customer, slug: str, options: Any
) -> None:
    with account.openai().chat.completions.stream(
        model=f"simanthropic/claude/{slug}",
        messages=[{"role": "user", "content": "hello there"}],
        stream_options=options,
    ) as events:
        final = events.get_final_completion()
    assert (final.choices[0].message.role, final.choices[0].message.content) == ("assistant", "hello there")
    assert final.choices[0].finish_reason == "stop"
    assert final.usage is not None
    assert final.usage.completion_tokens == (7 if slug == "reasoning" else 2)


class Place(BaseModel):
    city: str
    people: int


@both_dialects
def test_the_official_client_parses_structured_answers(account: Customer, models: str) -> None:
    """The simulator repeats its input: the question is the answer."""
    asked: Any = [{"role": "user", "content": '{"city": "Paris", "people": 2102650}'}]
    client = account.openai()
    for parse in (client.chat.completions.parse, client.beta.chat.completions.parse):
        result = parse(model=f"{models}/echo", messages=asked, response_format=Place)
        assert result.choices[0].message.parsed == Place(city="Paris", people=2102650)


@both_dialects
def test_the_official_client_parses_structured_streams(account: Customer, models: str) -> None:
    asked: Any = [{"role": "user", "content": '{"city": "Paris", "people": 2102650}'}]
    with account.openai().chat.completions.stream(
        model=f"{models}/echo", messages=asked, response_format=Place
    ) as events:
        assert events.get_final_completion().choices[0].message.parsed == Place(city="Paris", people=2102650)


@both_dialects
def test_the_official_client_parses_tool_arguments(account: Customer, models: str) -> None:
    class Search(BaseModel):
        query: str

    result = account.openai().chat.completions.parse(
        model=f"{models}/tools",
        messages=[{"role": "user", "content": "hello there"}],
        tools=[openai.pydantic_function_tool(Search)],
    )
    calls = result.choices[0].message.tool_calls
    assert calls is not None
    assert calls[0].function.parsed_arguments == Search(query="hello there")


@both_dialects
def test_the_official_client_reads_the_events_of_a_stream(account: Customer, models: str) -> None:
    with account.openai().chat.completions.stream(
        model=f"{models}/chunks", messages=[{"role": "user", "content": "hello there"}]
    ) as events:
        kinds = [event.type for event in events]
    assert kinds.count("content.delta") == 5
    assert kinds[-1] == "content.done"
