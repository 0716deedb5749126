"""The items and events of a response are made from the normalised chunks of a chat."""

from typing import Any

import orjson
import pytest

from gateway.errors import ProviderError, ProviderTimeout
from inference.call import Call
from inference.chunks import ChatNormaliser
from inference.dialects.base import DroppedFields
from inference.dialects.openai import OpenAIDecoder
from inference.wire_forms.responses import ResponsesForm
from inference.wire_forms.responses.conversation import conversation_of
from inference.wire_forms.responses.requests import call_of
from tests.inference.dialects.playback import taken
from tests.inference.responses.events import Events

Json = dict[str, Any]

FORM = ResponsesForm()
REPORT = {
    "usage": {
        "prompt_tokens": 5,
        "completion_tokens": 3,
        "total_tokens": 8,
        "cost": 0.5,
        "currency": "EUR",
        "prompt_tokens_details": {"cached_tokens": 2, "audio_tokens": None},
    },
    "gateway_metadata": {"provider": "sim"},
}
ID = "resp_01a2"
TOOLS = [
    {"type": "function", "name": "weather"},
    {"type": "custom", "name": "patch"},
    {"type": "namespace", "name": "agents", "tools": [{"type": "function", "name": "close"}]},
]


def asked(**fields: Any) -> Call:
    return call_of({"model": "sim/test/echo", "input": "hi", **fields})


class Stream:
    """Passes an upstream's deltas through the normaliser and collects the frames."""

    def __init__(self, **fields: Any) -> None:
        self.normaliser = ChatNormaliser(id=ID, created=7, model="sim/test/echo/FRPAR", choices=1)
        self.framing = FORM.framing(self.normaliser, asked(**fields))
        self.decoder = OpenAIDecoder()
        self.frames: list[bytes] = []

    def say(self, delta: Json, finish: str | None = None, **choice: Any) -> None:
        chunk = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish, **choice}]}
        self.frames += self.framing.frames(taken(self.decoder, self.normaliser, chunk))

    def finished(self, finish: str = "stop") -> Events:
        self.say({}, finish)
        self.frames += self.framing.frames([*self.normaliser.finishes()])
        return Events.read([*self.frames, *self.framing.finished(REPORT)])


def fragment(index: int, name: str | None = None, arguments: str = "") -> Json:
    if name is None:
        return {"index": index, "function": {"arguments": arguments}}
    return {
        "index": index,
        "id": f"call_{index}",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def test_a_text_is_a_message_of_one_part() -> None:
    stream = Stream()
    stream.say({"role": "assistant", "content": "hello"})
    stream.say({"content": ' "there"\u2028'})
    events = stream.finished()
    assert events.types == [
        *("created", "in_progress", "output_item.added", "content_part.added", "output_text.delta"),
        *("output_text.done", "content_part.done", "output_item.done", "completed"),
    ]
    (message,) = events.final["output"]
    part = {"type": "output_text", "text": 'hello "there"\u2028', "annotations": [], "logprobs": []}
    assert message == {
        "id": "msg_01a2_0", "type": "message", "status": "completed", "role": "assistant", "content": [part]
    }  # fmt: skip
    assert events.named("response.output_item.added")[0]["item"]["content"] == []
    assert [event["logprobs"] for event in events.named("response.output_text.delta")] == [[], []]
    assert (events.final["id"], events.final["created_at"], events.final["status"]) == ("resp_01a2", 7, "completed")
    assert events.final["usage"] == {
        "input_tokens": 5,
        "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 0},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 8,
        "cost": 0.5,
        "currency": "EUR",
    }
    assert events.final["gateway_metadata"] == {"provider": "sim"}


def test_reasoning_is_an_item_of_its_own_before_the_message() -> None:
    stream = Stream()
    stream.say({"reasoning_content": "Hm"})
    stream.say({"reasoning": "."})
    stream.say({"content": "Yes"})
    reasoning, message = stream.finished().final["output"]
    assert reasoning == {
        "id": "rs_01a2_0",
        "type": "reasoning",
        "status": "completed",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "Hm."}],
    }
    assert message["content"][0]["text"] == "Yes"


def test_signed_thinking_is_encrypted_content_on_request_and_comes_back_whole() -> None:
    blocks = [{"index": 0, "type": "thinking", "thinking": "Hm.", "signature": "sig"}]
    for include in ([], ["reasoning.encrypted_content"]):
        stream = Stream(include=include)
        stream.say({"reasoning_content": "Hm."})
        stream.say({"thinking_blocks": blocks, "tool_calls": [fragment(0, "weather", "{}")]})
        output = stream.finished("tool_calls").final["output"]
        assert ("encrypted_content" in output[0]) is bool(include)
        (turn,) = conversation_of(output, None, DroppedFields()).messages
        assert turn.get("thinking_blocks", []) == (blocks if include else [])
        assert turn["tool_calls"][0]["id"] == "call_0"


def test_redacted_thinking_has_an_item_too() -> None:
    stream = Stream(include=["reasoning.encrypted_content"])
    redacted = {"index": 0, "type": "redacted_thinking", "data": "x"}
    stream.say({"thinking_blocks": [redacted], "content": "Yes"})
    reasoning, message = stream.finished().final["output"]
    assert reasoning["type"] == "reasoning"
    assert conversation_of([reasoning, message], None, DroppedFields()).messages[0]["thinking_blocks"] == [redacted]


def test_calls_are_items_with_their_own_arguments_even_if_their_fragments_are_mixed() -> None:
    stream = Stream(tools=TOOLS)
    stream.say({"content": "Looking."})
    stream.say({"tool_calls": [fragment(0, "weather", '{"a"'), fragment(1, "agents__close")]})
    stream.say({"tool_calls": [fragment(1, arguments="{}"), fragment(0, arguments=":1}")]})
    events = stream.finished("tool_calls")
    _, weather, close = events.final["output"]
    assert (weather["type"], weather["name"], weather["arguments"]) == ("function_call", "weather", '{"a":1}')
    assert (close["name"], close["namespace"], close["arguments"]) == ("close", "agents", "{}")
    assert [event["arguments"] for event in events.named("response.function_call_arguments.done")] == ['{"a":1}', "{}"]
    deltas = events.named("response.function_call_arguments.delta")
    assert [(event["output_index"], event["delta"]) for event in deltas] == [(1, '{"a"'), (2, "{}"), (1, ":1}")]


@pytest.mark.parametrize(
    ("arguments", "given"),
    [('{"input":"*** Begin"}', "*** Begin"), ("*** Begin", "*** Begin"), ("{}", ""), ("[1]", "[1]")],
)
def test_a_custom_tools_function_is_its_input_again(arguments: str, given: str) -> None:
    stream = Stream(tools=TOOLS)
    stream.say({"tool_calls": [fragment(0, "patch", arguments[:4]), fragment(0, arguments=arguments[4:])]})
    events = stream.finished("tool_calls")
    (call,) = events.final["output"]
    assert (call["type"], call["call_id"], call["name"], call["input"]) == (
        "custom_tool_call",
        "call_0",
        "patch",
        given,
    )
    assert "".join(event["delta"] for event in events.named("response.custom_tool_call_input.delta")) == given
    assert [event["input"] for event in events.named("response.custom_tool_call_input.done")] == [given]


def test_a_refusal_is_a_part_of_the_message() -> None:
    stream = Stream()
    stream.say({"content": "Well."})
    stream.say({"refusal": "No."})
    (message,) = stream.finished().final["output"]
    assert [part["type"] for part in message["content"]] == ["output_text", "refusal"]
    assert message["content"][1] == {"type": "refusal", "refusal": "No."}


def test_log_probabilities_ride_on_their_deltas_and_are_whole_at_the_end() -> None:
    stream = Stream(top_logprobs=1)
    listed: list[Json] = [{"token": word, "logprob": -0.1, "bytes": [], "top_logprobs": []} for word in ("a", "b")]
    for each in listed:
        stream.say({"content": each["token"]}, logprobs={"content": [each]})
    events = stream.finished()
    assert [event["logprobs"] for event in events.named("response.output_text.delta")] == [[each] for each in listed]
    assert events.final["output"][0]["content"][0]["logprobs"] == listed


@pytest.mark.parametrize(("finish", "reason"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
def test_an_answer_that_was_cut_is_incomplete_and_so_is_its_last_item(finish: str, reason: str) -> None:
    stream = Stream(tools=TOOLS)
    stream.say({"content": "hello"})
    stream.say({"tool_calls": [fragment(0, "weather", "{"), fragment(1, "weather", "{")]})
    events = stream.finished(finish)
    assert events.types[-1] == "incomplete"
    assert (events.final["status"], events.final["incomplete_details"]) == ("incomplete", {"reason": reason})
    assert events.final["completed_at"] is None
    assert [item["status"] for item in events.final["output"]] == ["completed", "completed", "incomplete"]


def test_an_answer_that_says_nothing_is_an_empty_message() -> None:
    stream = Stream()
    (message,) = stream.finished().final["output"]
    assert [part["text"] for part in message["content"]] == [""]


def test_a_stream_that_broke_says_so_after_closing_its_items() -> None:
    stream = Stream()
    stream.say({"content": "hello"})
    events = Events.read([*stream.frames, *stream.framing.broke(ProviderError("It broke."), REPORT)])
    assert events.types[-3:] == ["output_item.done", "error", "failed"]
    assert events.all[-2] | {"sequence_number": 0} == {
        "type": "error", "code": "provider_error", "message": "It broke.", "param": None, "sequence_number": 0
    }  # fmt: skip
    assert events.final["error"] == {"code": "server_error", "message": "It broke."}
    assert (events.final["status"], events.final["completed_at"]) == ("failed", None)
    assert (events.final["usage"]["input_tokens"], events.final["output"][0]["status"]) == (5, "incomplete")


def test_a_stream_that_stalled_failed_and_tells_what_is_billed() -> None:
    stream = Stream()
    stream.say({"content": "hello"})
    events = Events.read([*stream.frames, *stream.framing.stalled(ProviderTimeout("It stalled."), REPORT)])
    assert events.types[-2:] == ["output_item.done", "failed"]
    assert events.final["usage"]["cost"] == 0.5


def test_a_whole_answer_has_the_items_of_its_stream() -> None:
    calls = [{**fragment(0, "weather", "{}")}, {**fragment(1, "patch", '{"input":"x"}')}]
    stream = Stream(tools=TOOLS)
    stream.say({"reasoning_content": "Hm.", "content": "Yes", "tool_calls": calls})
    message = {"role": "assistant", "reasoning_content": "Hm.", "content": "Yes", "tool_calls": calls}
    answer = {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    call = asked(tools=TOOLS)
    normalised = FORM.normalised(answer, call, id=ID, created=7, model="sim/test/echo/FRPAR")
    whole, streamed = FORM.answer(normalised, call, REPORT), stream.finished("tool_calls").final
    assert orjson.loads(orjson.dumps(whole)) | {"completed_at": 0} == streamed | {"completed_at": 0}


def test_the_response_repeats_its_request() -> None:
    stream = Stream(
        instructions="Be brief.", tools=TOOLS[:1], metadata={"a": "b"}, temperature=0.5, max_output_tokens=99
    )
    events = stream.finished()
    begun = events.all[0]["response"]
    assert (begun["status"], begun["output"], begun["usage"], begun["completed_at"]) == ("in_progress", [], None, None)
    for response in (begun, events.final):
        assert (response["instructions"], response["metadata"], response["temperature"]) == (
            "Be brief.",
            {"a": "b"},
            0.5,
        )
        assert (response["max_output_tokens"], response["store"], response["tool_choice"]) == (99, False, "auto")
        (tool,) = response["tools"]
        assert tool == {"type": "function", "name": "weather", "description": None, "parameters": None, "strict": None}
