"""Text completions have their fields, ranges and defaults, whole and streamed, by both kinds of models."""

import json
import re
import time
from decimal import Decimal
from typing import Any

import openai
import pytest

from tests import bills
from tests.chat import HELLO, PATH, Stream
from tests.envelope import faulty_field, refusal
from tests.inference.shapes import TEXT, WAYS
from tests.servers.customer import Customer

Json = dict[str, Any]

GENERATION_ID = re.compile(r"gen-[0-9a-f]{32}")
ON_TEXT, ON_CHAT, ON_CLAUDE = "sim/text/echo", "sim/test/echo", "simanthropic/claude/echo"
INVALID = (400, "invalid_request_error", "invalid_request_error")
USAGE: Json = {
    "prompt_tokens": 2,
    "completion_tokens": 2,
    "total_tokens": 4,
    "cost": 0.0000036,
    "remaining_balance": 99.9999964,
    "currency": "EUR",
}

every_model = pytest.mark.parametrize("model", [ON_TEXT, ON_CHAT, ON_CLAUDE])
whole_or_streamed = pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])


def ask(customer: Customer, **fields: object) -> Any:
    return customer.http.post(TEXT, json={"model": ON_TEXT, "prompt": "hello there", **fields})


def answer(customer: Customer, **fields: object) -> Json:
    reply = ask(customer, **fields)
    assert reply.status_code == 200, reply.text
    result: Json = reply.json()
    return result


def received(customer: Customer, model: str = "sim/text/describe", **fields: object) -> Json:
    """Returns the request that reached the upstream."""
    described: Json = json.loads(answer(customer, model=model, **fields)["choices"][0]["text"])
    return described


# --- Answers


@every_model
def test_a_whole_answer_has_every_field_of_the_spec(account: Customer, model: str) -> None:
    asked_at = int(time.time())
    result = answer(account, model=model)
    assert GENERATION_ID.fullmatch(result["id"])
    assert (result["object"], result["model"]) == ("text_completion", f"{model}/FRPAR")
    assert asked_at <= result["created"] <= time.time()
    (choice,) = result["choices"]
    assert {name: choice[name] for name in ("index", "text", "finish_reason")} == {
        "index": 0, "text": "hello there", "finish_reason": "stop"
    }  # fmt: skip
    assert not {"message", "delta"} & set(choice)
    assert {name: result["usage"][name] for name in USAGE} == USAGE
    assert {"provider", "routing_mode", "fallback_occurred"} <= set(result["gateway_metadata"])
    assert bills.record_of(account.gateway, result["id"]).cost == Decimal("0.0000036")


@every_model
def test_a_stream_has_every_field_of_the_spec(account: Customer, model: str) -> None:
    streamed = Stream.of(ask(account, model=model, stream=True))
    assert (streamed.done, streamed.errors) == (True, [])
    assert {(chunk["id"], chunk["object"], chunk["model"]) for chunk in streamed.chunks} == {
        (streamed.id, "text_completion", f"{model}/FRPAR")
    }
    choices = [choice for chunk in streamed.chunks for choice in chunk["choices"]]
    assert [(choice["index"], choice["text"], choice["finish_reason"]) for choice in choices] == [
        (0, "hello", None), (0, " there", None), (0, "", "stop")
    ]  # fmt: skip
    assert ["gateway_metadata" in chunk for chunk in streamed.chunks] == [False, False, True]
    assert {name: streamed.chunks[-1]["usage"][name] for name in USAGE} == USAGE


@every_model
def test_usage_that_is_asked_for_is_a_chunk_of_its_own(account: Customer, model: str) -> None:
    streamed = Stream.of(ask(account, model=model, stream=True, stream_options={"include_usage": True}))
    assert streamed.chunks[-1]["choices"] == []
    assert [chunk.get("usage") is not None for chunk in streamed.chunks].count(True) == 1


@every_model
def test_the_official_client_completes(account: Customer, model: str) -> None:
    result = account.openai().completions.create(model=model, prompt="hello there")
    assert (result.choices[0].text, result.choices[0].finish_reason) == ("hello there", "stop")
    assert result.usage is not None
    assert result.usage.total_tokens == 4


@every_model
@pytest.mark.parametrize("options", [openai.NOT_GIVEN, {"include_usage": True}], ids=["plain", "asks for usage"])
def test_the_official_client_streams(account: Customer, model: str, options: Any) -> None:
    chunks = list(
        account.openai().completions.create(model=model, prompt="hello there", stream=True, stream_options=options)
    )
    assert "".join(choice.text for chunk in chunks for choice in chunk.choices) == "hello there"
    assert [chunk.usage.total_tokens for chunk in chunks if chunk.usage] == [4]


@pytest.mark.parametrize("model", [ON_TEXT, ON_CHAT])
@whole_or_streamed
def test_several_choices_are_answered(account: Customer, model: str, streams: bool) -> None:
    reply = ask(account, model=model, n=3, stream=streams)
    if streams:
        streamed = Stream.of(reply)
        texts = ["", "", ""]
        for choice in (choice for chunk in streamed.chunks for choice in chunk["choices"]):
            texts[choice["index"]] += choice["text"]
        usage = streamed.chunks[-1]["usage"]
    else:
        texts = [choice["text"] for choice in reply.json()["choices"]]
        usage = reply.json()["usage"]
    assert texts == ["hello there"] * 3
    assert usage["completion_tokens"] == 6


@every_model
@whole_or_streamed
def test_the_cap_ends_with_length(account: Customer, model: str, streams: bool) -> None:
    reply = ask(account, model=model, max_tokens=1, stream=streams)
    choice = Stream.of(reply).chunks[-1]["choices"][0] if streams else reply.json()["choices"][0]
    assert choice["finish_reason"] == "length"


@pytest.mark.parametrize("finish", ["finish-length", "finish-refusal"])
def test_finish_reasons_are_the_specs(account: Customer, finish: str) -> None:
    result = answer(account, model=f"simanthropic/claude/{finish}")
    expected = {"finish-length": "length", "finish-refusal": "content_filter"}[finish]
    assert result["choices"][0]["finish_reason"] == expected


@pytest.mark.parametrize("model", ["sim/text/logprobs", "sim/text/extra-fields"])
@pytest.mark.parametrize("cap", [16, 1000], ids=["whole", "aggregated"])
def test_fields_that_the_spec_does_not_name_are_passed_back(account: Customer, model: str, cap: int) -> None:
    result = answer(account, model=model, max_tokens=cap)
    if model.endswith("logprobs"):
        assert result["choices"][0]["logprobs"]["tokens"] == ["hello", " there"]
        assert result["choices"][0]["logprobs"]["token_logprobs"] == [-0.25, -0.25]
    else:
        assert (result["sim_answer"], result["choices"][0]["sim_choice"]) == ({"kept": True}, "kept")


@pytest.mark.parametrize("cap", [16, 1000], ids=["whole", "aggregated"])
@pytest.mark.parametrize("slug", ["reasoning", "content-blocks"])
def test_reasoning_of_a_chat_model_is_separate_from_the_text(account: Customer, slug: str, cap: int) -> None:
    result = answer(account, model=f"sim/test/{slug}", max_tokens=cap)
    assert result["choices"][0]["text"] == "hello there"
    assert result["choices"][0]["reasoning_content"] == "First I read the question."


@pytest.mark.parametrize("cap", [16, 1000], ids=["whole", "aggregated"])
def test_a_refusal_of_a_chat_model_is_its_text(account: Customer, cap: int) -> None:
    assert answer(account, model="sim/test/refusal", max_tokens=cap)["choices"][0]["text"] == "I cannot help with that."


# --- The upstream's request


def test_the_default_of_sixteen_tokens_is_the_only_one_that_is_sent(account: Customer) -> None:
    request = received(account)
    assert (request["method"], request["path"]) == ("POST", "/v1/completions")
    assert request["body"] == {"model": "describe", "prompt": "hello there", "max_tokens": 16}


def test_a_streamed_request_adds_its_own_fields_alone(account: Customer) -> None:
    streamed = Stream.of(ask(account, model="sim/text/describe", stream=True))
    assert json.loads(WAYS["text-openai"].streamed_text(streamed))["body"] == {
        "model": "describe",
        "prompt": "hello there",
        "max_tokens": 16,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_every_field_of_the_spec_reaches_the_upstream_unchanged(account: Customer) -> None:
    fields: Json = {
        "max_tokens": 7,
        "temperature": 0,
        "top_p": 0.5,
        "n": 1,
        "stop": ["zebra"],
        "presence_penalty": -2,
        "frequency_penalty": 2,
        "user": "opaque",
        "echo": False,
        "seed": 7,
        "suffix": "of the text",
        "logit_bias": {"50256": -100},
    }
    assert received(account, **fields)["body"] == {"model": "describe", "prompt": "hello there", **fields}


@pytest.mark.parametrize(
    ("caps", "cap"),
    [
        ({"max_completion_tokens": 5}, 5),
        ({"max_completion_tokens": 5, "max_tokens": 7}, 5),
        ({"max_completion_tokens": None, "max_tokens": 7}, 7),
    ],
)
def test_either_field_caps_the_answer_and_the_newer_one_wins(account: Customer, caps: Json, cap: int) -> None:
    body = received(account, **caps)["body"]
    assert body == {"model": "describe", "prompt": "hello there", "max_tokens": cap}


def test_a_chat_model_gets_the_prompt_as_one_user_message(account: Customer) -> None:
    body = received(account, model="sim/test/describe", user="opaque")["body"]
    assert body == {"model": "describe", "messages": HELLO, "max_tokens": 16, "user": "opaque"}


def test_an_anthropic_model_gets_the_prompt_as_one_user_message(account: Customer) -> None:
    request = received(account, model="simanthropic/claude/describe", stop="zebra")
    assert request["path"] == "/v1/messages"
    assert request["body"] == {"model": "describe", "messages": HELLO, "max_tokens": 16, "stop_sequences": ["zebra"]}


def test_a_list_of_one_prompt_is_that_prompt(account: Customer) -> None:
    assert received(account, prompt=["hello there"])["body"]["prompt"] == "hello there"
    assert answer(account, model=ON_CHAT, prompt=["hello there"])["choices"][0]["text"] == "hello there"


# --- Chat on a model that completes text


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"echo": True}, "echo"),
        ({"suffix": "."}, "suffix"),
        ({"best_of": 2}, "best_of"),
        ({"logprobs": 0}, "logprobs"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"tools": [{"type": "function", "function": {"name": "weather"}}]}, "tools"),
        ({"messages": HELLO}, "messages"),
    ],
)
@pytest.mark.parametrize("model", [ON_CHAT, ON_CLAUDE])
def test_a_chat_model_refuses_what_only_a_completion_model_does(
    account: Customer, model: str, fields: Json, param: str
) -> None:
    assert refusal(ask(account, model=model, **fields)) == (*INVALID, param)
    assert bills.untouched(account)


def test_fields_of_the_other_endpoint_that_ask_for_the_usual_are_left_out(account: Customer) -> None:
    usual = {"echo": False, "best_of": 1, "suffix": "", "logprobs": False, "n": 1, "reasoning_effort": "low"}
    body = received(account, model="sim/test/describe", **usual)["body"]
    assert body == {"model": "describe", "messages": HELLO, "max_tokens": 16, "n": 1, "reasoning_effort": "low"}
    unasked: Json = {"tools": [], "tool_choice": "none", "response_format": {"type": "text"}, "logprobs": False}
    reply = chat(account, model="sim/text/describe", parallel_tool_calls=True, **unasked)
    assert json.loads(reply.json()["choices"][0]["message"]["content"])["body"].keys() == {
        "model", "prompt", "max_tokens"
    }  # fmt: skip


def chat(customer: Customer, **fields: object) -> Any:
    return customer.http.post(PATH, json={"model": ON_TEXT, "messages": HELLO, "max_tokens": 16, **fields})


def test_a_completion_model_gets_the_conversation_with_labels(account: Customer) -> None:
    turns = [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": [{"type": "text", "text": "Say "}, {"type": "text", "text": "hello."}]},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "Again."},
        {"role": "assistant", "content": None, "refusal": "No."},
        {"role": "assistant", "refusal": "Never."},
    ]
    reply = chat(account, model="sim/text/describe", messages=turns, parallel_tool_calls=True, user="opaque")
    request = json.loads(reply.json()["choices"][0]["message"]["content"])
    assert request["path"] == "/v1/completions"
    assert request["body"] == {
        "model": "describe",
        "max_tokens": 16,
        "user": "opaque",
        "prompt": (
            "System: Be brief.\n\nSystem: Be kind.\n\nUser: Say hello.\n\n"
            "Assistant: Hello.\n\nUser: Again.\n\nAssistant: No.\n\nAssistant: Never.\n\nAssistant:"
        ),
    }


@pytest.mark.parametrize("fields", [{}, {"max_tokens": 1000}], ids=["whole", "aggregated"])
def test_a_completion_model_answers_in_chat_shape(account: Customer, fields: Json) -> None:
    result = chat(account, **fields).json()
    assert result["object"] == "chat.completion"
    assert result["choices"][0]["message"]["role"] == "assistant"
    assert result["choices"][0]["message"]["content"] == "User: hello there\n\nAssistant:"
    assert "text" not in result["choices"][0]
    assert result["choices"][0]["finish_reason"] == "stop"


def test_a_completion_model_streams_in_chat_shape(account: Customer) -> None:
    streamed = Stream.of(chat(account, stream=True))
    assert (streamed.text, streamed.done) == ("User: hello there\n\nAssistant:", True)
    assert {chunk["object"] for chunk in streamed.chunks} == {"chat.completion.chunk"}
    assert [choice["delta"].get("role") for chunk in streamed.chunks for choice in chunk["choices"]][:2] == [
        "assistant", None
    ]  # fmt: skip


@pytest.mark.parametrize("cap", [16, 1000], ids=["whole", "aggregated"])
def test_chat_on_a_completion_model_passes_the_official_client(account: Customer, cap: int) -> None:
    client = account.openai()
    with client.chat.completions.stream(
        model=ON_TEXT, messages=[{"role": "user", "content": "hi"}], max_tokens=cap
    ) as events:
        final = events.get_final_completion()
    assert final.choices[0].message.content == "User: hi\n\nAssistant:"


TOOL = {"type": "function", "function": {"name": "weather"}}
CALL = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}

CUSTOM_TOOL = {"type": "custom", "custom": {"name": "grep"}}
CUSTOM_CALL = {"id": "1", "type": "custom", "custom": {"name": "grep", "input": "a"}}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [TOOL]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"logprobs": True, "top_logprobs": 2}, "logprobs"),
        ({"modalities": ["audio"]}, "modalities"),
        ({"reasoning_effort": "low"}, "reasoning_effort"),
        ({"prompt": "hi"}, "prompt"),
        ({"echo": True}, "echo"),
        ({"tools": [CUSTOM_TOOL]}, "tools"),
        ({"messages": [*HELLO, {"role": "assistant", "tool_calls": [CALL]}]}, "messages[1]"),
        ({"messages": [*HELLO, {"role": "assistant", "tool_calls": [CUSTOM_CALL]}]}, "messages[1]"),
        ({"messages": [*HELLO, {"role": "tool", "tool_call_id": "1", "content": "x"}]}, "messages[1]"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]},
            "messages[0].content[0]",
        ),
    ],
)
@whole_or_streamed
def test_a_completion_model_refuses_what_has_no_form_in_text(
    account: Customer, fields: Json, param: str, streams: bool
) -> None:
    assert faulty_field(chat(account, stream=streams, **fields)) == param
    assert bills.untouched(account)
