"""Tests the simulated provider's faults and how it counts calls."""

import json
import socket
from typing import Any

import pytest

from tests.simulator.process import Json, Provider, chat_body, frames, texts

ASK_USAGE: Json = {"stream_options": {"include_usage": True}}


def read_until_reset(raw: socket.socket) -> bytes:
    received = b""
    try:
        while data := raw.recv(65536):
            received += data
    except ConnectionResetError:
        return received
    pytest.fail(f"closed without a reset after {received!r}")


def test_drop_resets_after_the_chunks(provider: Provider) -> None:
    with provider.send("/v1/chat/completions", chat_body("drop:3", "hi", stream=True)) as raw:
        received = read_until_reset(raw)
    assert received.count(b'"delta":{"content":') == 3
    assert b"finish_reason" in received
    assert b"[DONE]" not in received


def test_drop_at_zero_resets_before_any_header(provider: Provider) -> None:
    with provider.send("/v1/chat/completions", chat_body("drop:0", "hi", stream=True)) as raw:
        assert read_until_reset(raw) == b""


def test_drop_cuts_a_whole_answer_in_its_body(provider: Provider) -> None:
    with provider.send("/v1/chat/completions", chat_body("drop:1", "hi")) as raw:
        received = read_until_reset(raw)
    assert received.startswith(b"HTTP/1.1 200")
    assert not received.endswith(b"}")


def test_drop_after_the_finish_leaves_out_usage_and_done(provider: Provider) -> None:
    with provider.send("/v1/chat/completions", chat_body("drop:finish", "hi", stream=True, **ASK_USAGE)) as raw:
        received = read_until_reset(raw)
    assert b'"finish_reason":"stop"' in received
    assert b"prompt_tokens" not in received


def test_stall_falls_silent_and_notices_that_the_caller_leaves(provider: Provider) -> None:
    model = "stall:2+finish:stalls"
    response = provider.chat_stream(model)
    lines = [response.readline() for _ in range(6)]
    assert texts(frames(b"".join(lines).decode())) == ["hello", " there"]
    assert provider.eventually(model, open=1, cut=0)
    response.close()
    assert provider.eventually(model, calls=1, cut=1, open=0)


def test_stall_at_zero_sends_headers_alone(provider: Provider) -> None:
    model = "stall:0+finish:headers"
    with provider.chat_stream(model) as response:
        assert response.headers["Content-Type"].startswith("text/event-stream")
        assert provider.eventually(model, open=1)
    assert provider.eventually(model, cut=1)


@pytest.mark.parametrize("model", ["stall:1+finish:whole", "slow-first-byte:600", "chunks:10:60"])
def test_a_caller_that_leaves_a_silent_whole_answer_is_noticed(provider: Provider, model: str) -> None:
    with provider.send("/v1/chat/completions", chat_body(model, "hi")):
        assert provider.eventually(model, open=1)
    assert provider.eventually(model, cut=1, open=0)


def test_a_caller_that_leaves_an_endless_answer_is_noticed(provider: Provider) -> None:
    with provider.chat_stream("endless") as response:
        assert texts(frames(response.read(5000).decode().rpartition("\n\n")[0]))[-1] == " there"
    assert provider.eventually("endless", cut=1)
    with provider.open("/v1/chat/completions", chat_body("endless", "hi")) as response:
        assert len(response.read(5000)) == 5000
    assert provider.eventually("endless", cut=2, open=0)


def test_a_complete_answer_is_not_cut(provider: Provider) -> None:
    model = "echo+finish:counted"
    provider.chat(model)
    provider.chat_stream(model).read()
    assert provider.eventually(model, calls=2, cut=0, open=0)


def test_counts_can_be_reset(provider: Provider) -> None:
    model = "echo+finish:reset"
    provider.chat(model)
    assert provider.post(f"/stats/reset?model={model}", {}) == {"calls": 0, "cut": 0, "open": 0}
    assert provider.stats(model)["calls"] == 0


def test_malformed_ends_the_stream_with_what_is_no_json(provider: Provider) -> None:
    text = provider.chat_stream("malformed:1").read().decode()
    *good, bad = text.strip().split("\n\n")
    assert texts(frames("\n\n".join(good))) == ["hello"]
    with pytest.raises(json.JSONDecodeError):
        json.loads(bad.removeprefix("data: "))


def test_an_error_frame_ends_the_stream(provider: Provider) -> None:
    chunks = frames(provider.chat_stream("error-frame:1").read().decode())
    assert texts(chunks) == ["hello"]
    assert chunks[-1]["error"]["type"] == "server_error"


def test_a_fault_that_lies_beyond_the_answer_strikes_before_the_finish(provider: Provider) -> None:
    chunks = frames(provider.chat_stream("tools+error-frame:99").read().decode())
    assert all(choice["finish_reason"] is None for chunk in chunks[:-1] for choice in chunk["choices"])
    assert "error" in chunks[-1]


def test_truncated_has_no_finish(provider: Provider) -> None:
    text = provider.chat_stream("truncated").read().decode()
    assert texts(frames(text)) == ["hello", " there"]
    assert '"stop"' not in text


def test_truncated_cuts_a_whole_answer_in_two(provider: Provider) -> None:
    with provider.open("/v1/chat/completions", chat_body("truncated", "hi")) as response:
        body = response.read()
    with pytest.raises(json.JSONDecodeError):
        json.loads(body)


def test_no_done_ends_after_the_finish(provider: Provider) -> None:
    text = provider.chat_stream("no-done").read().decode()
    assert frames(text)[-1]["choices"][0]["finish_reason"] == "stop"
    assert "[DONE]" not in text


@pytest.mark.parametrize("status", [400, 401, 404, 418, 429, 500, 503, 529])
def test_a_status_comes_with_an_error(provider: Provider, status: int) -> None:
    with provider.chat_stream(f"status:{status}") as response:
        assert response.status == status
        assert json.loads(response.read())["error"]["message"]
        assert response.headers["Retry-After"] == ("7" if status == 429 else None)


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_is_quoted(provider: Provider, status: int) -> None:
    assert "sk-sim...abcd" in provider.chat(f"status:{status}")["error"]["message"]


@pytest.mark.parametrize(
    ("model", "status", "kind", "body"),
    [("html:502", 502, "text/html", b"<!DOCTYPE"), ("empty", 200, "application/json", b"")],
)
def test_a_body_can_be_no_json(provider: Provider, model: str, status: int, kind: str, body: bytes) -> None:
    with provider.chat_stream(model) as response:
        assert (response.status, response.headers.get_content_type()) == (status, kind)
        assert response.read()[: len(body) or None] == body


def test_redirect_points_at_itself(provider: Provider) -> None:
    with provider.chat_stream("redirect") as response:
        assert (response.status, response.headers["Location"]) == (302, "/v1/chat/completions")


def test_a_rejected_field_is_named(provider: Provider) -> None:
    assert provider.chat("rejects-stream-options", **ASK_USAGE)["error"]["param"] == "stream_options"
    assert provider.chat("rejects:max_tokens", max_tokens=1)["error"]["param"] == "max_tokens"
    assert provider.chat("rejects:max_tokens")["choices"]


def test_a_prompt_beyond_the_window_is_refused_in_the_words_of_the_dialect(provider: Provider) -> None:
    openai = provider.chat("context:2", "one two three")["error"]
    assert openai["message"].startswith("This model's maximum context length is 2 tokens.")
    assert (openai["code"], "resulted in 3 tokens" in openai["message"]) == ("context_length_exceeded", True)
    anthropic = provider.messages("context:2", "one two three")["error"]
    assert anthropic == {"type": "invalid_request_error", "message": "prompt is too long: 3 tokens > 2 maximum"}
    for stream in (provider.chat_stream("context:1"), provider.messages_stream("context:1")):
        with stream:
            assert stream.status == 400
    assert provider.chat("context:2", "one two")["choices"]


def test_usage_can_be_absent(provider: Provider) -> None:
    assert "usage" not in provider.chat("no-usage")
    assert '"usage"' not in provider.chat_stream("no-usage", **ASK_USAGE).read().decode()


def test_cached_tokens_come_on_top_of_the_words(provider: Provider) -> None:
    usage = provider.chat("cached:10", "one two")["usage"]
    assert (usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]) == (12, 10)


@pytest.mark.parametrize("how", ["", ":negative", ":fraction", ":total"])
def test_usage_can_contradict_itself(provider: Provider, how: str) -> None:
    usage = provider.chat(f"bad-usage{how}", "one two")["usage"]
    honest = provider.chat("echo", "one two")["usage"]
    assert usage != honest


def test_usage_can_come_on_the_finish(provider: Provider) -> None:
    last = frames(provider.chat_stream("usage-on-finish", **ASK_USAGE).read().decode())[-1]
    assert (last["choices"][0]["finish_reason"], last["usage"]["completion_tokens"]) == ("stop", 2)


def test_usage_can_come_on_every_chunk(provider: Provider) -> None:
    chunks = frames(provider.chat_stream("usage-every-chunk").read().decode())
    assert [chunk["usage"]["completion_tokens"] for chunk in chunks] == [0, 1, 2, 2]


def test_usage_can_come_late(provider: Provider) -> None:
    last = frames(provider.chat_stream("late-usage:0.01", **ASK_USAGE).read().decode())[-1]
    assert (last["choices"], last["usage"]["completion_tokens"]) == ([], 2)


def test_a_marker_of_the_request_is_repeated_by_its_usage_and_counted(provider: Provider) -> None:
    marked: dict[str, Any] = {"metadata": "<marker>20261123</marker>"}
    stream = frames(provider.chat_stream("usage-every-chunk", "one two", **marked).read().decode())
    start, *_, delta, _ = frames(provider.messages_stream("echo", **marked).read().decode())
    usages = [
        provider.chat("echo", **marked)["usage"],
        provider.messages("echo", **marked)["usage"],
        provider.post("/v1/embeddings", {"model": "echo", "input": "one", **marked})["usage"],
        provider.post("/v1/responses", {"model": "echo", "input": "one", "store": False, **marked})["usage"],
        *(chunk["usage"] for chunk in stream),
        *(start["message"]["usage"], delta["usage"]),
    ]
    assert {usage["x_marker"] for usage in usages} == {20261123}
    assert "x_marker" not in provider.chat("echo")["usage"]
    with provider.open("/stats/markers", {}, "GET") as counted:
        assert json.loads(counted.read()) == {"20261123": 6}
