"""Streamed chat completions are right chunk by chunk and with the official client (docs/api.md#streaming)."""

import contextlib
from typing import Any

import openai
import pytest

from tests.chat import PATH, question, stream
from tests.inference.greeting import ASK_FOR_USAGE, ECHO, HI, METADATA, USAGE, Json, reports
from tests.patience import eventually
from tests.servers.customer import Customer
from tests.servers.simulator import Simulator

pytestmark = [pytest.mark.also_sqlite, pytest.mark.also_fastpath_off]


def test_a_stream_is_the_specs_chunks_and_done(account: Customer) -> None:
    streamed = stream(account, "echo")
    first, *middle, last = streamed.chunks
    assert (streamed.done, streamed.errors) == (True, [])
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": "hello"}
    assert [chunk["choices"][0]["delta"] for chunk in middle] == [{"content": " there"}]
    assert (last["choices"][0]["delta"], last["choices"][0]["finish_reason"]) == ({}, "stop")
    assert reports(last) == (USAGE, METADATA)
    for chunk in streamed.chunks:
        assert {"id", "object", "created", "model", "choices"} <= set(chunk)
        assert [set(choice) >= {"index", "delta", "finish_reason"} for choice in chunk["choices"]] == [True]


def test_every_chunk_has_the_same_identity(account: Customer) -> None:
    streamed = stream(account, "chunks")
    (identity,) = {(chunk["id"], chunk["object"], chunk["created"], chunk["model"]) for chunk in streamed.chunks}
    assert identity[0] == streamed.id
    assert (identity[1], identity[3]) == ("chat.completion.chunk", "sim/test/chunks/FRPAR")


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}], ids=["absent", "empty", "false"])
def test_usage_rides_on_the_finish_unless_it_is_asked_for(account: Customer, options: Json | None) -> None:
    streamed = stream(account, "echo", stream_options=options)
    assert all(chunk["choices"] for chunk in streamed.chunks)
    assert [chunk.get("usage") is not None for chunk in streamed.chunks] == [False, False, True]
    assert [chunk["choices"][0]["finish_reason"] for chunk in streamed.chunks] == [None, None, "stop"]
    assert ["gateway_metadata" in chunk for chunk in streamed.chunks] == [False, False, True]


def test_usage_that_is_asked_for_is_a_chunk_of_its_own(account: Customer) -> None:
    streamed = stream(account, "echo", stream_options=ASK_FOR_USAGE)
    *others, last = streamed.chunks
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
        lines = reply.iter_lines()  # kept, because the connection ends with it
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
    streamed = stream(account, "echo", n=3)
    roles = [choice["index"] for chunk in streamed.chunks for choice in chunk["choices"] if "role" in choice["delta"]]
    assert roles == [0, 1, 2]
    assert [chunk.get("usage") is not None for chunk in streamed.chunks].count(True) == 1


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
    streamed = stream(account, slug)
    assert (streamed.text, streamed.done, streamed.errors) == ("hello there", True, [])
    assert reports(streamed.chunks[-1]) == (USAGE, METADATA)
    assert [chunk.get("usage") is not None for chunk in streamed.chunks].count(True) == 1
