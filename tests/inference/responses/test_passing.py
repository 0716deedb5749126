"""Events of an upstream with the Responses API are passed on to the client."""

from random import Random
from typing import Any

import orjson
import pytest

from gateway.errors import ProviderError
from inference.call import Shape
from inference.dialects.errors import MalformedReply
from inference.dialects.openai_responses import ResponseDecoder
from inference.wire_forms.responses import PASSED, ResponsesForm
from inference.wire_forms.responses.passing import LastResponse, PassedResponse
from tests.inference.dialects.playback import taken
from tests.inference.dialects.routes import call
from tests.inference.responses.events import Events
from tests.inference.test_nonsense import drawing, spoilt

__all__ = ["drawing"]

Json = dict[str, Any]

REPORT = {"usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3, "cost": 0.5}, "gateway_metadata": {}}
OWN = {"id": "resp_up", "model": "up", "status": "in_progress", "output": [], "metadata": {"a": "b"}}
THOUGHT = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "x", "status": "completed"}
TEXT = {"type": "output_text", "text": "hello", "annotations": [], "logprobs": []}
MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "content": [TEXT], "status": "completed"}
CALL = {"id": "fc_1", "type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "status": "completed"}
USAGE = {
    "input_tokens": 1,
    "input_tokens_details": {"cached_tokens": 1, "odd": 7},
    "output_tokens": 2,
    "total_tokens": 3,
}
EVENTS: list[Json] = [
    {"type": "response.created", "response": OWN},
    {"type": "response.in_progress", "response": OWN},
    {"type": "response.output_item.added", "output_index": 0, "item": THOUGHT},
    {"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": 0, "delta": "Hm."},
    {"type": "response.output_item.done", "output_index": 0, "item": THOUGHT},
    {"type": "response.output_item.added", "output_index": 1, "item": {**MESSAGE, "content": []}},
    {"type": "response.output_text.delta", "output_index": 1, "content_index": 0, "delta": "hello", "logprobs": []},
    {"type": "response.output_item.done", "output_index": 1, "item": MESSAGE},
    {"type": "response.output_item.added", "output_index": 2, "item": {**CALL, "arguments": ""}},
    {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": "{}"},
    {"type": "response.output_item.done", "output_index": 2, "item": CALL},
    {
        "type": "response.completed",
        "response": {**OWN, "status": "completed", "output": [THOUGHT, MESSAGE, CALL], "usage": USAGE},
    },
]


class Stream:
    """Passes an upstream's events on to a client."""

    def __init__(self) -> None:
        self.events = self.framing = PassedResponse(id="resp_01a2", model="sim/test/echo/FRPAR")
        self.whole, self.frames = LastResponse(), list[bytes]()

    def take(self, data: bytes) -> None:
        for delta in taken(ResponseDecoder(), self.events, data):
            self.whole.add(delta)
            self.frames += self.framing.frames([delta])


def test_events_are_numbered_anew_and_the_last_has_the_bill() -> None:
    stream = Stream()
    stream.take(b'{"type":"keepalive","sequence_number":0}')  # it is not an event of a response, and not passed on
    for event in EVENTS:
        stream.take(orjson.dumps({**event, "sequence_number": 99}))
    events = Events.read([*stream.frames, *stream.framing.finished(REPORT)])
    assert [event["type"] for event in events.all] == [event["type"] for event in EVENTS]
    final = events.final
    assert (final["id"], final["model"], final["store"]) == ("resp_01a2", "sim/test/echo/FRPAR", False)
    assert (final["metadata"], final["output"]) == ({"a": "b"}, [THOUGHT, MESSAGE, CALL])
    assert final["usage"]["input_tokens_details"] == {"cached_tokens": 1, "cache_write_tokens": 0, "odd": 7}
    assert (final["usage"]["cost"], final["gateway_metadata"]) == (0.5, {})


@pytest.mark.parametrize(
    ("events", "cut"),
    [
        (4, {**THOUGHT, "status": "incomplete", "summary": [{"type": "summary_text", "text": "Hm."}]}),
        (7, {**MESSAGE, "status": "incomplete"}),
        (10, {**CALL, "status": "incomplete"}),
    ],
    ids=["reasoning", "message", "call"],
)
def test_a_stream_that_breaks_closes_its_item_with_what_came_of_it(events: int, cut: Json) -> None:
    stream = Stream()
    for event in EVENTS[:events]:
        stream.take(orjson.dumps(event))
    read = Events.read([*stream.frames, *stream.framing.broke(ProviderError("It broke."), REPORT)])
    assert read.types[-3:] == ["output_item.done", "error", "failed"]
    assert read.final["output"][-1] == cut
    assert read.final["usage"]["cost"] == 0.5


@pytest.mark.parametrize("output", [{"output": []}, {"output": None}, {}], ids=["empty", "null", "absent"])
def test_a_last_response_without_its_items_has_those_that_came(output: Json) -> None:
    stream = Stream()
    *events, last = EVENTS
    response = {name: value for name, value in last["response"].items() if name != "output"}
    for event in (*events, {**last, "response": {**response, **output}}):
        stream.take(orjson.dumps(event))
    read = Events.read([*stream.frames, *stream.framing.finished(REPORT)])
    assert read.final["output"] == stream.whole.answer()["output"] == [THOUGHT, MESSAGE, CALL]


def test_an_answer_without_output_is_malformed() -> None:
    with pytest.raises(MalformedReply):
        PASSED.normalised({"id": "resp_up"}, call(), id="resp_01a2", created=1, model="m")
    with pytest.raises(MalformedReply):
        Stream().take(b'{"type":"response.completed","response":{}}')


def test_what_came_is_freed_with_the_call() -> None:
    asked = ResponsesForm().call({"model": "sim/test/echo", "input": "hi", "temperature": 1}, {})
    assert asked.shape == Shape.RESPONSES
    asked.drop_content()
    assert (asked.body, asked.original_body) == ({"temperature": 1}, {"temperature": 1})


def test_a_stream_with_nonsense_in_it(drawing: Random) -> None:
    written = [orjson.dumps(event) for event in EVENTS]
    for _ in range(1000):
        stream, position = Stream(), drawing.randrange(len(written))
        with spoilt(written[position], drawing) as spoilt_event:
            for event in (*written[:position], spoilt_event, *written[position + 1 :]):
                stream.take(event)
            if stream.events.is_complete:
                stream.framing.finished(REPORT)
                whole = PASSED.normalised(stream.whole.answer(), call(), id="resp_1", created=1, model="m")
                assert PASSED.output_bytes(whole) >= 0
                orjson.dumps(PASSED.answer(whole, call(), REPORT))
        stream.framing.broke(ProviderError("It broke."), None)
