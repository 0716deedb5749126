"""Whatever an upstream of the Messages API sends, the result is an answer or a proper fault."""

from collections.abc import Iterable
from random import Random

import orjson
import pytest

from inference.call import Call, Shape
from inference.deltas import NO_CHOICE, OtherDelta
from inference.dialects import DIALECTS
from inference.sse import SseParser
from inference.wire_forms.messages import PASSED, MessagesForm
from inference.wire_forms.messages.answers import input_of
from inference.wire_forms.messages.passing import WholeMessage
from tests.inference.dialects.playback import taken
from tests.inference.messages.test_answers import REPORT
from tests.inference.test_nonsense import RECORDINGS, STREAMS, WHOLE, drawing, spoilt

__all__ = ["drawing"]

DRAWN = 400  # for each recording
CALL = Call(Shape.MESSAGES, "m", {"messages": [{"role": "user", "content": "hello there"}]}, max_tokens=64)
DIALECT = DIALECTS["anthropic"]
DEEP = "[" * 300 + "]" * 300


@pytest.mark.parametrize("name", [name for name in STREAMS if name.startswith("anthropic")])
def test_a_stream_with_nonsense_in_it(name: str, drawing: Random) -> None:
    parser = SseParser()
    events = [*parser.feed(RECORDINGS[name][1]), *parser.finish()]
    replaceable = [at for at, event in enumerate(events) if event.startswith(b"{")]
    for _ in range(DRAWN):
        position = drawing.choice(replaceable)
        with spoilt(events[position], drawing) as event:
            play([*events[:position], event, *events[position + 1 :]])


def play(events: Iterable[bytes]) -> None:
    """Takes a stream from the upstream to a client, chunk by chunk and as a whole."""
    normaliser, whole = PASSED.normaliser(id="msg_1", created=1, model="m", choices=1), PASSED.aggregate()
    framing = PASSED.framing(normaliser, CALL)
    for delta in taken(DIALECT.decoder(CALL), normaliser, *events):
        framing.frames([delta])
        whole.add(delta)
    for last in normaliser.finishes():
        whole.add(last)
    framing.finished(REPORT)
    shaped = PASSED.normalised(whole.answer(), CALL, id="msg_1", created=1, model="m")
    assert PASSED.output_bytes(shaped) >= 0
    orjson.dumps(PASSED.answer(shaped, CALL, REPORT))


@pytest.mark.parametrize("name", [name for name in WHOLE if name.startswith("anthropic")])
def test_a_whole_answer_with_nonsense_in_it(name: str, drawing: Random) -> None:
    for _ in range(DRAWN):
        with spoilt(RECORDINGS[name][1], drawing) as body:
            reply = DIALECT.reply(body, CALL)
            shaped = PASSED.normalised(reply.body, CALL, id="msg_1", created=1, model="m")
            assert PASSED.output_bytes(shaped) >= 0
            orjson.dumps(PASSED.answer(shaped, CALL, REPORT))


def test_citations_that_begin_as_no_list_begin_with_the_first_that_is_one() -> None:
    whole = WholeMessage()
    block = {"type": "text", "text": "a", "citations": 5}
    whole.add(OtherDelta({"type": "content_block_start", "index": 0, "content_block": block}, NO_CHOICE))
    delta = {"type": "citations_delta", "citation": {"cited_text": "b"}}
    whole.add(OtherDelta({"type": "content_block_delta", "index": 0, "delta": delta}, NO_CHOICE))
    assert whole.answer()["content"][0]["citations"] == [{"cited_text": "b"}]


def test_input_that_cannot_be_serialised_is_a_text_both_passed_on_and_translated() -> None:
    assert input_of(DEEP) == {"invalid_arguments": DEEP}
    whole = WholeMessage()
    begun = {"type": "tool_use", "name": "a"}
    whole.add(OtherDelta({"type": "content_block_start", "index": 0, "content_block": begun}, NO_CHOICE))
    delta = {"type": "input_json_delta", "partial_json": DEEP}
    whole.add(OtherDelta({"type": "content_block_delta", "index": 0, "delta": delta}, NO_CHOICE))
    assert whole.answer()["content"][0]["input"] == {"invalid_arguments": DEEP}
    call = {"id": "a", "function": {"name": "a", "arguments": DEEP}}
    choices = [{"index": 0, "finish_reason": "tool_calls", "message": {"tool_calls": [call]}}]
    message = MessagesForm().answer({"id": "a", "model": "m", "choices": choices}, CALL, REPORT)
    assert message["content"][0]["input"] == {"invalid_arguments": DEEP}
