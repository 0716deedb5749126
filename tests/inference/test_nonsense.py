"""Whatever an upstream sends, the result is an answer or a proper fault, never an unexpected exception.

One part of a recorded answer is replaced by any JSON, then goes the whole way to what a client would get. The values
depend on the seed of pytest-randomly, which the head of the output shows. Hypothesis would take ten times as long, and
there is little to shrink: a failure notes the part and its replacement.
"""

import base64
import functools
import json
import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import orjson
import pytest

from catalogue.pricing import ContradictoryUsage
from gateway.fastpath.faults import UpstreamFault
from inference.answers import Aggregate
from inference.call import Call, Shape
from inference.chunks import ChatNormaliser
from inference.dialects import DIALECTS
from inference.dialects.openai import OpenAIDecoder
from inference.modality import ADAPTERS, ShapeAdapter
from inference.sse import SseParser
from inference.wire_forms.base import WireForm
from inference.wire_forms.chat import ChatForm
from inference.wire_forms.completions import CompletionForm
from inference.wire_forms.embeddings import embedding_answer
from inference.wire_forms.messages import MessagesForm
from inference.wire_forms.responses import ResponsesForm
from inference.wire_forms.responses.requests import call_of
from tests.inference.dialects import recorded_anthropic, recorded_openai
from tests.inference.dialects.playback import taken
from tests.inference.dialects.routes import call

RECORDINGS: dict[str, tuple[str, bytes]] = {
    f"{dialect}-{name.lower()}": (dialect, recording)
    for dialect, module in (("openai", recorded_openai), ("anthropic", recorded_anthropic))
    for name, recording in vars(module).items()
    if isinstance(recording, bytes) and not name.startswith("STATUS")
}
STREAMS = [name for name in RECORDINGS if name.endswith("stream")]
WHOLE = [name for name in RECORDINGS if name.endswith("whole")]
FORMS: tuple[WireForm, ...] = (ChatForm(), CompletionForm(), ResponsesForm(), MessagesForm())
REPORT = {"usage": {"prompt_tokens": 1, "completion_tokens": 1}, "gateway_metadata": {}}
FAULTS = (UpstreamFault, ContradictoryUsage)
# The last three are also types of content blocks.
NAMES = [
    *("index", "id", "type", "name", "arguments", "function", "delta", "message", "content", "input"),
    *("text", "thinking", "refusal"),
]

# Combines the API of the request with the model's modality. Recordings are of chat: for other modalities they are
# nonsense already.
every_shape = pytest.mark.parametrize(
    ("form", "modality"), [(form, modality) for form in FORMS for modality in ("chat", "completion")]
)
DRAWN = 100  # for each kind and recording
NUMBERS: list[Any] = [*range(-3, 4), 0.5, -0.0, 1.5, -1.75, 1e-7, 5e-324, 2.0**53 + 2, 1e300, -1.7976931348623157e308]
LETTERS = 'aZ0 -{"\\\x00\n\x7f\xa0é\u2028\ufeff\ufffd\U0001f600\U0010ffff'


@pytest.fixture
def drawing(request: pytest.FixtureRequest) -> Random:
    """Returns a test's random generator: a different sequence for each test, by the run's seed."""
    return Random(f"{random.random()} {request.node.name}")


def any_json(drawing: Random, most: int = 5) -> Any:
    """Draws a value with at most `most` leaves."""
    kind = drawing.choice(("constant", "number", "name", "text", "list", "object"))
    if kind in ("list", "object") and most > 0:
        inner = [any_json(drawing, most // 2 - 1) for _ in range(drawing.randint(0, 3))]
        return inner if kind == "list" else dict(zip(drawing.sample(NAMES, len(inner)), inner, strict=True))
    if kind == "number":
        return drawing.choice(NUMBERS)
    if kind == "name":
        return drawing.choice(NAMES)
    if kind == "text":
        return "".join(drawing.choices(LETTERS, k=drawing.randint(0, 3)))
    return drawing.choice((None, True, False, [], {}))


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Returns the path to each part of a JSON value, including the whole."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, item in inside for found in paths(item, (*path, key)))]


def replaced(value: Any, path: tuple[Any, ...], by: Any) -> Any:
    """Returns the value with one part replaced."""
    if not path:
        return by
    copy = value.copy()
    copy[path[0]] = replaced(value[path[0]], path[1:], by)
    return copy


@functools.cache
def parsed(text: bytes) -> tuple[Any, list[tuple[Any, ...]]]:
    """Returns a JSON text's value, which must not be changed, and the paths to its parts."""
    value = json.loads(text)
    return value, paths(value)


@contextmanager
def spoilt(text: bytes, drawing: Random) -> Iterator[bytes]:
    """Yields the text with one part replaced. A proper fault is allowed; any other exception notes the replacement."""
    value, parts = parsed(text)
    part, by = drawing.choice(parts), any_json(drawing)
    try:
        yield orjson.dumps(replaced(value, part, by))
    except FAULTS:
        return
    except Exception as error:
        error.add_note(f"{part} of {text!r} is replaced by {by!r}")
        raise


def asked(form: WireForm, modality: str) -> tuple[Call, ShapeAdapter | None]:
    """Returns a request of this shape as the upstream gets it, and the adapter for its answer."""
    asked = call() if form.shape == Shape.CHAT else call(shape=form.shape, prompt="hello there")
    adapter = ADAPTERS.get((form.shape, modality))
    return (asked, None) if adapter is None else (adapter.call(asked), adapter)


@every_shape
@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_with_nonsense_in_it(form: WireForm, modality: str, name: str, drawing: Random) -> None:
    dialect, recording = RECORDINGS[name]
    parser = SseParser()
    events = [*parser.feed(recording), *parser.finish()]
    replaceable = [at for at, event in enumerate(events) if event.startswith(b"{")]
    for _ in range(DRAWN):
        position = drawing.choice(replaceable)
        with spoilt(events[position], drawing) as event:
            play(form, modality, dialect, [*events[:position], event, *events[position + 1 :]])


def play(form: WireForm, modality: str, dialect: str, events: Iterable[bytes]) -> None:
    """Takes a stream from the upstream to a client, chunk by chunk and as a whole."""
    upstream_call, _ = asked(form, modality)
    decoder = DIALECTS[dialect].decoder(upstream_call)
    chunks = form.normaliser(id="gen-1", created=1, model="m", choices=1)
    whole = form.aggregate()
    for delta in taken(decoder, chunks, *events):
        orjson.dumps(delta.chunk)
        whole.add(delta)
    for last in chunks.finishes():
        whole.add(last)
    finish(form, whole.answer())


@every_shape
@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_answer_with_nonsense_in_it(form: WireForm, modality: str, name: str, drawing: Random) -> None:
    dialect, recording = RECORDINGS[name]
    for _ in range(DRAWN):
        upstream_call, adapter = asked(form, modality)
        with spoilt(recording, drawing) as body:
            answer = DIALECTS[dialect].reply(body, upstream_call).body
            finish(form, answer if adapter is None else adapter.answer(answer))


@pytest.mark.parametrize("index", [[1], {"a": 1}, None, True, 1.5, "x"], ids=str)
def test_what_is_numbered_by_nonsense_is_not_merged(index: Any) -> None:
    cited = [{"index": index, "title": word} for word in ("one", "two")]
    deltas = [{"delta": {"content": "a", "annotations": [each]}} for each in cited]
    assert aggregated(deltas)["message"]["annotations"] == cited


@pytest.mark.parametrize("nonsense", [5, "ab", {"a": 1}, True], ids=str)
def test_logprobs_that_are_no_list_add_nothing(nonsense: Any) -> None:
    logprobs = [{"content": [1], "x": 1}, {"content": nonsense, "x": 2}]
    choice = aggregated({"delta": {"content": "a"}, "logprobs": each} for each in logprobs)
    assert choice["logprobs"] == {"content": [1], "x": 2}


def test_reasoning_next_to_a_delta_is_merged_like_any_other_field_of_a_choice() -> None:
    choice = aggregated({"delta": {"content": "a"}, "reasoning": each} for each in ("one", "two"))
    assert choice["reasoning"] == "two"


def test_a_choice_of_a_number_beyond_reason_opens_few_others() -> None:
    chunks = ChatNormaliser(id="gen-1", created=1, model="m", choices=10**6)
    choice = {"index": 10**6 - 1, "delta": {"content": "a"}}
    sent = taken(OpenAIDecoder(choices=10**6), chunks, {"choices": [choice]})
    assert 1 < len(sent) < 1000


def aggregated(choices: Iterable[dict[str, Any]]) -> Any:
    """Returns the first choice of a chat that was put together from chunks of one choice each."""
    chunks, whole = ChatNormaliser(id="gen-1", created=1, model="m", choices=1), Aggregate(Shape.CHAT)
    for choice in choices:
        (delta,) = taken(OpenAIDecoder(), chunks, {"choices": [choice]})
        whole.add(delta)
    answer = whole.answer()
    finish(ChatForm(), answer)
    return answer["choices"][0]


def finish(form: WireForm, answer: dict[str, Any]) -> None:
    """Runs the last steps to a client."""
    shaped = form.normalised(answer, call(), id="gen-1", created=1, model="m")
    assert form.output_bytes(shaped) >= 0
    orjson.dumps(form.answer(shaped, call_of({"model": "acme/test/model", "input": "hello"}), REPORT))


EMBEDDINGS: list[Any] = [[0.5, 2], [1e300], base64.b64encode(bytes(8)).decode(), "AAAA", "é", [], ""]


@pytest.mark.parametrize("embedding", EMBEDDINGS, ids=str)
@pytest.mark.parametrize("as_base64", [False, True])
@pytest.mark.parametrize("only_floats", [False, True])
def test_embeddings_with_nonsense_in_them(embedding: Any, as_base64: bool, only_floats: bool, drawing: Random) -> None:
    item = {"object": "embedding", "index": 0, "embedding": embedding}
    body = orjson.dumps({"object": "list", "data": [item], "usage": {"prompt_tokens": 2, "total_tokens": 2}})
    for _ in range(DRAWN):
        with spoilt(body, drawing) as text:
            reply = DIALECTS["openai"].reply(text, call(shape=Shape.EMBEDDING))
            orjson.dumps(
                embedding_answer(reply.body, model="m", as_base64=as_base64, only_floats=only_floats, inputs=1)
            )
