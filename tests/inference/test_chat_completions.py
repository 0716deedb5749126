"""Chat completions work with the official client, and each field of an answer is right."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests import bills
from tests.chat import answer, ask, question, stream
from tests.inference.greeting import CLOCK, ECHO, GENERATION_ID, HI, METADATA, USAGE, WEATHER, Json, reports
from tests.servers.customer import Customer

pytestmark = [pytest.mark.also_sqlite, pytest.mark.also_fastpath_off]

# --- Whole answers


def test_a_whole_answer_has_every_field_of_the_spec(account: Customer) -> None:
    asked_at = time.time()
    result = answer(account, "echo", max_tokens=16)
    assert set(result) == {
        "id", "object", "created", "model", "choices", "usage", "gateway_metadata", "system_fingerprint"
    }  # fmt: skip
    assert GENERATION_ID.fullmatch(result["id"])
    assert (result["object"], result["model"]) == ("chat.completion", "sim/test/echo/FRPAR")
    assert type(result["created"]) is int
    assert int(asked_at) <= result["created"] <= time.time()
    assert result["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "hello there", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    assert reports(result) == (USAGE, METADATA)


def test_the_official_client_gets_an_answer(account: Customer) -> None:
    result = account.openai().chat.completions.create(model=ECHO, messages=HI)
    assert (result.choices[0].message.content, result.choices[0].finish_reason) == ("hello there", "stop")
    assert result.usage is not None
    assert result.usage.to_dict() == USAGE
    assert result.to_dict()["gateway_metadata"]


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
    result = answer(account, "echo", n=3)
    assert [(choice["index"], choice["message"]["content"]) for choice in result["choices"]] == [
        (0, "hello there"), (1, "hello there"), (2, "hello there")
    ]  # fmt: skip
    assert result["usage"]["completion_tokens"] == 6


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_an_answer_that_reaches_the_cap_finishes_with_length(account: Customer, field: str) -> None:
    choice = answer(account, "echo", **{field: 1})["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("hello", "length")


def test_a_long_answer_comes_whole(account: Customer) -> None:
    result = answer(account, "many-chunks")
    assert len(result["choices"][0]["message"]["content"].split()) == 1000
    assert (result["choices"][0]["finish_reason"], result["usage"]["completion_tokens"]) == ("stop", 1000)


def test_cached_tokens_are_reported_and_cost_less(account: Customer) -> None:
    result = answer(account, "cached")
    assert result["gateway_metadata"]["cache_read_tokens"] == 20
    assert result["usage"]["prompt_tokens"] == 22
    assert result["usage"]["prompt_tokens_details"] == {"cached_tokens": 20, "audio_tokens": 0}
    assert result["usage"]["cost"] == 0.0000048


def test_reasoning_counts_as_completion(account: Customer) -> None:
    usage = answer(account, "reasoning")["usage"]
    assert usage["completion_tokens"] == 7
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 5, "audio_tokens": 0}


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


# --- Tools


def test_a_whole_tool_loop(account: Customer) -> None:
    run_tool_loop(account.openai().chat.completions.create)


def test_a_streamed_tool_loop(account: Customer) -> None:
    def ask_streamed(**request: Any) -> Any:
        with account.openai().chat.completions.stream(**request) as events:
            return events.get_final_completion()

    run_tool_loop(ask_streamed)


def run_tool_loop(create: Callable[..., Any]) -> None:
    """Runs two tool calls at once, sends their results, and reads the answer made from them."""
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
    streamed = fragments(stream(account, "tools", tools=[WEATHER, CLOCK], messages=messages).chunks)
    named = [fragment for fragment in streamed if "id" in fragment]
    assert [(each["index"], each["type"], each["function"]["name"]) for each in named] == [
        (0, "function", "weather"), (1, "function", "clock")
    ]  # fmt: skip
    assert all("name" not in fragment["function"] for fragment in streamed if fragment not in named)


def fragments(chunks: list[Json]) -> list[Json]:
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    return [fragment for delta in deltas for fragment in delta.get("tool_calls", ())]
