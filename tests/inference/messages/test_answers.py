"""The events of a message, with bill and errors, are made from the normalised chunks of a chat."""

from typing import Any

import orjson
import pytest

from gateway.errors import ProviderTimeout, UpstreamRejected
from inference.answers import chat_answer
from inference.call import Call, Shape
from inference.chunks import ChatNormaliser
from inference.dialects.openai import OpenAIDecoder
from inference.wire_forms.messages import MessagesForm, overflow
from tests.inference.dialects.playback import taken
from tests.inference.messages.events import Events

Json = dict[str, Any]

FORM = MessagesForm()
CALL = Call(Shape.MESSAGES, "sim/test/echo", {"messages": [{"role": "user", "content": "hello there"}]})
REPORT: Json = {
    "usage": {
        "prompt_tokens": 30,
        "completion_tokens": 3,
        "total_tokens": 33,
        "cost": 0.5,
        "currency": "EUR",
        "completion_tokens_details": {"reasoning_tokens": 2},
    },
    "gateway_metadata": {
        "provider": "sim",
        "routing_mode": "explicit",
        "fallback_occurred": False,
        "cache_read_tokens": 20,
        "cache_creation_tokens": 7,
    },
}
USAGE: Json = {
    "input_tokens": 3,
    "cache_creation_input_tokens": 7,
    "cache_read_input_tokens": 20,
    "output_tokens": 3,
    "output_tokens_details": {"thinking_tokens": 2},
    "cost": 0.5,
    "currency": "EUR",
}


class Stream:
    """Passes an upstream's deltas through the normaliser and collects the frames."""

    def __init__(self) -> None:
        self.normaliser = ChatNormaliser(id="msg_1", created=7, model="sim/test/echo/FRPAR", choices=1)
        self.framing = FORM.framing(self.normaliser, CALL)
        self.decoder = OpenAIDecoder()
        self.frames: list[bytes] = []

    def say(self, delta: Json, finish: str | None = None, **choice: Any) -> None:
        chunk = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish, **choice}]}
        self.frames += self.framing.frames(taken(self.decoder, self.normaliser, chunk))

    def finished(self, finish: str = "stop", **choice: Any) -> Events:
        self.say({}, finish, **choice)
        self.frames += self.framing.frames([*self.normaliser.finishes()])
        return Events.read([*self.frames, *self.framing.finished(REPORT)])


def fragment(index: int, arguments: str, name: str = "") -> Json:
    head = {"id": f"call_{index}"} if name else {}
    return {"index": index, **head, "function": {"arguments": arguments, **({"name": name} if name else {})}}


def calls(events: Events) -> list[tuple[str, Any]]:
    """Returns each call with its input, as a client puts it together."""
    inputs = {
        event["index"]: [event["content_block"]["name"], ""]
        for event in events.named("content_block_start")
        if event["content_block"]["type"] == "tool_use"
    }
    for event in events.named("content_block_delta"):
        if event["index"] in inputs:
            inputs[event["index"]][1] += event["delta"]["partial_json"]
    return [(name, orjson.loads(text or "{}")) for name, text in inputs.values()]


def test_thinking_text_and_calls_are_blocks_one_after_the_other() -> None:
    stream = Stream()
    for delta in ({"reasoning_content": "I"}, {"reasoning_content": " think"}, {"content": "Well"}, {"content": "."}):
        stream.say(delta)
    stream.say({"tool_calls": [fragment(0, '{"a"', "weather")]})
    stream.say({"tool_calls": [fragment(0, ":1}"), fragment(1, "", "clock")]})
    events = stream.finished("tool_calls")
    blocks = [event["content_block"] for event in events.named("content_block_start")]
    assert [block["type"] for block in blocks] == ["thinking", "text", "tool_use", "tool_use"]
    assert blocks[2] == {"type": "tool_use", "id": "call_0", "name": "weather", "input": {}}
    assert events.text == "Well."
    assert calls(events) == [("weather", {"a": 1}), ("clock", {})]
    assert events.last["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert (events.last["usage"], events.last["gateway_metadata"]) == (USAGE, REPORT["gateway_metadata"])


def test_calls_that_come_at_once_do_not_mix() -> None:
    stream = Stream()
    stream.say({"tool_calls": [fragment(0, '{"a":', "weather"), fragment(1, '{"b":', "clock")]})
    stream.say({"tool_calls": [fragment(1, "2}"), fragment(0, "1}"), fragment(2, '{"c":3}', "map")]})
    assert calls(stream.finished("tool_calls")) == [("weather", {"a": 1}), ("clock", {"b": 2}), ("map", {"c": 3})]


@pytest.mark.parametrize(
    ("finish", "choice", "expected"),
    [
        ("stop", {}, ("end_turn", None)),
        ("stop", {"stop_reason": "zebra"}, ("stop_sequence", "zebra")),
        ("stop", {"stop_reason": 151643}, ("end_turn", None)),
        ("length", {}, ("max_tokens", None)),
        ("content_filter", {}, ("refusal", None)),
    ],
)
def test_why_it_stopped(finish: str, choice: Json, expected: tuple[str, str | None]) -> None:
    stream = Stream()
    stream.say({"content": "one"})
    delta = stream.finished(finish, **choice).last["delta"]
    assert (delta["stop_reason"], delta["stop_sequence"]) == expected
    message = {"content": "one", "tool_calls": []}
    upstream = {"choices": [{"index": 0, "message": message, "finish_reason": finish, **choice}]}
    normalised = chat_answer(upstream, id="msg_1", created=7, model="m")
    whole = FORM.answer(normalised, CALL, REPORT)
    assert (whole["stop_reason"], whole["stop_sequence"], whole["usage"]) == (*expected, USAGE)


@pytest.mark.parametrize("arguments", ["no json", "[1]"])
def test_arguments_that_are_no_object_are_shown_to_the_tool(arguments: str) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": arguments}}
    upstream = {"choices": [{"message": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]}
    whole = FORM.answer(chat_answer(upstream, id="msg_1", created=7, model="m"), CALL, REPORT)
    (block,) = whole["content"]
    assert block == {
        "type": "tool_use", "id": "call_1", "name": "weather", "input": {"invalid_arguments": arguments}
    }  # fmt: skip


def test_a_stall_and_a_break_end_in_an_error_with_what_was_billed() -> None:
    for end in ("stalled", "broke"):
        stream = Stream()
        stream.say({"content": "one"})
        error = ProviderTimeout("Provider 'sim' fell silent.")
        last = Events.read([*stream.frames, *getattr(stream.framing, end)(error, REPORT)]).last
        assert last["error"]["type"] == "timeout_error"
        assert last["usage"] == USAGE
    assert "usage" not in Events.read([*stream.frames, *stream.framing.broke(error, None)]).last


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            "Provider 'a' rejected the request: prompt is too long: 213462 tokens > 200000 maximum",
            "prompt is too long: 213462 tokens > 200000 maximum (Provider 'a' rejected the request)",
        ),
        (
            "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens.",
            "prompt is too long: 9001 tokens > 8192 maximum. ",
        ),
        (
            "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens (5000 in the "
            "messages, 4000 in the completion).",
            "input length and `max_tokens` exceed context limit: 5000 + 4000 > 8192. ",
        ),
        (
            "'max_tokens' is too large: 4000. This model's maximum context length is 8192 tokens and your request has "
            "5000 input tokens (4000 > 8192 - 5000).",
            "input length and `max_tokens` exceed context limit: 5000 + 4000 > 8192. ",
        ),
        (
            "Provider 'a' rejected the request: input length and `max_tokens` exceed context limit: 5 + 4 > 8.",
            "input length and `max_tokens` exceed context limit: 5 + 4 > 8 (Provider 'a' rejected the request)",
        ),
        ("The input is too long.", "prompt is too long. "),
    ],
)
def test_an_overflow_has_the_message_that_agents_parse(words: str, expected: str) -> None:
    assert overflow(words) == (expected + words if expected.endswith(". ") else expected)
    refused = FORM.error_response(UpstreamRejected(words, code="context_length_exceeded"), {})
    assert refused.status == 400
    assert isinstance(refused.body, bytes)
    assert orjson.loads(refused.body)["error"]["message"].startswith(expected)
