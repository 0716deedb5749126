"""A stream has the same result wherever its bytes are cut."""

import json
import re
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from catalogue.pricing import ContradictoryUsage
from gateway.fastpath.faults import UpstreamFault
from gateway.fastpath.http_client import FIRST_BYTE, STREAM_IDLE, Deadlines
from inference.answers import Aggregate
from inference.call import Shape
from inference.chunks import ChatNormaliser, ChunkNormaliser
from inference.deltas import Delta
from inference.dialects.base import StreamDecoder
from inference.dialects.openai import OpenAIDecoder, OpenAIDialect
from inference.reader import StreamReader
from inference.text_joiner import TextJoiner
from inference.wire_forms.completions import TextNormaliser
from tests.examples import examples
from tests.inference.dialects.routes import call

Json = dict[str, Any]
OWN_IDS = re.compile(rb"call_[0-9a-f]{32}")  # ids of tool calls without one from the upstream are random
TEXTS = ["a", "Hello", " world", "probe", '"', "\\", "é", "\n", "", "content", '"content":"a"', "\u2028", "0", "}"]
TEXTS += ["one\n\ttwo\r", "漢字", "\u0085", "\\n", "\x7f", "\x1f", "/", "\b"]


class Bytes:
    """Acts as an upstream that has sent these blocks."""

    def __init__(self, blocks: list[bytes]) -> None:
        self._blocks = iter(blocks)
        self.deadlines = Deadlines(30)

    def read(self) -> bytes:
        return next(self._blocks, b"")


def outcome(blocks: list[bytes], shape: Shape, choices: int, *, joins_texts: bool = False) -> tuple[Any, ...]:
    """Returns the chunks that are sent, the whole answer, and what is billed."""
    normaliser: type[ChunkNormaliser] = ChatNormaliser if shape == Shape.CHAT else TextNormaliser
    chunks = normaliser(id="gen-1", created=1, model="m", choices=choices)
    decoder = OpenAIDialect().decoder(call(choices=choices))
    reader = StreamReader(Bytes(blocks), decoder, chunks, lambda _usage, _bytes: False, joins_texts=joins_texts)
    whole, sent, fault = Aggregate(shape), [], None
    while reader.ending is None and fault is None:
        try:
            reader.advance()
        except UpstreamFault as error:
            fault = error.message
        for delta in reader.take():
            sent += chunks_of(delta)
            whole.add(delta)
    for delta in reader.take_finishes():
        sent += chunks_of(delta)
        whole.add(delta)
    counted = reader.outcome(reader.ending or "upstream_broke")  # type: ignore[arg-type]
    billed = (counted.usage, counted.text_bytes, counted.uncounted_bytes, counted.reported, counted.flags)
    answer = orjson.loads(OWN_IDS.sub(b"call_own", orjson.dumps(whole.answer())))
    return sent, answer, billed, reader.ending, fault, reader.first_output_at is None


def chunks_of(delta: Delta) -> list[tuple[type, Json]]:
    """Returns the chunks that the framing writes for a delta, even if it consists of several pieces."""
    chunks = (delta.chunk, *(delta.more or ()))
    return [(type(delta), orjson.loads(OWN_IDS.sub(b"call_own", orjson.dumps(chunk)))) for chunk in chunks]


texts = st.sampled_from(TEXTS)
fragments = st.fixed_dictionaries(
    {"index": st.sampled_from([0, 5, None]), "function": st.fixed_dictionaries({"arguments": texts})}
)
deltas = st.one_of(
    *(st.fixed_dictionaries({name: texts}) for name in ("content", "content", "content", "reasoning_content")),
    st.fixed_dictionaries({"role": st.just("assistant"), "content": texts}),
    st.fixed_dictionaries({"content": texts, "other": texts}),
    st.fixed_dictionaries({"content": st.none(), "refusal": texts}),
    st.fixed_dictionaries({"role": st.just("assistant"), "content": texts, "reasoning": st.none()}),
    st.fixed_dictionaries({"content": st.just([]), "annotations": st.just([])}),
    st.fixed_dictionaries({"content": st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": texts}))}),
    st.just({"tool_calls": [{"index": 0, "id": "call_1", "function": {"name": "f", "arguments": "{"}}]}),
    st.just({"tool_calls": [{"index": 5, "function": {"name": "f", "arguments": {"a": 1}}}]}),
    st.fixed_dictionaries({"tool_calls": st.lists(fragments, max_size=2)}),
    st.sampled_from([None, "text", ["text"], {}]),
)
finishes = st.sampled_from([None] * 12 + ["", "stop", "length"])
indexes = st.sampled_from([0, 0, 0, 0, 1, 2, True, 0.0, None])
usages = st.sampled_from([None] * 8 + [{"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}])
BESIDE: list[Json] = [
    *[{}] * 6,
    {"system_fingerprint": "fp"},
    {"service_tier": "x"},
    {"usage": None},
    {"system_fingerprint": None},
    {"gateway_metadata": {}},
    {"obfuscation": "x"},
]
extras = st.sampled_from(BESIDE)


@st.composite
def chunk(draw: st.DrawFn, kind: str) -> Json:
    choice: Json = {"index": draw(indexes), "finish_reason": draw(finishes)}
    if kind == "chat":
        choice["delta"] = draw(deltas)
    else:
        choice |= {"text": draw(texts), "logprobs": None}
    made: Json = {"id": "c", "object": "x", "choices": [choice], **draw(extras)}
    if (usage := draw(usages)) is not None:
        made["usage"] = usage
    return made


def stream(kind: str) -> st.SearchStrategy[list[Json]]:
    others = st.sampled_from([{"choices": []}, {"choices": [], "timings": {"n": 1}}, {"choices": [], "error": None}])
    return st.lists(st.one_of(chunk(kind), chunk(kind), chunk(kind), others), min_size=1, max_size=14)


WRITINGS = [
    b"data: {}\n\n",
    b"data:{}\r\n\r\n",
    b"event: x\ndata: {}\nid: 1\n\n",
    b": ping\n\ndata: {}\n\n",
    b"data: {}\r\r",
]
writings = st.sampled_from([WRITINGS[0], *WRITINGS])
runs = st.lists(texts, min_size=3, max_size=30).map(
    lambda run: [{"id": "c", "choices": [{"index": 0, "delta": {"content": text}}]} for text in run]
)
# Some upstreams number the only choice otherwise: whichever number comes first is the requested choice.
OF_TWO_NUMBERS: tuple[str, list[Json]] = (
    "chat",
    [{"choices": [{"index": index, "finish_reason": None, "delta": {"content": "a"}}]} for index in (1, 0)],
)
events = st.one_of(
    st.tuples(st.just("chat"), stream("chat")),
    st.tuples(st.just("text"), stream("text")),
    st.tuples(st.just("chat"), runs),
)


@settings(max_examples=examples(400), deadline=None)
@given(events, st.booleans(), st.lists(st.integers(1, 60), max_size=20), st.sampled_from([1, 2]), writings)
@example(OF_TWO_NUMBERS, False, [], 1, WRITINGS[0])  # in the order of the strategies above
def test_a_stream_says_the_same_wherever_it_is_cut(
    made: tuple[str, list[Json]], spaced: bool, cuts: list[int], choices: int, writing: bytes
) -> None:
    kind, sent = made
    shape = Shape.CHAT if kind == "chat" else Shape.COMPLETION
    dump: Callable[[Json], bytes] = (lambda value: json.dumps(value).encode()) if spaced else orjson.dumps
    events = [*(writing.replace(b"{}", dump(each)) for each in sent), b"data: [DONE]\n\n"]
    data, blocks, at = b"".join(events), [], 0
    for cut in cuts:
        blocks.append(data[at : at + cut])
        at += cut
    blocks = [block for block in (*blocks, data[at:]) if block]
    uncut = outcome(events, shape, choices)
    assert outcome(blocks, shape, choices) == uncut
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OpenAIDecoder, "decode", StreamDecoder.decode)  # parses each event in full, ordinary or not
        assert outcome(events, shape, choices) == uncut


@settings(max_examples=examples(200), deadline=None)
@given(events, st.booleans(), st.sampled_from([60, 400, 3000]), st.sampled_from([1, 2]))
def test_a_whole_answer_is_the_same_with_its_texts_joined(
    made: tuple[str, list[Json]], spaced: bool, size: int, choices: int
) -> None:
    kind, sent = made
    shape = Shape.CHAT if kind == "chat" else Shape.COMPLETION
    dump: Callable[[Json], bytes] = (lambda value: json.dumps(value).encode()) if spaced else orjson.dumps
    data = b"".join(b"data: %b\n\n" % dump(each) for each in sent) + b"data: [DONE]\n\n"
    blocks = [data[at : at + size] for at in range(0, len(data), size)]
    assert outcome(blocks, shape, choices, joins_texts=True)[1:] == outcome(blocks, shape, choices)[1:]


@pytest.mark.parametrize(
    ("between", "joined"),
    [
        (b'{"choices":[{"index":0,"delta":{"content":"\\u00e9\\""}}]}', True),
        (b'{"choices":[{"index":0,"delta":{"content":"b"}}]}', True),
        (b'{"choices":[{"index":1,"delta":{"content":"b"}}]}', False),
        (b'{"choices":[{"index":0,"delta":{"content":"b","content":"c"}}]}', False),
        (b'{"choices":[{"index":0,"delta":{"content":"b"},"finish_reason":"stop"}]}', False),
        (b'{"choices":[{"index":0,"delta":{"content":null}}]}', False),
        (b'{"choices":[{"index":0,"delta":{"content":"b","c"}}]}', False),
    ],
)
def test_only_what_differs_in_its_text_alone_is_joined(between: bytes, joined: bool) -> None:
    plain = b'{"choices":[{"index":0,"delta":{"content":"a"}}]}'
    joiner = TextJoiner(OpenAIDecoder.one_text)
    events = [b'{"choices":[]}', plain, plain, plain, between, plain, b"[DONE]"]
    assert (len(joiner.joined(events)) == 3) is joined
    for strange in (plain.replace(b"}}", b'},"finish_reason":"stop"}'), plain.replace(b'"a"', b'"a","x":[1]')):
        assert TextJoiner(OpenAIDecoder.one_text).joined([strange] * 9) == [strange] * 9


def test_an_output_with_contradictory_usage_is_not_the_first_output() -> None:
    sent = {
        "choices": [{"index": 0, "delta": {"content": "hi"}}],
        "usage": {"prompt_tokens": -1, "completion_tokens": 1},
    }
    chunks = ChatNormaliser(id="gen-1", created=1, model="m", choices=1)
    upstream: Any = Bytes([b"data: %b\n\n" % orjson.dumps(sent)])
    reader = StreamReader(upstream, OpenAIDialect().decoder(call()), chunks, lambda _usage, _bytes: False)
    with pytest.raises(ContradictoryUsage):
        reader.advance()
    assert (reader.first_output_at, reader.text_bytes, reader.take()) == (None, 0, [])


def test_the_first_byte_budget_ends_with_the_first_event_and_not_with_a_comment() -> None:
    upstream: Any = Bytes([b": ping\n\n", b"data:\n\n", b'data: {"choices":[]}\n\n'])
    chunks = ChatNormaliser(id="gen-1", created=1, model="m", choices=1)
    reader = StreamReader(upstream, OpenAIDialect().decoder(call()), chunks, lambda _usage, _bytes: False)
    phases = []
    for _ in range(3):
        reader.advance()
        phases.append(upstream.deadlines.phase)
    assert phases == [FIRST_BYTE, FIRST_BYTE, STREAM_IDLE]
