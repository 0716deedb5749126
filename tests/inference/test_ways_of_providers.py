"""Requests are answered, and billed by the providers' counts, even if providers send what no specification describes.

Each request has two words in and two out. A million tokens cost 1 in the prompt, 10 in the answer and 0.1 if cached.
"""

import base64
import struct
from decimal import Decimal
from typing import Any

import orjson
import pytest

from simulator.openai import vector
from tests.bills import debits, records
from tests.catalogue import model, provider
from tests.chat import HELLO, Stream
from tests.envelope import refusal
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer
from tests.servers.simulator import Simulator

Json = dict[str, Any]

PRICES = {
    "currency": "EUR",
    "prompt_per_1m_tokens": 1,
    "completion_per_1m_tokens": 10,
    "cache_read_per_1m_tokens": 0.1,
}
TOOLS: list[Json] = [{"type": "function", "function": {"name": "lookup", "parameters": {"type": "object"}}}]
CLAUDE_TOOLS: list[Json] = [{"name": "lookup", "input_schema": {"type": "object", "properties": {}}}]
WAYS = ("whole", "aggregated", "streamed")
FIELDS: dict[str, Json] = {
    "whole": {"max_tokens": 16},
    "aggregated": {"max_tokens": 1000},
    "streamed": {"stream": True},
}
IN_ALL_WAYS = pytest.mark.parametrize("way", WAYS)
# Maps a model's name to what its provider does, and to that provider.
MODELS: dict[str, tuple[str, str]] = {
    "more-cached": ("bad-usage:cached", "sim"),
    "hits-moonshot": ("cached:20+usage-shape:cached_tokens", "sim"),
    "hits-mistral": ("cached:20+usage-shape:num_cached_tokens", "sim"),
    "hits-deepseek": ("cached:20+usage-shape:prompt_cache_hit_tokens", "sim"),
    "thinks": ("reasoning+usage-shape:thinking", "google"),
    "thinks-elsewhere": ("reasoning+usage-shape:thinking", "sim"),
    "hears": ("usage-shape:audio", "voxtral"),
    "hears-elsewhere": ("usage-shape:audio", "sim"),
    "counts-nothing": ("usage-shape:zero", "sim"),
    "no-finish": ("no-finish", "sim"),
    "no-finish-no-usage": ("no-finish+no-usage", "sim"),
    "calls-without-finish": ("tools+no-finish", "sim"),
    "filtered": ("filtered", "sim"),
    "usage-in-groq": ("usage-in:x_groq", "sim"),
    "usage-in-error": ("usage-in:error", "sim"),
    "surplus": ("more-choices:2", "sim"),
    "many-surplus": ("more-choices:500", "sim"),
    "as-json": ("as-json", "sim"),
    "as-json-in-pieces": ("as-json+split:1", "sim"),
    "novel": ("unknown-deltas", "sim"),
    "claude-novel": ("unknown-deltas", "simanthropic"),
    "claude-no-arguments": ("tools+empty-arguments", "simanthropic"),
    "claude-cut": ("tools+cut-arguments", "simanthropic"),
    "cut": ("tools+cut-arguments", "sim"),
    "describe-tools": ("describe", "sim"),
    "int8": ("int8", "sim"),
    "total-alone": ("usage-shape:total-alone", "sim"),
    "nothing-said": ("filtered+usage-shape:no-completion", "sim"),
}
EMBEDDING = ("int8", "total-alone")


@pytest.fixture(scope="module")
def gateway(gateway: GatewayServer, simulator: Simulator) -> GatewayServer:
    gateway.offer(
        providers=[
            provider("google", simulator.url, total_includes_reasoning=True),
            provider("voxtral", simulator.url, total_includes_audio_prompts=True),
        ],
        models=[
            model(
                name,
                provider=at,
                upstream_model=behaviour,
                pricing=PRICES,
                modality="embedding" if name in EMBEDDING else "chat",
            )
            for name, (behaviour, at) in MODELS.items()
        ],
    )
    return gateway


def asked(customer: Customer, path: str, name: str, way: str, **fields: Any) -> Any:
    body = {"model": f"{MODELS[name][1]}/test/{name}", "messages": HELLO, **FIELDS[way], **fields}
    if path == "messages":
        body.setdefault("max_tokens", 1000)
    return customer.http.post(f"/v1/{path}", json=body)


def chat(customer: Customer, name: str, way: str, **fields: Any) -> Json:
    """Returns a chat's only message, with its finish and usage."""
    reply = asked(customer, "chat/completions", name, way, **fields)
    assert reply.status_code == 200, reply.text
    if way != "streamed":
        (choice,) = reply.json()["choices"]
        return {**choice["message"], "finish": choice["finish_reason"], "usage": reply.json()["usage"]}
    streamed = Stream.of(reply)
    assert streamed.done
    finishes = [choice["finish_reason"] for chunk in streamed.chunks for choice in chunk["choices"]]
    return {"content": streamed.text, "finish": finishes[-1], "usage": streamed.chunks[-1]["usage"]}


def flags(customer: Customer) -> str | None:
    (record,) = records(customer)
    return record.flags


def counted(customer: Customer) -> tuple[int, int, bool]:
    """Returns the prompt and completion tokens of the only record, and whether they are estimated."""
    (record,) = records(customer)
    assert record.ending == "finished"
    return record.prompt_tokens, record.completion_tokens, record.usage_estimated


@IN_ALL_WAYS
def test_more_cached_than_prompt_tokens_is_all_prompt(customer: Customer, way: str) -> None:
    said = chat(customer, "more-cached", way)
    assert (said["content"], said["finish"]) == ("hello there", "stop")
    assert "cached_tokens" not in said["usage"].get("prompt_tokens_details", {})
    assert debits(customer) == [Decimal("0.000022")]
    assert flags(customer) == "cache_mismatch"


@IN_ALL_WAYS
@pytest.mark.parametrize("name", ["hits-moonshot", "hits-mistral", "hits-deepseek"])
def test_cache_hits_have_their_price_under_any_name(customer: Customer, name: str, way: str) -> None:
    said = chat(customer, name, way)
    assert said["usage"]["prompt_tokens_details"]["cached_tokens"] == 20
    assert debits(customer) == [Decimal("0.000024")]
    assert flags(customer) is None


@IN_ALL_WAYS
@pytest.mark.parametrize(
    ("name", "completion", "flag"), [("thinks", 7, None), ("thinks-elsewhere", 2, "total_mismatch")]
)
def test_thinking_is_billed_if_the_provider_counts_it_only_in_the_total(
    customer: Customer, name: str, completion: int, flag: str | None, way: str
) -> None:
    usage = chat(customer, name, way)["usage"]
    assert (usage["completion_tokens"], usage["total_tokens"]) == (completion, completion + 2)
    assert debits(customer) == [Decimal(2 + 10 * completion) / 1_000_000]
    assert flags(customer) == flag


@IN_ALL_WAYS
@pytest.mark.parametrize(("name", "prompt", "flag"), [("hears", 302, None), ("hears-elsewhere", 2, "total_mismatch")])
def test_the_audio_of_a_prompt_is_billed_if_the_provider_counts_it_only_in_the_total(
    customer: Customer, name: str, prompt: int, flag: str | None, way: str
) -> None:
    usage = chat(customer, name, way)["usage"]
    assert (usage["prompt_tokens"], usage["total_tokens"]) == (prompt, prompt + 2)
    assert usage["prompt_tokens_details"]["audio_tokens"] == 300
    assert debits(customer) == [Decimal(prompt + 20) / 1_000_000]
    assert flags(customer) == flag


@IN_ALL_WAYS
def test_an_answer_that_was_counted_as_nothing_is_flagged(customer: Customer, way: str) -> None:
    assert chat(customer, "counts-nothing", way)["content"] == "hello there"
    assert counted(customer) == (0, 0, False)
    assert flags(customer) == "zero_usage"


@IN_ALL_WAYS
def test_an_end_without_a_finish_is_complete_if_the_answer_was_counted(customer: Customer, way: str) -> None:
    said = chat(customer, "no-finish", way)
    assert (said["content"], said["finish"]) == ("hello there", "stop")
    assert counted(customer) == (2, 2, False)


@pytest.mark.parametrize("way", ["aggregated", "streamed"])
def test_calls_without_a_finish_are_for_the_client_to_run(customer: Customer, way: str) -> None:
    assert chat(customer, "calls-without-finish", way, tools=TOOLS)["finish"] == "tool_calls"


@pytest.mark.parametrize("path", ["messages", "responses"])
def test_an_end_without_a_finish_is_one_in_every_form(customer: Customer, path: str) -> None:
    fields = {"messages": None, "input": "hello there", "max_tokens": None} if path == "responses" else {}
    reply = asked(customer, path, "no-finish", "streamed", **fields)
    assert ("message_stop" if path == "messages" else "response.completed") in reply.text
    assert counted(customer)[1:] == (2, False)


def test_an_end_with_neither_finish_nor_count_is_broken(customer: Customer) -> None:
    assert refusal(asked(customer, "chat/completions", "no-finish-no-usage", "aggregated")).code == "provider_error"
    streamed = Stream.of(asked(customer, "chat/completions", "no-finish-no-usage", "streamed"))
    assert (streamed.done, len(streamed.errors)) == (False, 1)
    assert [record.ending for record in records(customer)] == ["upstream_broke"]


@IN_ALL_WAYS
def test_what_a_filter_took_whole_is_an_empty_message(customer: Customer, way: str) -> None:
    said = chat(customer, "filtered", way)
    assert (said["content"] or "", said["finish"]) == ("", "content_filter")
    assert counted(customer) == (2, 2, False)


def test_what_a_filter_took_whole_is_a_refusal_in_messages(customer: Customer) -> None:
    message = asked(customer, "messages", "filtered", "whole").json()
    assert (message["content"], message["stop_reason"]) == ([], "refusal")


@IN_ALL_WAYS
@pytest.mark.parametrize("name", ["usage-in-groq", "usage-in-error"])
def test_usage_is_read_wherever_it_stands(customer: Customer, name: str, way: str) -> None:
    assert chat(customer, name, way)["content"] == "hello there"
    assert counted(customer) == (2, 2, False)


@IN_ALL_WAYS
@pytest.mark.parametrize("name", ["surplus", "many-surplus"])
def test_unrequested_choices_are_left_out(customer: Customer, name: str, way: str) -> None:
    assert chat(customer, name, way)["content"] == "hello there"
    assert flags(customer) == "malformed_event"


@IN_ALL_WAYS
def test_unrequested_choices_are_left_out_of_a_message(customer: Customer, way: str) -> None:
    text = asked(customer, "messages", "surplus", way).text
    assert text.count("there") == 1


@pytest.mark.parametrize("way", ["aggregated", "streamed"])
@pytest.mark.parametrize("name", ["as-json", "as-json-in-pieces"])
def test_a_stream_is_one_whatever_its_label(customer: Customer, name: str, way: str) -> None:
    assert chat(customer, name, way)["content"] == "hello there"
    assert counted(customer) == (2, 2, False)


NOVEL: Json = {"novel": "novel", "steps": [{"index": 0, "said": "novel"}]}


@pytest.mark.parametrize("way", ["whole", "aggregated"])
def test_unknown_members_survive_in_every_form(customer: Customer, way: str) -> None:
    said = chat(customer, "novel", way)
    assert {"novel": said["sim_novel"], "steps": said["sim_steps"]} == NOVEL
    message = asked(customer, "messages", "claude-novel", way).json()
    assert message["content"][0] == {"type": "sim_novel", **NOVEL}
    assert message["content"][1] == {"type": "text", "text": "hello there"}


@IN_ALL_WAYS
def test_a_call_without_arguments_is_a_call(customer: Customer, way: str) -> None:
    reply = asked(customer, "messages", "claude-no-arguments", way, tools=CLAUDE_TOOLS)
    assert reply.status_code == 200, reply.text
    assert counted(customer)[0] > 0
    if way != "streamed":
        (block,) = reply.json()["content"]
        assert (block["type"], block["name"], block["input"]) == ("tool_use", "lookup", {})
        assert reply.json()["stop_reason"] == "tool_use"


@pytest.mark.parametrize("name", ["claude-cut", "cut"])
def test_arguments_that_were_cut_are_shown_as_they_are(customer: Customer, name: str) -> None:
    message = asked(customer, "messages", name, "aggregated", tools=CLAUDE_TOOLS).json()
    (block,) = message["content"]
    assert message["stop_reason"] == "max_tokens"
    (text,) = block["input"].values()
    assert block["input"] == {"invalid_arguments": text}
    assert orjson.dumps({"query": "hello there"}).decode().startswith(text)
    assert not counted(customer)[2]


@pytest.mark.parametrize("name", ["claude-cut", "cut"])
def test_cut_arguments_are_cut_in_a_chat(customer: Customer, name: str) -> None:
    said = chat(customer, name, "aggregated", tools=TOOLS)
    assert said["finish"] == "length"
    assert said["tool_calls"][0]["function"]["arguments"] == '{"query":"h'


@pytest.mark.parametrize(("choice", "sent"), [("any", "required"), ({"function": {"name": "lookup"}}, None)])
def test_tools_without_a_type_are_functions(customer: Customer, choice: Any, sent: Any) -> None:
    (tool,) = TOOLS
    said = chat(customer, "describe-tools", "whole", tools=[{"function": tool["function"]}], tool_choice=choice)
    body = orjson.loads(said["content"])["body"]
    assert body["tools"] == TOOLS
    assert body["tool_choice"] == (sent or {"type": "function", **choice})


def test_an_embedding_in_bytes_reaches_a_client_that_names_no_encoding(customer: Customer) -> None:
    for dimensions in (9, 64):  # one length is a multiple of a float's, the other is not
        body = {"model": "sim/test/int8", "input": "hello there", "dimensions": dimensions}
        reply = customer.http.post("/v1/embeddings", json=body)
        assert reply.status_code == 200, reply.text
        packed = base64.b64decode(reply.json()["data"][0]["embedding"], validate=True)
        assert packed == int8("hello there", dimensions)
    assert [(record.prompt_tokens, record.ending) for record in records(customer)] == [(2, "finished")] * 2


@pytest.mark.parametrize("dimensions", [9, 64])
@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_an_embedding_in_bytes_is_refused_once_and_for_all_to_a_client_that_takes_floats(
    customer: Customer, encoding: str, dimensions: int
) -> None:
    body = {"model": "sim/test/int8", "input": "hello there", "dimensions": dimensions, "encoding_format": encoding}
    reply = customer.http.post("/v1/embeddings", json=body)
    assert refusal(reply).code == "provider_error"
    assert reply.headers["x-should-retry"] == "false"
    assert records(customer) == []


def test_base64_is_of_the_type_that_the_client_asked_for(customer: Customer) -> None:
    fields = {"encoding_format": "base64", "output_dtype": "int8", "dimensions": 64}
    reply = customer.http.post("/v1/embeddings", json={"model": "sim/test/int8", "input": "hello there", **fields})
    packed = base64.b64decode(reply.json()["data"][0]["embedding"], validate=True)
    assert packed == int8("hello there", 64)


def int8(text: str, size: int) -> bytes:
    """Returns the simulator's vector of a text in 8-bit numbers."""
    return bytes(round(127 * number) & 255 for number in struct.unpack(f"<{size}f", vector(text, size)))


def test_the_total_of_an_embedding_is_its_prompt(customer: Customer) -> None:
    reply = customer.http.post("/v1/embeddings", json={"model": "sim/test/total-alone", "input": "hello there"})
    assert reply.json()["usage"]["prompt_tokens"] == 2
    assert counted(customer) == (2, 0, False)


@IN_ALL_WAYS
def test_an_answer_of_nothing_was_counted(customer: Customer, way: str) -> None:
    chat(customer, "nothing-said", way)
    assert counted(customer) == (2, 0, False)
    assert flags(customer) is None
