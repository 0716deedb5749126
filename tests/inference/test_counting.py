"""What is billed where an upstream counted part of it or nothing; nothing that a client sends may prevent it."""

from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from inference.answers import output_bytes, text_answer
from inference.text_chunks import TextChunks
from tests.bills import records
from tests.catalogue import catalogue_for, model, provider
from tests.conftest import OpenAccount, StartGateway
from tests.envelope import refusal
from tests.inference.odd_upstream import http, listening
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer
from tests.servers.simulator import Simulator

TEXT = "x" * 400  # a hundred tokens by the estimator's rule
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


def _frame(**chunk: Any) -> bytes:
    return b"data: " + orjson.dumps(chunk) + b"\n\n"


def _deep(before: bytes, after: bytes) -> bytes:
    return before + b"[" * 300 + b"]" * 300 + after


def _choice(text: str | list[Any], finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}


USAGE_FIRST = _frame(choices=[], usage={"prompt_tokens": 5, "completion_tokens": 0})
SCRIPTS = {
    "usage-first-breaks": HEAD + USAGE_FIRST + _frame(**_choice(TEXT)),
    "usage-first-finishes": HEAD + USAGE_FIRST + _frame(**_choice(TEXT)) + _frame(**_choice("", "stop")),
    "thought-breaks": HEAD + _frame(**_choice([{"type": "thinking", "thinking": [{"type": "text", "text": TEXT}]}])),
    "half-usage": http(
        "200 OK",
        orjson.dumps({"choices": [{"message": {"content": TEXT}}], "usage": {"prompt_tokens": 5}}),
        "Content-Type: application/json",
    ),
    "deep-answer": http(
        "200 OK", _deep(b'{"choices":[{"message":{"content":"a"}}],"x":', b"}"), "Content-Type: application/json"
    ),
    "deep-chunk": HEAD + _deep(b'data: {"choices":[{"delta":{"content":"a"}}],"x":', b"}\n\n"),
    "deep-second-chunk": HEAD
    + _frame(**_choice("first"))
    + _deep(b'data: {"choices":[{"delta":{"content":"a"}}],"x":', b"}\n\n"),
    "error-instead-of-stream": http(
        "200 OK", orjson.dumps({"error": {"message": "Out of tea."}}), "Content-Type: application/json"
    ),
}


@pytest.fixture(scope="module")
def gateway(simulator: Simulator, start_shared_gateway: StartGateway) -> Iterator[GatewayServer]:
    with listening(SCRIPTS) as odd:
        catalogue = catalogue_for(
            simulator.url, *(model(name, provider="odd", upstream_model=name) for name in SCRIPTS)
        )
        catalogue["providers"].append(provider("odd", f"http://127.0.0.1:{odd.port}/v1"))
        yield start_shared_gateway(catalogue=catalogue, GATEWAY_AGGREGATE_OVER_TOKENS="100000")


@pytest.fixture
def customer(gateway: GatewayServer, open_account: OpenAccount) -> Customer:
    return open_account(gateway)


def chat(customer: Customer, name: str, *, stream: bool) -> Any:
    body = {
        "model": f"odd/test/{name}",
        "stream": stream,
        "max_tokens": 500,
        "messages": [{"role": "user", "content": "Hi"}],
    }
    return customer.http.post("/v1/chat/completions", json=body)


@pytest.mark.parametrize("name", ["usage-first-breaks", "usage-first-finishes"])
def test_output_after_the_last_count_is_billed_and_flagged(customer: Customer, name: str) -> None:
    assert TEXT in chat(customer, name, stream=True).text
    (record,) = records(customer)
    assert (record.prompt_tokens, record.completion_tokens, record.usage_estimated) == (5, 100, True)


def test_thinking_that_came_in_blocks_is_output(customer: Customer) -> None:
    assert TEXT in chat(customer, "thought-breaks", stream=True).text
    (record,) = records(customer)
    assert (record.completion_tokens, record.ending) == (100, "upstream_broke")


def test_a_usage_without_completion_tokens_is_no_count_of_them(customer: Customer) -> None:
    assert chat(customer, "half-usage", stream=False).status_code == 200
    (record,) = records(customer)
    assert (record.completion_tokens, record.usage_estimated) == (100, True)


@pytest.mark.parametrize(("name", "stream"), [("deep-answer", False), ("deep-chunk", True)])
def test_an_answer_nested_too_deep_to_be_written_is_the_upstreams_fault(
    customer: Customer, name: str, stream: bool
) -> None:
    assert refusal(chat(customer, name, stream=stream)).code == "provider_error"
    assert records(customer) == []


def test_a_chunk_nested_too_deep_breaks_the_stream_in_order(customer: Customer) -> None:
    frames = chat(customer, "deep-second-chunk", stream=True).text
    assert '"code":"provider_error"' in frames
    assert "[DONE]" not in frames
    assert [record.ending for record in records(customer)] == ["upstream_broke"]


def test_an_error_instead_of_a_stream_is_quoted(customer: Customer) -> None:
    reply = chat(customer, "error-instead-of-stream", stream=True)
    assert refusal(reply).status == 503
    assert "Out of tea." in reply.text


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("messages", [5, [], [5], {"role": "user"}])
@pytest.mark.parametrize("slug", ["completion", "no-usage"])
def test_a_field_of_another_endpoint_cannot_keep_a_completion_from_being_billed(
    account: Customer, slug: str, stream: bool, messages: Any
) -> None:
    """Nobody of ours reads the field: a model that completes text gets it as it came, one that chats the prompt."""
    body = {"model": f"sim/test/{slug}", "prompt": "one two three", "stream": stream, "messages": messages}
    assert account.http.post("/v1/completions", json=body).status_code == 200
    assert [record.ending for record in records(account)] == ["finished"]


@pytest.mark.parametrize("name", ["tools", "tool_choice", "functions", "parallel_tool_calls"])
def test_a_text_completion_on_a_chat_model_takes_no_chat_fields(account: Customer, name: str) -> None:
    body = {"model": "sim/test/echo", "prompt": "one", name: [5]}
    assert refusal(account.http.post("/v1/completions", json=body)).param == name


def test_a_text_completion_never_finishes_with_tool_calls(account: Customer) -> None:
    answer = account.http.post("/v1/completions", json={"model": "sim/test/tools", "prompt": "one"}).json()
    assert answer["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize(("reasoning", "counted"), [("x" * 400, 402), (None, 2), (["x"], 2)], ids=str)
@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_beside_a_text_counts_the_same_whole_and_streamed(name: str, reasoning: Any, counted: int) -> None:
    said = {"choices": [{"index": 0, "text": "hi", name: reasoning}]}
    chunk = TextChunks(id="gen-1", created=1, model="m", choices=1).normalise(said)
    assert chunk is not None
    assert chunk.text_bytes == counted
    assert output_bytes(text_answer(said, id="gen-1", created=1, model="m")) == counted


def test_a_body_nested_too_deep_with_a_long_number_is_the_clients_fault(account: Customer) -> None:
    body = b'{"n": 1234567890123456789, "x": ' + b"[" * 1000 + b"]" * 1000 + b"}"
    assert refusal(account.http.post("/v1/chat/completions", data=body)).status == 400
