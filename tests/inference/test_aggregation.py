"""Long whole answers are streamed from the upstream and put together: the result is the same, and may take longer."""

import copy
import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import pytest

from inference.answers import Aggregate
from inference.call import Shape
from inference.deltas import CallDelta, OtherDelta, delta_of
from tests import bills
from tests.chat import HELLO, PATH
from tests.conftest import OpenAccount, StartGateway
from tests.envelope import message, refusal
from tests.inference import shapes
from tests.inference.shapes import CHAT, TEXT, WAYS, Way, post
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer
from tests.servers.simulator import Simulator

Json = dict[str, Any]

BOTH: Json = {
    "messages": [{"role": "user", "content": "both please"}],
    "tools": [{"type": "function", "function": {"name": name}} for name in ("weather", "clock")],
}
# The simulator adds different names to messages and to deltas, and its streamed offsets are relative to a piece.
ONE_SIDED = {"sim_message", "sim_delta", "text_offset"}
TIMED_OUT = (504, "provider_unavailable", "provider_timeout", None)


def comparable_answer(customer: Customer, path: str, model: str, cap: int, **fields: object) -> Json:
    """Returns an answer without what differs between two requests. Null counts as absent."""
    asked = shapes.WAYS["chat-openai" if path == CHAT else "text-openai"].request("", **fields)
    reply = customer.http.post(path, json={**asked, "model": model, "max_tokens": cap})
    assert reply.status_code == 200, reply.text
    answer: Json = reply.json()
    del answer["id"], answer["created"], answer["usage"]["remaining_balance"]
    return comparable(answer)


def comparable(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {name: comparable(item) for name, item in value.items() if name not in ONE_SIDED}
        return {name: item for name, item in kept.items() if item is not None}
    return [comparable(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("path", "model", "fields"),
    [
        (CHAT, "sim/test/echo", {}),
        (CHAT, "sim/test/echo", {"n": 3}),
        (CHAT, "sim/test/echo", {"stop": "there"}),
        (CHAT, "sim/test/rich", {}),
        (CHAT, "sim/test/rich", {"n": 2}),
        (CHAT, "sim/test/rich-refusal", {}),
        (CHAT, "sim/test/reasoning-tools", BOTH),
        (CHAT, "sim/test/tools", {**BOTH, "n": 2}),
        (CHAT, "sim/test/empty-arguments", BOTH),
        (CHAT, "sim/test/content-blocks", {"n": 2}),
        (CHAT, "sim/test/cached", {}),
        (CHAT, "sim/text/rich", {}),
        (CHAT, "simanthropic/claude/reasoning-tools", BOTH),
        (CHAT, "simanthropic/claude/reasoning-extra", {}),
        (CHAT, "simanthropic/claude/cache-everything", {}),
        (CHAT, "simanthropic/claude/finish-refusal", {}),
        (TEXT, "sim/text/echo", {"n": 3}),
        (TEXT, "sim/text/rich", {"n": 2}),
        (TEXT, "sim/test/reasoning-extra", {}),
        (TEXT, "sim/test/content-blocks", {}),
        (TEXT, "simanthropic/claude/reasoning", {}),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, dict) else str(value),
)
def test_an_answer_that_was_put_together_is_the_whole_one(
    account: Customer, path: str, model: str, fields: Json
) -> None:
    whole = comparable_answer(account, path, model, 64, **fields)
    assert comparable_answer(account, path, model, 1000, **fields) == whole
    assert len(set(bills.debits(account))) == 1


def test_unknown_fields_of_deltas_are_put_together(account: Customer) -> None:
    asked = {**WAYS["chat-openai"].request("extra-fields"), "max_tokens": 1000}
    (choice,) = account.http.post(PATH, json=asked).json()["choices"]
    assert choice["message"]["sim_delta"] is True


def steps_to_join(tool_calls: int) -> int:
    """Counts the interpreter's steps for putting the tool calls together, each from two pieces."""
    pieces = [
        {"index": index, **part}
        for index in range(tool_calls)
        for part in (
            {"id": f"call_{index}", "function": {"name": "f", "arguments": "{"}},
            {"function": {"arguments": "}"}},
        )
    ]
    aggregate, steps = Aggregate(Shape.CHAT), 0

    def count(frame: FrameType, event: str, _argument: object) -> Callable[..., Any]:
        nonlocal steps
        frame.f_trace_opcodes = True
        steps += event == "opcode"
        return count

    traced_before = sys.gettrace()
    sys.settrace(count)
    try:
        for piece in pieces:
            aggregate.add(delta_of(CallDelta, 0, {"tool_calls": [piece]}, piece))
        (choice,) = aggregate.answer()["choices"]
    finally:
        sys.settrace(traced_before)
    joined = choice["message"]["tool_calls"]
    assert [call["id"] for call in joined] == [f"call_{index}" for index in range(tool_calls)]
    assert {call["function"]["arguments"] for call in joined} == {"{}"}
    return steps


def test_the_work_of_joining_tool_calls_grows_with_their_number_alone() -> None:
    assert steps_to_join(200) < steps_to_join(100) * 2.1


def test_a_chunk_is_not_changed_by_later_chunks() -> None:
    aggregate = Aggregate(Shape.CHAT)
    deltas: list[Json] = [
        {"a": {"b": "x"}, "c": [{"index": 0, "d": "x"}]},
        {"a": {"b": "y"}, "c": [{"index": 0, "d": "y"}]},
    ]
    carried = [delta_of(OtherDelta, 0, {}, other_members=delta) for delta in deltas]
    before = copy.deepcopy(carried)
    for delta in [*carried, *carried]:
        aggregate.add(delta)
    assert carried == before
    assert aggregate.answer()["choices"][0]["message"]["a"] == {"b": "xyxy"}
    assert aggregate.answer()["choices"][0]["message"]["c"] == [{"index": 0, "d": "xyxy"}]


# --- When a whole answer is streamed from its upstream


def streamed_upstream(customer: Customer, way: Way, slug: str = "describe", **fields: object) -> bool:
    """Tells whether the upstream was asked to stream a whole answer."""
    reply = post(customer, way, slug, **fields)
    body: Json = json.loads(way.whole_text(reply.json()))["body"]
    assert body.get("stream") in (None, True)
    return "stream" in body


@pytest.mark.parametrize(
    ("name", "fields", "streamed"),
    [
        ("chat-openai", {"max_tokens": 64}, False),
        ("chat-openai", {"max_tokens": 65}, True),
        ("chat-openai", {"max_completion_tokens": 64}, False),
        ("chat-openai", {"max_tokens": 1, "max_completion_tokens": 65}, True),
        ("chat-openai", {"max_tokens": 32, "n": 2}, False),
        ("chat-openai", {"max_tokens": 33, "n": 2}, True),
        ("chat-openai", {}, True),  # the model's limit is 8192
        ("chat-anthropic", {"max_tokens": 64}, False),
        ("chat-anthropic", {}, True),
        ("text-openai", {}, False),  # 16 unless the client sets it
        ("text-openai", {"max_tokens": 65}, True),
        ("text-on-chat", {}, False),
        ("text-anthropic", {"max_tokens": 65}, True),
    ],
)
def test_what_may_be_longer_than_512_tokens_is_streamed(
    account: Customer, name: str, fields: Json, streamed: bool
) -> None:
    assert streamed_upstream(account, WAYS[name], **fields) is streamed


def test_a_model_whose_limit_is_unknown_may_be_long(account: Customer) -> None:
    assert streamed_upstream(account, WAYS["chat-anthropic"], "uncapped")


@pytest.mark.parametrize(
    "fields",
    [{"modalities": ["text", "audio"]}, {"audio": {"voice": "alloy"}}, {"modalities": ["audio"], "n": 2}],
    ids=str,
)
def test_speech_is_asked_for_whole(account: Customer, fields: Json) -> None:
    assert not streamed_upstream(account, WAYS["chat-openai"], **fields)


@pytest.mark.parametrize(("best_of", "streamed"), [(1, True), (2, False)])
def test_the_best_of_several_is_asked_for_whole(account: Customer, best_of: int, streamed: bool) -> None:
    assert streamed_upstream(account, WAYS["text-openai"], max_tokens=1000, best_of=best_of) is streamed


@pytest.mark.parametrize("model", ["quiet/test/describe", "sim/test/never-aggregated"])
def test_a_whole_answer_is_not_streamed_internally_if_the_catalogue_forbids_it(account: Customer, model: str) -> None:
    """Examples are a provider that reports no usage in streams, and a model with `aggregate: false`."""
    answer = account.http.post(PATH, json={"model": model, "messages": HELLO}).json()
    assert "stream" not in json.loads(answer["choices"][0]["message"]["content"])["body"]
    assert not bills.records(account)[0].usage_estimated


def test_an_upstream_that_cannot_stream_answers_whole(account: Customer) -> None:
    answer = post(account, WAYS["chat-openai"], "cannot-stream").json()
    assert len(answer["choices"][0]["message"]["content"].split()) == 1000
    assert answer["usage"]["completion_tokens"] == 1000


def test_an_upstream_that_does_not_report_usage_in_streams_is_estimated(account: Customer) -> None:
    answer = post(account, WAYS["chat-openai"], "no-usage", max_tokens=1000).json()
    assert answer["usage"]["completion_tokens"] == 3
    assert bills.records(account)[0].usage_estimated


@pytest.fixture(scope="module")
def eager(start_shared_gateway: StartGateway, simulator: Simulator) -> GatewayServer:
    """Starts a gateway that waits half a second for a first byte, and longer if the prompt exceeds 32,000 tokens."""
    return start_shared_gateway(
        catalogue=shapes.catalogue(simulator.url),
        GATEWAY_AGGREGATE_OVER_TOKENS="20",
        GATEWAY_FIRST_BYTE_TIMEOUT="0.5",
        GATEWAY_FIRST_BYTE_PER_1000_TOKENS="0.3",
    )


@pytest.fixture
def hurried(eager: GatewayServer, open_account: OpenAccount) -> Customer:
    return open_account(eager)


@pytest.mark.parametrize(("cap", "streamed"), [(20, False), (21, True)])
def test_the_threshold_is_the_operators(hurried: Customer, cap: int, streamed: bool) -> None:
    assert streamed_upstream(hurried, WAYS["chat-openai"], max_tokens=cap) is streamed


@pytest.mark.parametrize(
    ("thousands", "answered"),
    [(32, "first-byte timeout of 0.5 s"), (33, "first-byte timeout of 0.7"), (52, None)],
)
def test_a_long_prompt_has_more_time_until_its_first_byte(
    hurried: Customer, thousands: int, answered: str | None
) -> None:
    """A timeout's message names the budget that was used. The answer begins after a second."""
    prompt = "x" * (4000 * thousands - 400 * (answered is not None))
    reply = post(hurried, WAYS["text-openai"], "slow-start", prompt=prompt, max_tokens=1)
    if answered is None:
        assert reply.status_code == 200, reply.text
    else:
        assert refusal(reply) == TIMED_OUT
        assert answered in message(reply)


def test_a_whole_answer_may_take_longer_than_the_first_byte_budget(hurried: Customer) -> None:
    """The answer takes a second.

    Answers too short to be streamed must arrive within the first-byte timeout; long ones that cannot be streamed,
    within the overall one.
    """
    asked: list[tuple[Way, str, Json]] = [
        *(
            (WAYS[name], WAYS[name].models, {"max_tokens": 1000})
            for name in ("chat-openai", "chat-anthropic", "text-openai")
        ),
        (WAYS["chat-openai"], "quiet/test", {}),
        (WAYS["chat-openai"], "sim/test", {"modalities": ["text", "audio"]}),
    ]
    bodies = [{**way.request("", **fields), "model": f"{models}/slow-whole"} for way, models, fields in asked]
    with ThreadPoolExecutor() as pool:
        replies = list(
            pool.map(lambda way, body: hurried.http.post(way.path, json=body), (a[0] for a in asked), bodies)
        )
    for (way, _, _), reply in zip(asked, replies, strict=True):
        assert reply.status_code == 200, reply.text
        assert len(way.whole_text(reply.json()).split()) == 20
    assert refusal(post(hurried, WAYS["chat-openai"], "slow-whole", max_tokens=16)) == TIMED_OUT
