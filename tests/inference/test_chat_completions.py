"""Chat completions through the official client, and their answers field by field (spec: POST /v1/chat/completions)."""

import contextlib
import json
import re
import time
from collections.abc import Callable
from typing import Any

import openai
import pytest
from openai.types.chat import (
    ChatCompletionFunctionToolParam,
    ChatCompletionMessageParam,
    ChatCompletionStreamOptionsParam,
)

from tests import bills
from tests.catalogue import catalogue_for, model
from tests.chat import HELLO, PATH, answer, ask, question, received, stream
from tests.conftest import OpenAccount, StartGateway
from tests.patience import eventually
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer
from tests.servers.simulator import Simulator

Json = dict[str, Any]

GENERATION_ID = re.compile(r"gen-[0-9a-f]{32}")
ECHO = "sim/test/echo"
HI: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hello there"}]
ASK_FOR_USAGE: ChatCompletionStreamOptionsParam = {"include_usage": True}
WEATHER: ChatCompletionFunctionToolParam = {"type": "function", "function": {"name": "weather", "parameters": {}}}
CLOCK: ChatCompletionFunctionToolParam = {"type": "function", "function": {"name": "clock", "parameters": {}}}
BAD_KEY = "sk-gw-" + "A" * 43

USAGE: Json = {
    "prompt_tokens": 2,
    "completion_tokens": 2,
    "total_tokens": 4,
    "cost": 0.0000036,
    "remaining_balance": 99.9999964,
    "currency": "EUR",
    "prompt_tokens_details": {"cached_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 0},
}
METADATA: Json = {
    "provider": "sim",
    "region": "FRPAR",
    "energy_wh": 0.0008,
    "carbon_gco2e": 0.0000352,
    "carbon_intensity_gco2_per_kwh": 44,
    "routing_mode": "explicit",
    "fallback_occurred": False,
    "providers_attempted": ["sim"],
    "cache_read_tokens": 0,
}


def reports(chunk: Json) -> tuple[Json, Json]:
    """Usage and metadata of an answer or a last chunk; the method's words are for people."""
    metadata = dict(chunk["gateway_metadata"])
    assert metadata.pop("estimation_methodology")
    return chunk["usage"], metadata


# --- Whole answers


def test_a_whole_answer_has_every_field_of_the_spec(account: Customer) -> None:
    asked_at = time.time()
    said = answer(account, "echo", max_tokens=16)
    assert set(said) == {
        "id", "object", "created", "model", "choices", "usage", "gateway_metadata", "system_fingerprint"
    }  # fmt: skip
    assert GENERATION_ID.fullmatch(said["id"])
    assert (said["object"], said["model"]) == ("chat.completion", "sim/test/echo/FRPAR")
    assert type(said["created"]) is int
    assert int(asked_at) <= said["created"] <= time.time()
    assert said["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "hello there", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    assert reports(said) == (USAGE, METADATA)


def test_the_official_client_gets_an_answer(account: Customer) -> None:
    said = account.openai().chat.completions.create(model=ECHO, messages=HI)
    assert (said.choices[0].message.content, said.choices[0].finish_reason) == ("hello there", "stop")
    assert said.usage is not None
    assert said.usage.to_dict() == USAGE
    assert said.to_dict()["gateway_metadata"]


@pytest.mark.parametrize("prefix", ["/v1", "/api/v1"])
@pytest.mark.parametrize("slash", ["", "/"])
@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_every_form_of_the_path_answers(account: Customer, prefix: str, slash: str, streams: bool) -> None:
    reply = account.http.post(
        f"{prefix}/chat/completions{slash}", json=question("echo", stream=streams), allow_redirects=False
    )
    assert reply.status_code == 200
    assert "hello" in reply.text


def test_the_official_client_works_under_the_older_prefix(account: Customer) -> None:
    client = account.openai(base_url=f"{account.gateway.origin}/api/v1")
    assert client.chat.completions.create(model=ECHO, messages=HI).choices[0].message.content == "hello there"


def test_several_choices_are_answered_in_order(account: Customer) -> None:
    said = answer(account, "echo", n=3)
    assert [(choice["index"], choice["message"]["content"]) for choice in said["choices"]] == [
        (0, "hello there"), (1, "hello there"), (2, "hello there")
    ]  # fmt: skip
    assert said["usage"]["completion_tokens"] == 6


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_an_answer_that_reaches_the_cap_finishes_with_length(account: Customer, field: str) -> None:
    choice = answer(account, "echo", **{field: 1})["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("hello", "length")


def test_a_long_answer_comes_whole(account: Customer) -> None:
    said = answer(account, "many-chunks")
    assert len(said["choices"][0]["message"]["content"].split()) == 1000
    assert (said["choices"][0]["finish_reason"], said["usage"]["completion_tokens"]) == ("stop", 1000)


def test_cached_tokens_are_reported_and_cost_less(account: Customer) -> None:
    said = answer(account, "cached")
    assert said["gateway_metadata"]["cache_read_tokens"] == 20
    assert said["usage"]["prompt_tokens"] == 22
    assert said["usage"]["prompt_tokens_details"] == {"cached_tokens": 20}
    assert said["usage"]["cost"] == 0.0000048


def test_reasoning_counts_as_completion(account: Customer) -> None:
    usage = answer(account, "reasoning")["usage"]
    assert (usage["completion_tokens"], usage["completion_tokens_details"]) == (7, {"reasoning_tokens": 5})


def test_what_is_not_known_of_the_footprint_is_absent(account: Customer) -> None:
    metadata = answer(account, "unknown-energy")["gateway_metadata"]
    assert not {"energy_wh", "carbon_gco2e", "estimation_methodology"} & set(metadata)
    assert metadata["region"] == "FRPAR"


def test_global_is_weighed_with_the_worlds_average(account: Customer) -> None:
    metadata = answer(account, "global-only")["gateway_metadata"]
    assert (metadata["region"], metadata["carbon_intensity_gco2_per_kwh"]) == ("global", 473)
    assert metadata["carbon_gco2e"] == 0.0003784


def test_what_only_auto_aliases_and_fallbacks_have_is_absent(account: Customer) -> None:
    metadata = answer(account, "echo")["gateway_metadata"]
    absent = {"routing_reason", "fallback_reason", "requested_alias", "requested_auto", "eu_sovereign"}
    assert not absent & set(metadata)


# --- Ids


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_the_generation_id_is_in_the_answer_and_in_a_header(account: Customer, streams: bool) -> None:
    with account.openai().chat.completions.with_streaming_response.create(
        model=ECHO, messages=HI, stream=streams
    ) as raw:
        header = raw.headers["X-Generation-Id"]
        text = "".join(raw.iter_text())
    assert GENERATION_ID.fullmatch(header)
    assert f'"id":"{header}"' in text
    assert bills.record_of(account.gateway, header).model == "test/echo"


def test_the_request_id_reaches_the_official_client(account: Customer) -> None:
    first, second = (account.openai().chat.completions.create(model=ECHO, messages=HI) for _ in range(2))
    assert first._request_id
    assert first._request_id != second._request_id
    assert first.id != second.id


def test_an_error_has_a_request_id_and_no_generation(account: Customer) -> None:
    reply = ask(account, "status-500")
    assert "X-Generation-Id" not in reply.headers
    assert reply.headers["X-Request-Id"]


# --- Streams


def test_a_stream_is_the_specs_chunks_and_done(account: Customer) -> None:
    said = stream(account, "echo")
    first, *middle, last = said.chunks
    assert (said.done, said.errors) == (True, [])
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": "hello"}
    assert [chunk["choices"][0]["delta"] for chunk in middle] == [{"content": " there"}]
    assert (last["choices"][0]["delta"], last["choices"][0]["finish_reason"]) == ({}, "stop")
    assert reports(last) == (USAGE, METADATA)
    for chunk in said.chunks:
        assert {"id", "object", "created", "model", "choices"} <= set(chunk)
        assert [set(choice) >= {"index", "delta", "finish_reason"} for choice in chunk["choices"]] == [True]


def test_every_chunk_has_the_same_identity(account: Customer) -> None:
    said = stream(account, "chunks")
    (identity,) = {(chunk["id"], chunk["object"], chunk["created"], chunk["model"]) for chunk in said.chunks}
    assert identity[0] == said.id
    assert (identity[1], identity[3]) == ("chat.completion.chunk", "sim/test/chunks/FRPAR")


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}], ids=["absent", "empty", "false"])
def test_usage_rides_on_the_finish_unless_it_is_asked_for(account: Customer, options: Json | None) -> None:
    said = stream(account, "echo", stream_options=options)
    assert all(chunk["choices"] for chunk in said.chunks)
    assert [chunk.get("usage") is not None for chunk in said.chunks] == [False, False, True]
    assert [chunk["choices"][0]["finish_reason"] for chunk in said.chunks] == [None, None, "stop"]
    assert ["gateway_metadata" in chunk for chunk in said.chunks] == [False, False, True]


def test_usage_that_is_asked_for_is_a_chunk_of_its_own(account: Customer) -> None:
    said = stream(account, "echo", stream_options=ASK_FOR_USAGE)
    *others, last = said.chunks
    assert last["choices"] == []
    assert reports(last) == (USAGE, METADATA)
    assert others[-1]["choices"][0]["finish_reason"] == "stop"
    assert [chunk for chunk in others if chunk.get("usage") or "gateway_metadata" in chunk] == []


def test_the_headers_keep_proxies_from_collecting_a_stream(account: Customer) -> None:
    headers = stream(account, "echo").headers
    assert (headers["Cache-Control"], headers["X-Accel-Buffering"]) == ("no-cache", "no")
    assert "Content-Encoding" not in headers


def test_a_stream_arrives_while_its_upstream_is_still_speaking(account: Customer, simulator: Simulator) -> None:
    reply = account.http.post(PATH, json=question("slow-chunks", stream=True), stream=True)
    with contextlib.closing(reply):
        lines = reply.iter_lines()  # kept: the connection ends with it
        assert next(lines).startswith(b"data: {")
        assert simulator.stats("chunks:50:0.1")["open"] == 1
    assert eventually(lambda: simulator.stats("chunks:50:0.1")["open"] == 0)


@pytest.mark.parametrize("options", [openai.NOT_GIVEN, ASK_FOR_USAGE], ids=["plain", "asks for usage"])
def test_the_official_client_streams(account: Customer, options: Any) -> None:
    chunks = list(
        account.openai().chat.completions.create(model=ECHO, messages=HI, stream=True, stream_options=options)
    )
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "hello there"
    assert [chunk.usage.to_dict() for chunk in chunks if chunk.usage] == [USAGE]
    assert chunks[-1].usage is not None
    assert "gateway_metadata" in chunks[-1].to_dict()


@pytest.mark.parametrize("options", [openai.NOT_GIVEN, ASK_FOR_USAGE], ids=["plain", "asks for usage"])
def test_the_official_clients_stream_helper_ends_with_the_whole_answer(account: Customer, options: Any) -> None:
    with account.openai().chat.completions.stream(model=ECHO, messages=HI, stream_options=options) as events:
        final = events.get_final_completion()
    assert (final.choices[0].message.role, final.choices[0].message.content) == ("assistant", "hello there")
    assert final.choices[0].finish_reason == "stop"
    assert final.usage is not None
    assert final.usage.total_tokens == 4


def test_several_choices_stream_side_by_side(account: Customer) -> None:
    with account.openai().chat.completions.stream(model=ECHO, messages=HI, n=3) as events:
        final = events.get_final_completion()
    assert [(choice.index, choice.message.content) for choice in final.choices] == [
        (0, "hello there"), (1, "hello there"), (2, "hello there")
    ]  # fmt: skip
    said = stream(account, "echo", n=3)
    roles = [choice["index"] for chunk in said.chunks for choice in chunk["choices"] if "role" in choice["delta"]]
    assert roles == [0, 1, 2]
    assert [chunk.get("usage") is not None for chunk in said.chunks].count(True) == 1


@pytest.mark.parametrize(
    "slug",
    [
        "comments",
        "crlf",
        "multiline",
        "split",
        "close-delimited",
        "no-done",
        "usage-on-finish",
        "usage-every-chunk",
        "late-usage",
        "pings",
    ],
)
def test_a_stream_is_the_same_however_the_upstream_writes_it(account: Customer, slug: str) -> None:
    said = stream(account, slug)
    assert (said.text, said.done, said.errors) == ("hello there", True, [])
    assert reports(said.chunks[-1]) == (USAGE, METADATA)
    assert [chunk.get("usage") is not None for chunk in said.chunks].count(True) == 1


# --- Tools


def test_a_whole_tool_loop(account: Customer) -> None:
    run_tool_loop(account.openai().chat.completions.create)


def test_a_streamed_tool_loop(account: Customer) -> None:
    def ask_streamed(**request: Any) -> Any:
        with account.openai().chat.completions.stream(**request) as events:
            return events.get_final_completion()

    run_tool_loop(ask_streamed)


def run_tool_loop(create: Callable[..., Any]) -> None:
    """Two tools at once, their results, and the answer that is made of them."""
    messages: list[Any] = [{"role": "user", "content": "both please"}]
    request = {"model": "sim/test/tools", "tools": [WEATHER, CLOCK]}
    asked = create(messages=messages, **request).choices[0]
    assert asked.finish_reason == "tool_calls"
    assert [call.function.name for call in asked.message.tool_calls] == ["weather", "clock"]
    assert [json.loads(call.function.arguments) for call in asked.message.tool_calls] == [{"query": "both please"}] * 2
    messages.append(asked.message.to_dict())
    messages += [
        {"role": "tool", "tool_call_id": call.id, "content": f"{call.function.name}."}
        for call in asked.message.tool_calls
    ]
    final = create(messages=messages, **request).choices[0]
    assert (final.message.content, final.finish_reason) == ("The tool says: weather. clock.", "stop")


def test_a_call_without_arguments_has_an_empty_object_of_them(account: Customer) -> None:
    (call,) = answer(account, "empty-arguments", tools=[WEATHER])["choices"][0]["message"]["tool_calls"]
    assert call["function"] == {"name": "weather", "arguments": "{}"}
    chunks = stream(account, "empty-arguments", tools=[WEATHER]).chunks
    assert "".join(fragment["function"].get("arguments", "") for fragment in fragments(chunks)) == "{}"


def test_streamed_calls_are_numbered_and_each_is_named_once(account: Customer) -> None:
    messages = [{"role": "user", "content": "both please"}]
    said = fragments(stream(account, "tools", tools=[WEATHER, CLOCK], messages=messages).chunks)
    named = [fragment for fragment in said if "id" in fragment]
    assert [(each["index"], each["type"], each["function"]["name"]) for each in named] == [
        (0, "function", "weather"), (1, "function", "clock")
    ]  # fmt: skip
    assert all("name" not in fragment["function"] for fragment in said if fragment not in named)


def fragments(chunks: list[Json]) -> list[Json]:
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    return [fragment for delta in deltas for fragment in delta.get("tool_calls", ())]


# --- Errors, as the official client raises them


@pytest.mark.parametrize(
    ("slug", "kind", "status", "code", "param"),
    [
        ("sim/test", openai.BadRequestError, 400, "invalid_request_error", "model"),
        ("sim/test/nowhere", openai.NotFoundError, 404, "not_found", "model"),
        ("sim/test/gone", openai.NotFoundError, 404, "model_not_found", "model"),
        ("sim/test/resting", openai.InternalServerError, 503, "model_unavailable", "model"),
        ("sim/test/status-500", openai.InternalServerError, 503, "provider_error", None),
        ("sim/test/status-429", openai.InternalServerError, 503, "provider_error", None),
        ("sim/test/bad-usage", openai.InternalServerError, 503, "cost_unresolvable", None),
    ],
)
def test_the_official_client_raises_what_fits_the_status(
    account: Customer, slug: str, kind: type[openai.APIStatusError], status: int, code: str, param: str | None
) -> None:
    with pytest.raises(openai.APIStatusError) as raised:
        account.openai().chat.completions.create(model=slug, messages=HI, max_tokens=16)
    assert type(raised.value) is kind
    check(raised.value, status, code, param)


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_the_official_client_raises_the_upstreams_failure_before_a_stream_begins(
    account: Customer, streams: bool
) -> None:
    with pytest.raises(openai.InternalServerError) as raised:
        account.openai().chat.completions.create(model="sim/test/drop-at-once", messages=HI, stream=streams)
    check(raised.value, 503, "provider_error", None)


def test_the_official_client_raises_an_unknown_key(account: Customer) -> None:
    with pytest.raises(openai.AuthenticationError) as raised:
        account.openai(api_key=BAD_KEY).chat.completions.create(model=ECHO, messages=HI)
    check(raised.value, 401, "api_key_not_registered", None)


def test_the_official_client_raises_an_empty_conversation(account: Customer) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        account.openai().chat.completions.create(model=ECHO, messages=[])
    check(raised.value, 400, "invalid_request_error", "messages")


def test_the_official_client_raises_an_empty_balance(gateway: GatewayServer, open_account: OpenAccount) -> None:
    with pytest.raises(openai.APIStatusError) as raised:
        open_account(gateway, credit=None).openai().chat.completions.create(model=ECHO, messages=HI)
    check(raised.value, 402, "insufficient_credits", None)


def test_the_official_client_raises_an_error_in_mid_stream(account: Customer) -> None:
    chunks = account.openai().chat.completions.create(model="sim/test/error-frame", messages=HI, stream=True)
    with pytest.raises(openai.APIError) as raised:
        list(chunks)
    assert (raised.value.type, raised.value.code) == ("provider_error", "provider_error")


def test_the_official_client_does_not_retry_what_is_futile(account: Customer, simulator: Simulator) -> None:
    calls = simulator.stats("status:400")["calls"]
    with pytest.raises(openai.InternalServerError):
        account.openai(max_retries=2).chat.completions.create(model="sim/test/status-400", messages=HI)
    assert simulator.stats("status:400")["calls"] == calls + 1


def check(error: openai.APIStatusError, status: int, code: str, param: str | None) -> None:
    assert (error.status_code, error.code, error.param) == (status, code, param)
    assert error.request_id
    assert isinstance(error.body, dict)
    assert error.body["message"] in error.message


# --- What the upstream gets


def test_the_upstream_gets_what_was_asked_and_no_defaults(account: Customer) -> None:
    request = received(account)
    assert (request["method"], request["path"], request["query"]) == ("POST", "/v1/chat/completions", {})
    assert request["body"] == {"model": "describe", "messages": HELLO, "max_tokens": 16}


def test_a_streamed_request_asks_the_upstream_for_usage_and_for_nothing_else(account: Customer) -> None:
    said = stream(account, "describe", max_tokens=16, stream_options={"include_usage": False, "else": 1})
    own = {"stream": True, "stream_options": {"include_usage": True}}
    assert json.loads(said.text)["body"] == {"model": "describe", "messages": HELLO, "max_tokens": 16, **own}


def test_every_field_of_the_spec_reaches_the_upstream_as_it_came(account: Customer) -> None:
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


def test_messages_reach_the_upstream_untouched(account: Customer) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"a": 1}'}, "extra": 1}
    messages: list[Json] = [
        {"role": "developer", "content": "Be brief.", "cache_control": {"type": "ephemeral"}},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}, {"type": "own", "a": [1]}]},
        {"role": "assistant", "content": "Hm.", "reasoning_content": "…", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny", "name": "weather"},
        {"role": "function", "name": "old", "content": "older"},
    ]
    assert received(account, messages=messages)["body"]["messages"] == messages


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
    start_gateway: StartGateway, open_account: OpenAccount, simulator: Simulator
) -> None:
    described = model("describe", provider="simkey", max_tokens_field="max_completion_tokens")
    customer = open_account(start_gateway(catalogue=catalogue_for(simulator.url, described)))
    request = received(customer, model="simkey/test/describe", max_tokens=7)
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
    """A header of what the upstream received."""
    headers: dict[str, str] = request["headers"]
    return {key.lower(): value for key, value in headers.items()}.get(name)


def test_an_upstream_that_needs_no_credential_gets_none(account: Customer) -> None:
    assert header(received(account), "authorization") is None


# --- What the upstream says beyond the spec


def test_fields_of_an_answer_that_the_spec_does_not_name_are_passed_back(account: Customer) -> None:
    said = answer(account, "extra-fields", max_tokens=16)
    (choice,) = said["choices"]
    assert said["sim_answer"] == {"kept": True}
    assert choice["sim_choice"] == "kept"
    assert choice["message"]["sim_message"] == {"kept": True}
    assert said["system_fingerprint"] == "fp_simulated"


def test_fields_of_a_chunk_that_the_spec_does_not_name_are_passed_back(account: Customer) -> None:
    first = stream(account, "extra-fields").chunks[0]
    assert first["sim_answer"] == {"kept": True}
    assert first["choices"][0]["delta"]["sim_delta"] is True


def test_reasoning_is_passed_back(account: Customer) -> None:
    message = answer(account, "reasoning")["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("First I read the question.", "hello there")
    said = stream(account, "reasoning")
    deltas = [choice["delta"] for chunk in said.chunks for choice in chunk["choices"]]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "First I read the question."
    assert said.text == "hello there"


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
