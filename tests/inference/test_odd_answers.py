"""Some upstreams' answers have shapes of their own: nothing in them is lost, and clients get the usual shape."""

from collections.abc import Iterator
from typing import Any

import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion

from tests import bills
from tests.catalogue import model, provider
from tests.chat import HELLO, Stream
from tests.envelope import checked, refusal
from tests.inference.messages.events import Events
from tests.inference.odd_answers import BLOCKS, DEEP, DELTAS, GREP, LINE_ENDS, SCRIPTS, WEATHER
from tests.inference.odd_upstream import listening
from tests.inference.shapes import CHAT, TEXT, shaped
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer

Json = dict[str, Any]

UPSTREAM_FAILED = (503, "provider_error", "provider_error", None)


@pytest.fixture(scope="module")
def gateway(hurried_gateway: GatewayServer) -> Iterator[GatewayServer]:
    with listening(SCRIPTS) as odd:
        models = [model(name, provider="odd-says", upstream_model=name) for name in SCRIPTS]
        models += [
            shaped("text", name, provider="odd-says", modality="completion", upstream_model=name) for name in SCRIPTS
        ]
        models += [
            model(f"{name}-no-reason", provider="claude-says", upstream_model=f"{name}-no-reason") for name in BLOCKS
        ]
        url = f"http://127.0.0.1:{odd.port}/v1"
        providers = [provider("odd-says", url), provider("claude-says", url, dialect="anthropic")]
        hurried_gateway.offer(providers=providers, models=models)
        yield hurried_gateway


def ask(customer: Customer, name: str, **fields: Any) -> Any:
    """Sends a chat. For whole answers `max_tokens` is small, because otherwise the upstream is asked to stream them."""
    return customer.http.post(CHAT, json={"model": f"odd-says/test/{name}", "messages": HELLO, **fields})


def stream(customer: Customer, name: str, **fields: Any) -> Stream:
    return Stream.of(ask(customer, name, stream=True, **fields))


def complete(customer: Customer, name: str, **fields: Any) -> Any:
    return customer.http.post(TEXT, json={"model": f"odd-says/text/{name}", "prompt": "hi", **fields})


def answer(customer: Customer, name: str, **fields: Any) -> Json:
    reply = ask(customer, name, **fields)
    assert reply.status_code == 200, reply.text
    result: Json = reply.json()
    return result


# --- Every member of a delta


@pytest.mark.parametrize("name", DELTAS)
def test_every_member_of_a_delta_is_delivered_as_it_comes(customer: Customer, name: str) -> None:
    pieces, streamed, _ = DELTAS[name]
    *deltas, last = [choice["delta"] for chunk in stream(customer, name).chunks for choice in chunk["choices"]]
    assert deltas == [{"role": "assistant", **pieces[0]}, *pieces[1:]]
    assert last == {}
    message = answer(customer, name)["choices"][0]["message"]
    assert message == {"role": "assistant", "content": None, "refusal": None, **streamed}


@pytest.mark.parametrize("name", DELTAS)
def test_every_member_of_a_delta_is_output_of_which_words_are_billed(customer: Customer, name: str) -> None:
    assert [checked(error)[1] for error in stream(customer, f"{name}-breaks").errors] == ["provider_error"]
    (record,) = bills.records(customer)
    assert (record.ending, record.completion_tokens) == ("upstream_broke", DELTAS[name][2])
    assert record.first_token_ms is not None


def test_members_that_are_empty_are_no_output(customer: Customer) -> None:
    assert refusal(ask(customer, "empty-members", stream=True)) == UPSTREAM_FAILED
    assert bills.untouched(customer)


# --- Finish reasons


@pytest.mark.parametrize(
    ("reported", "expected"), [("stop", "tool_calls"), ("length", "length"), ("content_filter",) * 2]
)
def test_a_choice_that_called_tools_finishes_with_tool_calls(customer: Customer, reported: str, expected: str) -> None:
    assert answer(customer, f"called-{reported}", max_tokens=16)["choices"][0]["finish_reason"] == expected
    assert answer(customer, f"calls-{reported}")["choices"][0]["finish_reason"] == expected
    assert finishes(stream(customer, f"calls-{reported}")) == {0: expected}


def test_a_call_that_comes_with_its_finish_finishes_with_tool_calls(customer: Customer) -> None:
    assert finishes(stream(customer, "calls-in-one")) == {0: "tool_calls"}


def finishes(expected: Stream) -> dict[int, str]:
    """Returns the only finish reason of each choice, by its index."""
    choices = [choice for chunk in expected.chunks for choice in chunk["choices"] if choice["finish_reason"]]
    assert len(choices) == len({choice["index"] for choice in choices})
    return {choice["index"]: choice["finish_reason"] for choice in choices}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("one-of-two-finishes", {0: "stop", 1: "stop"}),
        ("one-of-two-calls", {0: "length", 1: "tool_calls"}),
        ("none-of-two-finishes", {0: "stop", 1: "stop"}),
    ],
)
@pytest.mark.parametrize("options", [{}, {"stream_options": {"include_usage": True}}], ids=["plain", "asks for usage"])
def test_an_end_in_order_after_a_finish_or_a_count_finishes_every_choice(
    customer: Customer, name: str, expected: dict[int, str], options: Json
) -> None:
    streamed = stream(customer, name, n=2, **options)
    assert (streamed.done, streamed.errors) == (True, [])
    assert finishes(streamed) == expected
    assert ["usage" in chunk for chunk in streamed.chunks] == [False] * (len(streamed.chunks) - 1) + [True]
    choices = answer(customer, name, n=2)["choices"]
    assert {choice["index"]: choice["finish_reason"] for choice in choices} == expected
    assert [record.ending for record in bills.records(customer)] == ["finished", "finished"]


@pytest.mark.parametrize("reason", BLOCKS)
@pytest.mark.parametrize("streams", [True, False], ids=["streamed", "aggregated"])
def test_a_message_that_was_counted_and_ended_has_a_reason(customer: Customer, reason: str, streams: bool) -> None:
    asked = {"model": f"claude-says/test/{reason}-no-reason", "max_tokens": 1000, "messages": HELLO, "stream": streams}
    reply = customer.http.post("/v1/messages", json=asked)
    if streams:
        *_, last, end = Events.of(reply).all
        assert (last["delta"]["stop_reason"], end["type"]) == (reason, "message_stop")
    else:
        assert reply.json()["stop_reason"] == reason
    (record,) = bills.records(customer)
    assert (record.ending, record.completion_tokens, record.usage_estimated) == ("finished", 7, False)


def test_an_end_out_of_order_breaks_a_stream(customer: Customer) -> None:
    assert not stream(customer, "one-of-two-is-cut", n=2).done
    assert [record.ending for record in bills.records(customer)] == ["upstream_broke"]
    assert refusal(ask(customer, "one-of-two-is-cut", n=2)) == UPSTREAM_FAILED


def test_a_stall_names_a_choice_that_has_not_finished(customer: Customer) -> None:
    streamed = stream(customer, "stalls-after-one-of-two", n=2)
    (last,) = streamed.chunks[-1]["choices"]
    assert (streamed.done, last) == (True, {"index": 1, "delta": {}, "finish_reason": None})
    assert finishes(streamed) == {0: "stop"}


# --- Members of chunks without choices


@pytest.mark.parametrize("options", [{}, {"stream_options": {"include_usage": True}}], ids=["plain", "asks for usage"])
def test_what_rides_on_chunks_without_choices_is_on_the_closing_one(customer: Customer, options: Json) -> None:
    streamed = stream(customer, "rides", **options)
    first, *_, last = streamed.chunks
    assert (first["timings"], last["timings"]) == ({"n": 2}, {"n": 3})
    assert (last["prompt_progress"], last["x_first"], last["system_fingerprint"]) == ({"total": 9}, "kept", "fp_1")
    assert "service_tier" not in last
    assert [
        chunk for chunk in streamed.chunks if chunk["created"] == 7 or chunk.get("system_fingerprint", 7) is None
    ] == []
    whole = answer(customer, "rides")
    own = ("timings", "prompt_progress", "x_first", "system_fingerprint")
    assert {name: whole[name] for name in own} == {name: last[name] for name in own}


def test_what_rides_on_chunks_without_choices_is_on_the_last_one_of_a_stall(customer: Customer) -> None:
    streamed = stream(customer, "rides-to-a-stall")
    assert streamed.done
    assert (streamed.chunks[-1]["x_last"], "usage" in streamed.chunks[-1]) == ("kept", True)


def test_no_client_sees_the_end_of_a_line_within_an_event(customer: Customer) -> None:
    reply = ask(customer, "line-ends", stream=True)
    lines = [line for line in reply.content.decode().splitlines() if line]
    assert len(lines) == len(Stream.of(reply).chunks) + 1
    assert Stream.of(reply).text == LINE_ENDS


# --- Fields that are always there


@pytest.mark.parametrize("fields", [{"max_tokens": 16}, {}], ids=["whole", "aggregated"])
def test_a_message_has_every_field_that_clients_demand(customer: Customer, fields: Json) -> None:
    result = answer(customer, "bare" if fields else "bare-stream", **fields)
    (choice,) = result["choices"]
    assert (choice["logprobs"], choice["message"]["content"], choice["message"]["refusal"]) == (None, None, None)
    assert choice["message"]["role"] == "assistant"
    assert "system_fingerprint" not in result


@pytest.mark.parametrize(("name", "expected"), [("unfinished", "stop"), ("unfinished-calls", "tool_calls")])
def test_a_whole_answer_has_finished_whatever_its_upstream_says_of_that(
    customer: Customer, name: str, expected: str
) -> None:
    (choice,) = answer(customer, name, max_tokens=16)["choices"]
    assert choice["finish_reason"] == expected


def test_what_an_upstream_says_is_not_nulled(customer: Customer) -> None:
    result = answer(customer, "full", max_tokens=16)
    (choice,) = result["choices"]
    assert (choice["logprobs"], choice["message"]["refusal"]) == ({"content": []}, "no")
    assert result["system_fingerprint"] == "fp_1"


@pytest.mark.parametrize("fields", [{}, {"max_tokens": 1000}], ids=["whole", "aggregated"])
def test_a_text_has_every_field_that_clients_demand(customer: Customer, fields: Json) -> None:
    text = complete(customer, "text-stream" if fields else "text", **fields).json()
    assert text["choices"] == [{"index": 0, "text": "hi", "logprobs": None, "finish_reason": "stop"}]
    assert "system_fingerprint" not in text
    Completion.model_validate(text, strict=True)


def test_streamed_texts_have_every_field_that_clients_demand(customer: Customer) -> None:
    streamed = Stream.of(complete(customer, "text-of-two", n=2, stream=True))
    choices = [choice for chunk in streamed.chunks for choice in chunk["choices"]]
    assert {choice["logprobs"] for choice in choices} == {None}
    assert finishes(streamed) == {0: "length", 1: "stop"}
    Completion.model_validate(streamed.chunks[-1], strict=True)


@pytest.mark.parametrize("name", ["no-message", "empty-message", "null-message", "one-message-of-two"])
@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_a_choice_without_a_message_is_the_upstreams_fault(customer: Customer, name: str, path: str) -> None:
    asked: Json = {"n": 2, **({"messages": HELLO} if path == CHAT else {"prompt": "hi"})}
    reply = customer.http.post(path, json={"model": f"odd-says/test/{name}", "max_tokens": 16, **asked})
    assert refusal(reply) == UPSTREAM_FAILED
    assert bills.untouched(customer)


# --- Breaks and contradictions next to an error


def test_json_that_breaks_off_in_a_streams_place_is_the_upstreams_fault(customer: Customer) -> None:
    assert refusal(ask(customer, "json-that-breaks-off", stream=True)) == UPSTREAM_FAILED
    assert bills.untouched(customer)


@pytest.mark.parametrize("streams", [True, False], ids=["streamed", "aggregated"])
def test_an_error_whose_usage_contradicts_itself_is_that_error(customer: Customer, streams: bool) -> None:
    reply = ask(customer, "error-that-counts-nonsense", stream=streams)
    assert refusal(reply) == UPSTREAM_FAILED
    assert "No tea." in reply.json()["error"]["message"]
    assert bills.untouched(customer)


def test_an_error_after_the_finish_whose_usage_contradicts_itself_leaves_an_estimate(customer: Customer) -> None:
    assert answer(customer, "ends-with-an-error-that-counts-nonsense")["choices"][0]["message"]["content"]
    (record,) = bills.records(customer)
    assert (record.ending, record.usage_estimated, record.completion_tokens) == ("finished", True, 3)


def test_arguments_that_are_too_deep_for_an_answer_are_a_text_in_it(customer: Customer) -> None:
    asked = {"model": "odd-says/test/deep-arguments", "max_tokens": 1000, "messages": HELLO}
    reply = customer.http.post("/v1/messages", json=asked)
    assert reply.status_code == 200, reply.text
    assert reply.json()["content"][0]["input"] == {"invalid_arguments": DEEP}


# --- Custom tools


def test_calls_of_custom_tools_come_back_as_they_were(customer: Customer) -> None:
    for result in (answer(customer, "custom-called", max_tokens=16), answer(customer, "custom-calls")):
        (choice,) = result["choices"]
        assert choice["message"]["tool_calls"] == [WEATHER, GREP]
        assert choice["finish_reason"] == "tool_calls"
        ChatCompletion.model_validate(result, strict=True)


def test_streamed_calls_of_custom_tools_are_numbered_and_named_once(customer: Customer) -> None:
    deltas = [choice["delta"] for chunk in stream(customer, "custom-calls").chunks for choice in chunk["choices"]]
    assert [fragment for delta in deltas for fragment in delta.get("tool_calls", ())] == [
        {"index": 0, **WEATHER},
        {"index": 1, "id": "call_2", "type": "custom", "custom": {"name": "grep", "input": ""}},
        {"index": 1, "custom": {"input": "a "}},
        {"index": 1, "custom": {"input": "b"}},
    ]


# --- Events that cannot be read


@pytest.mark.parametrize(
    ("name", "estimated"), [("skips-one", False), ("skips-usage", True), ("skips-two-apart", False)]
)
@pytest.mark.parametrize("streams", [True, False], ids=["streamed", "aggregated"])
def test_an_event_that_cannot_be_read_is_skipped_and_the_record_is_flagged(
    customer: Customer, name: str, estimated: bool, streams: bool
) -> None:
    if streams:
        streamed = stream(customer, name)
        assert (streamed.text, streamed.done, streamed.errors) == ("hello there", True, [])
    else:
        assert answer(customer, name)["choices"][0]["message"]["content"] == "hello there"
    (record,) = bills.records(customer)
    assert (record.ending, record.flags, record.usage_estimated) == ("finished", "malformed_event", estimated)
    assert record.completion_tokens == (3 if estimated else 7)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nonsense-twice", "returned invalid JSON"),
        ("nonsense-at-the-end", "returned invalid JSON"),
        ("error-behind-nonsense", "reported an error: No tea."),
    ],
)
def test_an_event_that_cannot_be_read_breaks_a_stream_that_does_not_go_on(
    customer: Customer, name: str, expected: str
) -> None:
    streamed = stream(customer, name)
    assert (streamed.text, streamed.done) == ("hello there", False)
    assert [checked(error)[1] for error in streamed.errors] == ["provider_error"]
    assert expected in streamed.errors[0]["message"]
    (record,) = bills.records(customer)
    assert (record.ending, record.flags) == ("upstream_broke", "malformed_event")
    assert refusal(ask(customer, name)) == UPSTREAM_FAILED


def test_a_stream_of_nothing_that_can_be_read_costs_nothing(customer: Customer) -> None:
    assert refusal(ask(customer, "nonsense-alone", stream=True)) == UPSTREAM_FAILED
    assert bills.untouched(customer)


def test_a_stream_that_says_everything_has_no_flags(account: Customer) -> None:
    ask(account, "", model="sim/test/echo", stream=True)
    assert [record.flags for record in bills.records(account)] == [None]
