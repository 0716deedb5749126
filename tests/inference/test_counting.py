"""An answer is billed even if its upstream counted only a part or nothing, whatever a client sends."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import orjson
import pytest

from inference.dialects.openai import OpenAIDecoder
from inference.wire_forms.completions import CompletionForm, TextNormaliser, text_answer
from tests.bills import debits, exact, hex_of, records
from tests.catalogue import model, provider
from tests.chat import Stream, ask
from tests.envelope import refusal
from tests.inference.dialects.playback import taken
from tests.inference.odd_upstream import http, listening
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer

TEXT = "x" * 400  # a hundred tokens by the estimator's rule
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


def _frame(**chunk: Any) -> bytes:
    return b"data: " + orjson.dumps(chunk) + b"\n\n"


def _deep(before: bytes, after: bytes) -> bytes:
    return before + b"[" * 300 + b"]" * 300 + after


def _choice(text: str | list[Any], finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}


USAGE_FIRST = _frame(choices=[], usage={"prompt_tokens": 5, "completion_tokens": 0})
CACHE_PRICES = {
    "currency": "EUR",
    "prompt_per_1m_tokens": 2,
    "completion_per_1m_tokens": 12,
    "cache_write_per_1m_tokens": 2.5,
}
WRITTEN = {
    "prompt_tokens": 1001,
    "completion_tokens": 1,
    "total_tokens": 1002,
    "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 1000, "audio_tokens": 3},
    "completion_tokens_details": {"reasoning_tokens": 0, "accepted_prediction_tokens": 1},
}
REASONED = {
    "prompt_tokens": 10,
    "completion_tokens": 5,
    "total_tokens": 17,
    "completion_tokens_details": {"reasoning_tokens": 2},
}
HEARD = {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"audio_tokens": 2}}


def _reasoned(tokens: int) -> dict[str, Any]:
    return {
        "prompt_tokens": 10,
        "completion_tokens": tokens + 5,
        "completion_tokens_details": {"reasoning_tokens": tokens},
    }


COUNTS: dict[str, dict[str, Any]] = {
    "written": WRITTEN,
    "reasoned": REASONED,
    "unsound": {**REASONED, "total_tokens": 18},
    "overwritten": {**WRITTEN, "prompt_tokens": 999},
    "contradictory": {**WRITTEN, "prompt_tokens": -999},
    "worded": {**REASONED, "completion_tokens_details": {"reasoning_tokens": "two"}},
    "bulky": {**REASONED, **{f"count_{number}": number for number in range(500)}},
    "inflated": {"prompt_tokens": 10, "completion_tokens": 100_000_000},
    "inflated-beyond-the-cap": {"prompt_tokens": 10, "completion_tokens": 9_000},
    "inflated-prompt": {"prompt_tokens": 300_000, "completion_tokens": 1},
    "reasoned-endlessly": _reasoned(70_000),
    "reasoned-long": _reasoned(60_000),
    "saw-images": {"prompt_tokens": 130_000, "completion_tokens": 1},
    "read-caches": {
        "prompt_tokens": 131_000,
        "completion_tokens": 8_000,
        "prompt_tokens_details": {"cached_tokens": 130_000},
    },
    "strange": {
        **{**REASONED, "note": "sk-live-\0 \u2028 \N{SNOWMAN}", "deep": {"big": 1e308, "is": True, "words": ["x"]}},
        **{
            "none": None,
            "nothing": {"at": {"all": "!"}},
            "cost": 0.1,
            "completion_tokens_details": {"reasoning_tokens": 2, "note": "x", "tried_tokens": 3, "is_free": False},
        },
    },
}
SCRIPTS = {
    **{f"{name}-streamed": HEAD + _frame(**_choice("a", "stop"), usage=usage) for name, usage in COUNTS.items()},
    **{
        f"{name}-whole": http(
            "200 OK",
            orjson.dumps({"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}], "usage": usage}),
            "Content-Type: application/json",
        )
        for name, usage in COUNTS.items()
    },
    "apart-streamed": HEAD
    + b"".join(
        _frame(choices=[{"index": index, "delta": {"content": "a"}, "finish_reason": "stop"}])
        + _frame(choices=[], usage={"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10})
        for index in range(3)
    )
    + b"data: [DONE]\n\n",
    "one-of-two-streamed": HEAD
    + _frame(**_choice("a", "stop"))
    + _frame(choices=[], usage=HEARD)
    + b"data: [DONE]\n\n",
    "empty-at-last-streamed": HEAD
    + _frame(**_choice("a", "stop"), usage=REASONED)
    + _frame(choices=[], usage={"total_tokens": 17}),
    "usage-first-breaks": HEAD + USAGE_FIRST + _frame(**_choice(TEXT)),
    "usage-first-finishes": HEAD + USAGE_FIRST + _frame(**_choice(TEXT)) + _frame(**_choice("", "stop")),
    "thought-breaks": HEAD + _frame(**_choice([{"type": "thinking", "thinking": [{"type": "text", "text": TEXT}]}])),
    "drafts": http(
        "200 OK",
        orjson.dumps({"choices": [{"text": "a"}], "usage": {"prompt_tokens": 1, "completion_tokens": 12_000}}),
        "Content-Type: application/json",
    ),
    "half-usage": http(
        "200 OK",
        orjson.dumps({"choices": [{"message": {"content": TEXT}}], "usage": {"prompt_tokens": 500}}),
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
def gateway(gateway: GatewayServer) -> Iterator[GatewayServer]:
    with listening(SCRIPTS) as odd:
        gateway.offer(
            providers=[provider("odd-counts", f"http://127.0.0.1:{odd.port}/v1")],
            models=[
                model(
                    name,
                    provider="odd-counts",
                    upstream_model=name,
                    pricing=CACHE_PRICES,
                    modality="completion" if name == "drafts" else "chat",
                    aggregate=False,
                )
                for name in SCRIPTS
            ],
        )
        yield gateway


def chat(customer: Customer, name: str, *, stream: bool, **fields: Any) -> Any:
    body = {
        "model": f"odd-counts/test/{name}",
        "stream": stream,
        "max_tokens": 500,
        "messages": [{"role": "user", "content": "Hi"}],
        **fields,
    }
    return customer.http.post("/v1/chat/completions", json=body)


def counted(customer: Customer, name: str, mode: str, **fields: Any) -> Any:
    """Returns the last chunk, or the whole answer, which have the same figures."""
    reply = chat(customer, f"{name}-{mode}", stream=mode == "streamed", **fields)
    assert reply.status_code == 200, reply.text
    return Stream.of(reply).chunks[-1] if mode == "streamed" else reply.json()


def kept(customer: Customer) -> tuple[Any, str | None]:
    """Returns what the record keeps of the upstream's usage, and its flags."""
    columns = "dialect, upstream_usage, flags"
    where = f"WHERE account_id = '{hex_of(customer.id)}'"
    ((dialect, usage, flags),) = customer.gateway.query(f"SELECT {columns} FROM billing_generation {where}")
    assert dialect == "openai"
    return None if usage is None else orjson.loads(usage), flags


EITHER_WAY = pytest.mark.parametrize("mode", ["streamed", "whole"])


@EITHER_WAY
def test_tokens_written_to_the_cache_cost_the_price_of_writing(customer: Customer, mode: str) -> None:
    """The request has 1 prompt token at 2, 1,000 written at 2.5, and 1 answered at 12."""
    last = counted(customer, "written", mode)
    assert last["usage"]["prompt_tokens_details"] == WRITTEN["prompt_tokens_details"]
    assert last["usage"]["completion_tokens_details"] == WRITTEN["completion_tokens_details"]
    metadata = {name: value for name, value in last["gateway_metadata"].items() if name.startswith("cache")}
    assert metadata == {"cache_read_tokens": 0, "cache_creation_tokens": 1000}
    assert debits(customer) == [Decimal("0.002514")] == [exact(last["usage"]["cost"])]
    assert kept(customer) == (WRITTEN, None)


@EITHER_WAY
@pytest.mark.parametrize(("name", "completion", "flags"), [("reasoned", 7, None), ("unsound", 5, "total_mismatch")])
def test_reasoning_outside_the_completion_is_billed_if_the_total_includes_it(
    customer: Customer, name: str, completion: int, flags: str | None, mode: str
) -> None:
    usage = counted(customer, name, mode)["usage"]
    assert (usage["completion_tokens"], usage["total_tokens"]) == (completion, 10 + completion)
    assert debits(customer) == [Decimal(10 * 2 + completion * 12) / 1_000_000]
    assert kept(customer) == (COUNTS[name], flags)


@EITHER_WAY
def test_more_written_than_prompt_tokens_is_all_prompt(customer: Customer, mode: str) -> None:
    """The request has 999 prompt tokens at 2, and 1 answered at 12."""
    usage = counted(customer, "overwritten", mode)["usage"]
    assert usage["prompt_tokens_details"] == {"audio_tokens": 3}
    assert debits(customer) == [Decimal("0.00201")]
    assert kept(customer) == (COUNTS["overwritten"], "cache_mismatch total_mismatch")


@EITHER_WAY
def test_a_negative_count_is_contradictory_and_kept(customer: Customer, mode: str) -> None:
    assert chat(customer, f"contradictory-{mode}", stream=mode == "streamed").status_code == 503
    assert debits(customer) == []
    assert [record.ending for record in records(customer)] == ["cost_unresolvable"]
    assert kept(customer) == (COUNTS["contradictory"], None)


@EITHER_WAY
def test_a_text_in_place_of_a_count_is_contradictory_and_not_kept(customer: Customer, mode: str) -> None:
    assert chat(customer, f"worded-{mode}", stream=mode == "streamed").status_code == 503
    assert [record.ending for record in records(customer)] == ["cost_unresolvable"]
    assert kept(customer) == (None, None)


@EITHER_WAY
@pytest.mark.parametrize("name", ["inflated", "inflated-beyond-the-cap", "inflated-prompt", "reasoned-endlessly"])
def test_a_count_far_beyond_what_was_asked_for_and_delivered_is_contradictory(
    customer: Customer, name: str, mode: str
) -> None:
    """The cap is 500 tokens, the context 131,072 and the largest output 8,192 tokens."""
    assert chat(customer, f"{name}-{mode}", stream=mode == "streamed").status_code == 503
    assert debits(customer) == []
    (record,) = records(customer)
    assert (record.ending, record.usage_estimated, record.prompt_tokens) == ("cost_unresolvable", True, 5)
    assert kept(customer) == (COUNTS[name], "implausible_usage")


@EITHER_WAY
@pytest.mark.parametrize("name", ["reasoned-long", "saw-images", "read-caches"])
def test_invisible_tokens_are_billed_as_the_provider_counted_them(customer: Customer, name: str, mode: str) -> None:
    """Examples are reasoning beyond the call's cap, images by address, caches, and output up to the slack."""
    usage = counted(customer, name, mode)["usage"]
    expected = tuple(COUNTS[name][field] for field in ("prompt_tokens", "completion_tokens"))
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == expected
    assert kept(customer) == (COUNTS[name], None)


@pytest.mark.parametrize(("best_of", "status"), [(1, 503), (10, 200)])
def test_drafts_that_were_asked_for_count(customer: Customer, best_of: int, status: int) -> None:
    body = {"model": "odd-counts/test/drafts", "prompt": "Hi", "max_tokens": 500, "best_of": best_of}
    assert customer.http.post("/v1/completions", json=body).status_code == status


@EITHER_WAY
def test_more_than_a_record_keeps_of_usage_is_not_kept(customer: Customer, mode: str) -> None:
    counted(customer, "bulky", mode)
    assert kept(customer) == (None, None)


@EITHER_WAY
def test_numbers_are_all_that_is_kept_and_passed_on_of_usage(customer: Customer, mode: str) -> None:
    details = {"reasoning_tokens": 2, "tried_tokens": 3}
    assert counted(customer, "strange", mode)["usage"]["completion_tokens_details"] == details
    numbers = {**REASONED, "completion_tokens_details": details, "deep": {"big": 1e308}, "cost": 0.1}
    assert kept(customer) == (numbers, None)


def test_what_is_kept_is_what_was_billed_by(customer: Customer) -> None:
    assert counted(customer, "empty-at-last", "streamed")["usage"]["completion_tokens"] == 7
    assert kept(customer) == (REASONED, None)


def test_choices_that_are_counted_apart_are_added_up(customer: Customer) -> None:
    usage = counted(customer, "apart", "streamed", n=3)["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (7, 9)
    assert kept(customer)[0] == [{"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}] * 3


def test_a_count_that_comes_after_the_only_finish_of_two_is_kept_whole(customer: Customer) -> None:
    usage = counted(customer, "one-of-two", "streamed", n=2)["usage"]
    assert (usage["completion_tokens"], usage["prompt_tokens_details"]) == (3, {"audio_tokens": 2})
    assert kept(customer)[0] == HEARD


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
    assert (record.prompt_tokens, record.completion_tokens, record.usage_estimated) == (500, 100, True)


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
def test_a_field_of_another_endpoint_cannot_keep_a_completion_from_being_billed(
    account: Customer, stream: bool, messages: Any
) -> None:
    """The gateway does not read the field and sends it upstream unchanged."""
    body = {"model": "sim/test/completion", "prompt": "one two three", "stream": stream, "messages": messages}
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
def test_reasoning_with_a_text_counts_the_same_whole_and_streamed(name: str, reasoning: Any, counted: int) -> None:
    answer = {"choices": [{"index": 0, "text": "hi", name: reasoning}]}
    chunks = TextNormaliser(id="gen-1", created=1, model="m", choices=1)
    assert taken(OpenAIDecoder(), chunks, answer)
    assert chunks.text_bytes == counted
    assert CompletionForm().output_bytes(text_answer(answer, id="gen-1", created=1, model="m")) == counted


def test_a_body_nested_too_deep_with_a_long_number_is_the_clients_fault(account: Customer) -> None:
    body = b'{"n": 1234567890123456789, "x": ' + b"[" * 1000 + b"]" * 1000 + b"}"
    assert refusal(account.http.post("/v1/chat/completions", data=body)).status == 400


@pytest.mark.parametrize("asked", [{}, {"stream": True}, {"max_tokens": 1000}], ids=["whole", "stream", "aggregated"])
@pytest.mark.parametrize(("content", "cost"), [("one two", "0.0000048"), ("one two three", "0.0000114")])
def test_a_prompt_above_a_threshold_is_billed_at_its_tier(
    account: Customer, asked: dict[str, Any], content: str, cost: str
) -> None:
    """The prompt is twenty cached tokens and these words. Only above 22, every token has the tier's price."""
    answer = ask(account, "tiered", **{"max_tokens": 16, **asked}, messages=[{"role": "user", "content": content}])
    usage = Stream.of(answer).chunks[-1]["usage"] if asked.get("stream") else answer.json()["usage"]
    assert exact(usage["cost"]) == Decimal(cost)
    assert debits(account) == [Decimal(cost)]


@pytest.mark.parametrize(("text", "cost"), [("one two", "0.0000022"), ("one two three", "0.0000046")])
def test_an_embedding_above_a_threshold_is_billed_at_its_tier(account: Customer, text: str, cost: str) -> None:
    reply = account.http.post("/v1/embeddings", json={"model": "sim/test/tiered-embedding", "input": text})
    assert exact(reply.json()["usage"]["cost"]) == Decimal(cost)
    assert debits(account) == [Decimal(cost)]


def test_tiers_are_frozen_in_the_record_and_absent_if_there_are_none(account: Customer) -> None:
    for slug in ("echo", "tiered"):
        assert ask(account, slug).status_code == 200
    terms = "billing_generation g JOIN billing_frozenterms t ON t.id = g.terms_id"
    query = f"SELECT t.price_tiers IS NULL FROM {terms} WHERE g.account_id = %s ORDER BY g.created_at"
    rows = account.gateway.query(query, [hex_of(account.id)])
    assert [bool(is_null) for (is_null,) in rows] == [True, False]
