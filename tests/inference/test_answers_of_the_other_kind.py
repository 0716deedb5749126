"""Upstreams may send a whole answer instead of a stream, or a stream instead of a whole answer.

The content type decides, and clients get the shape that they requested (docs/providers.md#seen-in-the-field).
"""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import orjson
import pytest

from tests import bills
from tests.catalogue import model, provider
from tests.chat import HELLO, Stream
from tests.envelope import refusal
from tests.inference.odd_upstream import Script, http, listening
from tests.inference.responses.events import Events as ResponseEvents
from tests.inference.shapes import CHAT, TEXT
from tests.inference.six_ways import WAYS, Answer, ask
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer

Json = dict[str, Any]

# These are prices for a million tokens.
PRICES = {"currency": "EUR", "prompt_per_1m_tokens": 10, "completion_per_1m_tokens": 100}
COST = Decimal("0.0006")  # for 10 and 5 tokens
USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
CLAUDES_USAGE = {"input_tokens": 10, "output_tokens": 5}
WEATHER: Json = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Paris"}'}}
SAID: Json = {"role": "assistant", "content": "hello", "reasoning_content": "hm", "tool_calls": [WEATHER]}
TOOL_USE: Json = {"type": "tool_use", "id": "call_1", "name": "weather", "input": {"city": "Paris"}}
THOUGHT: Json = {"type": "thinking", "thinking": "hm", "signature": "sig"}
LOCATION: Json = {"type": "web_search_result_location", "url": "https://a.example/", "title": "A", "cited_text": "a"}
LOCATION |= {"encrypted_index": "x"}
BLOCKS: list[Json] = [THOUGHT, {"type": "text", "text": "hello", "citations": [LOCATION]}, TOOL_USE]
MESSAGE: Json = {"id": "m", "type": "message", "role": "assistant", "content": BLOCKS}
MESSAGE |= {"stop_reason": "tool_use", "stop_sequence": None}
ITEMS: list[Json] = [
    {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "x"},
    {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "hello", "annotations": [], "logprobs": []}],
    },
    {
        **{"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "weather", "status": "completed"},
        "arguments": '{"city":"Paris"}',
    },
]
RESPONSE: Json = {"id": "resp_up", "object": "response", "created_at": 1, "status": "completed", "output": ITEMS}
RESPONSE |= {"model": "up", "error": None, "incomplete_details": None, "usage": {**CLAUDES_USAGE, "total_tokens": 15}}


def chat(*choices: Json, **fields: Any) -> Json:
    return {"id": "c", "object": "chat.completion", "choices": choices, "usage": USAGE, **fields}


WHOLE: dict[str, Json] = {
    "chat": chat({"index": 0, "message": SAID, "finish_reason": "tool_calls"}),
    "two": chat({"message": {"content": "a"}}, {"message": {"content": "b"}, "finish_reason": "length"}),
    "text": {"object": "text_completion", "choices": [{"index": 0, "text": "hello"}], "usage": USAGE},
    "claude": {**MESSAGE, "model": "up", "usage": CLAUDES_USAGE},
    "response": RESPONSE,
    "error": {"error": {"message": "No room here.", "code": 500}},
    "no-message": chat({"index": 0, "finish_reason": "stop"}),
    "contradictory": chat({"index": 0, "message": SAID}, usage={**USAGE, "prompt_tokens": -1}),
    "uncounted": chat({"index": 0, "message": {"content": "hello"}}, usage=None),
}
EVENTS: dict[str, list[Json]] = {
    "chat": [
        {"choices": [{"index": 0, "delta": {"role": "assistant", "reasoning_content": "hm"}}]},
        {"choices": [{"index": 0, "delta": {"content": "hello"}}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, **WEATHER}]}, "finish_reason": "tool_calls"}]},
        {"choices": [], "usage": USAGE},
    ],
    "text": [{"choices": [{"index": 0, "text": "hello", "finish_reason": "stop"}], "usage": USAGE}],
    "claude": [
        {"type": "message_start", "message": {**MESSAGE, "model": "up", "content": [], "usage": CLAUDES_USAGE}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hello"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": CLAUDES_USAGE},
        {"type": "message_stop"},
    ],
    "response": [
        {"type": "response.created", "response": {**RESPONSE, "output": []}},
        {"type": "response.completed", "response": RESPONSE},
    ],
    "broken": [{"choices": [{"index": 0, "delta": {"content": "hello"}}]}],
}
LABELS = {
    "": "",
    "-as-json": "Content-Type: application/json",
    "-as-sse": "Content-Type: text/event-stream; charset=utf-8",
}
MODALITIES = {"text": "completion", "response": "responses"}


def sse(events: list[Json], *, is_whole: bool = True) -> bytes:
    frames = b"".join(b"data: %b\n\n" % orjson.dumps(event) for event in events)
    return frames + (b"data: [DONE]\n\n" if is_whole else b"")


def labelled(body: bytes, label: str) -> bytes:
    return http("200 OK", body, *filter(None, [label]))


SCRIPTS: dict[str, Script] = {
    **{
        f"{name}-json{suffix}": labelled(orjson.dumps(body), label)
        for name, body in WHOLE.items()
        for suffix, label in LABELS.items()
    },
    **{
        f"{name}-sse{suffix}": labelled(sse(events, is_whole=name != "broken"), label)
        for name, events in EVENTS.items()
        for suffix, label in LABELS.items()
    },
}
IN_PIECES = labelled(sse(EVENTS["chat"]), LABELS["-as-json"])
HEAD = IN_PIECES.index(b"\r\n\r\n") + 4
SCRIPTS["chat-sse-in-pieces"] = (IN_PIECES[: HEAD + 1], IN_PIECES[HEAD + 1 : HEAD + 4], IN_PIECES[HEAD + 4 :])
WHOLE_IN_PIECES = labelled(orjson.dumps(WHOLE["chat"]), LABELS["-as-sse"])
SCRIPTS["chat-json-in-pieces"] = (WHOLE_IN_PIECES[:-200], WHOLE_IN_PIECES[-200:])
every_label = pytest.mark.parametrize("label", LABELS)


@pytest.fixture(scope="module")
def gateway(gateway: GatewayServer) -> Iterator[GatewayServer]:
    with listening(SCRIPTS) as odd:
        models = [
            model(
                name,
                provider="claude-kinds" if name.startswith("claude") else "odd-kinds",
                upstream_model=name,
                pricing=PRICES,
                modality=MODALITIES.get(name.partition("-")[0], "chat"),
            )
            for name in SCRIPTS
        ]
        url = f"http://127.0.0.1:{odd.port}/v1"
        providers = [provider("odd-kinds", url), provider("claude-kinds", url, dialect="anthropic")]
        gateway.offer(providers=providers, models=models)
        yield gateway


def is_billed_in_full(customer: Customer) -> bool:
    """Tells whether the only record is of an answer that finished and was counted by its provider."""
    (record,) = bills.records(customer)
    assert (record.ending, record.prompt_tokens, record.completion_tokens) == ("finished", 10, 5)
    assert not record.usage_estimated
    return bills.debits(customer) == [COST]


CALLED = Answer("hello", "hm", (("weather", {"city": "Paris"}),), ("call_1",), finish="tool_calls")


@every_label
@pytest.mark.parametrize("way", WAYS)
def test_a_whole_answer_is_one_in_every_form(customer: Customer, way: str, label: str) -> None:
    assert ask(customer, f"odd-kinds/test/chat-json{label}", way) == CALLED
    assert is_billed_in_full(customer)


@every_label
@pytest.mark.parametrize("cap", [16, 500], ids=["asked whole", "asked streamed"])
@pytest.mark.parametrize("way", WAYS)
def test_a_stream_is_one_in_every_form(customer: Customer, way: str, cap: int, label: str) -> None:
    capped = {"max_output_tokens" if way.startswith("responses") else "max_tokens": cap}
    assert ask(customer, f"odd-kinds/test/chat-sse{label}", way, **capped) == CALLED
    assert is_billed_in_full(customer)


@pytest.mark.parametrize("way", WAYS)
def test_a_whole_message_is_one_in_every_form(customer: Customer, way: str) -> None:
    said = ask(customer, "claude-kinds/test/claude-json", way)
    assert (said.text, said.reasoning, said.calls, said.finish) == ("hello", "hm", CALLED.calls, "tool_calls")
    assert is_billed_in_full(customer)


@pytest.mark.parametrize("way", WAYS)
def test_a_message_that_was_streamed_unasked_is_one_in_every_form(customer: Customer, way: str) -> None:
    capped = {"max_output_tokens" if way.startswith("responses") else "max_tokens": 16}
    assert ask(customer, "claude-kinds/test/claude-sse", way, **capped) == Answer("hello", finish="stop")
    assert is_billed_in_full(customer)


def test_a_whole_message_keeps_its_signature_and_citations_in_a_stream(customer: Customer) -> None:
    said = ask(customer, "claude-kinds/test/claude-json", "messages streamed")
    assert said.cited == (LOCATION["url"],)
    text = customer.http.post(
        "/v1/messages",
        json={"model": "claude-kinds/test/claude-json", "max_tokens": 16, "messages": HELLO, "stream": True},
    ).text
    assert '"signature":"sig"' in text


@every_label
def test_a_whole_response_is_streamed_item_by_item(customer: Customer, label: str) -> None:
    body = {"model": f"odd-kinds/test/response-json{label}", "input": "hi", "stream": True}
    events = ResponseEvents.of(customer.http.post("/v1/responses", json=body))
    assert events.text == "hello"
    (arguments,) = events.named("response.function_call_arguments.delta")
    assert arguments["delta"] == ITEMS[2]["arguments"]
    assert events.final["output"] == ITEMS
    assert is_billed_in_full(customer)


def test_a_response_that_was_streamed_unasked_is_whole(customer: Customer) -> None:
    body = {"model": "odd-kinds/test/response-sse", "input": "hi", "max_output_tokens": 16}
    assert customer.http.post("/v1/responses", json=body).json()["output"] == ITEMS
    assert is_billed_in_full(customer)


@every_label
@pytest.mark.parametrize("kind", ["json", "sse"])
@pytest.mark.parametrize("asked", [{"stream": True}, {"max_tokens": 16}], ids=["streamed", "whole"])
def test_a_text_completion_is_one(customer: Customer, kind: str, asked: Json, label: str) -> None:
    reply = customer.http.post(TEXT, json={"model": f"odd-kinds/test/text-{kind}{label}", "prompt": "hi", **asked})
    answers = Stream.of(reply).chunks if "stream" in asked else [reply.json()]
    choices = [choice for each in answers for choice in each["choices"]]
    assert "".join(choice["text"] for choice in choices) == "hello"
    assert choices[-1]["finish_reason"] == "stop"
    assert is_billed_in_full(customer)


def test_choices_without_numbers_are_numbered_in_order(customer: Customer) -> None:
    body = {"model": "odd-kinds/test/two-json", "messages": HELLO, "stream": True, "n": 2}
    choices = [choice for chunk in Stream.of(customer.http.post(CHAT, json=body)).chunks for choice in chunk["choices"]]
    said = {0: "", 1: ""}
    for choice in choices:
        said[choice["index"]] += choice["delta"].get("content", "")
    assert said == {0: "a", 1: "b"}
    finishes = {choice["index"]: choice["finish_reason"] for choice in choices if choice["finish_reason"]}
    assert finishes == {0: "stop", 1: "length"}


@pytest.mark.parametrize("name", ["chat-sse-in-pieces", "chat-json-in-pieces"])
@pytest.mark.parametrize("way", ["chat streamed", "chat whole"])
def test_an_answer_in_pieces_is_what_its_beginning_says(customer: Customer, name: str, way: str) -> None:
    assert ask(customer, f"odd-kinds/test/{name}", way, max_tokens=16) == CALLED
    assert is_billed_in_full(customer)


def test_what_no_usage_counts_is_estimated(customer: Customer) -> None:
    assert ask(customer, "odd-kinds/test/uncounted-json", "chat streamed").text == "hello"
    (record,) = bills.records(customer)
    assert (record.ending, record.usage_estimated, record.completion_tokens) == ("finished", True, 2)


@every_label
@pytest.mark.parametrize(("name", "words"), [("error", "No room here."), ("no-message", "without a message")])
def test_what_is_no_answer_costs_nothing(customer: Customer, name: str, words: str, label: str) -> None:
    reply = customer.http.post(
        CHAT, json={"model": f"odd-kinds/test/{name}-json{label}", "messages": HELLO, "stream": True}
    )
    assert refusal(reply) == (503, "provider_error", "provider_error", None)
    assert words in reply.json()["error"]["message"]
    assert bills.untouched(customer)


def test_usage_that_contradicts_itself_withholds_a_whole_answer(customer: Customer) -> None:
    body = {"model": "odd-kinds/test/contradictory-json", "messages": HELLO, "stream": True}
    assert refusal(customer.http.post(CHAT, json=body)).code == "provider_error"
    (record,) = bills.records(customer)
    assert (record.ending, record.cost, bills.debits(customer)) == ("cost_unresolvable", None, [])


def test_a_stream_that_breaks_off_is_no_whole_answer(customer: Customer) -> None:
    body = {"model": "odd-kinds/test/broken-sse", "messages": HELLO, "max_tokens": 16}
    assert refusal(customer.http.post(CHAT, json=body)).code == "provider_error"
    assert bills.untouched(customer)
