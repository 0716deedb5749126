"""The short way of a chunk says what the long way says, of any stream cut anywhere."""

import json
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.fastpath.faults import UpstreamFault
from gateway.fastpath.http_client import Deadlines
from inference import sse
from inference.answers import Aggregate
from inference.call import Shape
from inference.chunks import ChatNormaliser, ChunkNormaliser
from inference.dialects.openai import OpenAIDialect
from inference.reader import StreamReader
from inference.sse import PlainChunks
from inference.wire_forms.completions import TextNormaliser
from tests.inference.dialects.routes import call

pytestmark = pytest.mark.sqlite_is_enough

Json = dict[str, Any]
TEXTS = ["a", "Hello", " world", "probe", '"', "\\", "é", "\n", "", "content", '"content":"a"', "\u2028", "0", "}"]
TEXTS += ["one\n\ttwo\r", "漢字", "\u0085", "\\n", "\x7f", "\x1f", "/", "\b"]


class Bytes:
    """An upstream that has sent these blocks."""

    def __init__(self, blocks: list[bytes]) -> None:
        self._blocks = iter(blocks)
        self.deadlines = Deadlines(30)

    def read(self) -> bytes:
        return next(self._blocks, b"")


def outcome(blocks: list[bytes], shape: Shape, choices: int) -> tuple[Any, ...]:
    """The frames, the whole answer, and what is billed."""
    normaliser: type[ChunkNormaliser] = ChatNormaliser if shape == Shape.CHAT else TextNormaliser
    chunks = normaliser(id="gen-1", created=1, model="m", choices=choices)
    decoder = OpenAIDialect().decoder(call(choices=choices))
    reader = StreamReader(Bytes(blocks), decoder, chunks, lambda _usage, _bytes: False)  # type: ignore[arg-type]  # all that it reads of one
    whole, frames, fault = Aggregate(shape), [], None
    while reader.ending is None and fault is None:
        try:
            reader.advance()
        except UpstreamFault as error:
            fault = error.message
        for pending in reader.take():
            if isinstance(pending, PlainChunks):
                frames.append(pending.frames)
                each = [PlainChunks(pending.around, [text]).chunk for text in pending.texts]
                assert pending.frames == b"".join(map(sse.frame, each))
                whole.add_plain(pending)
            else:
                frames.append(sse.frame(pending.chunk))
                whole.add(pending.chunk)
    counted = reader.outcome(reader.ending or "upstream_broke")  # type: ignore[arg-type]
    billed = (counted.usage, counted.text_bytes, counted.uncounted_bytes, counted.reported, counted.flags)
    return b"".join(frames), whole.answer(), billed, reader.ending, fault, reader.first_output_at is None


texts = st.sampled_from(TEXTS)
deltas = st.one_of(
    *(st.fixed_dictionaries({name: texts}) for name in ("content", "content", "content", "reasoning_content")),
    st.fixed_dictionaries({"role": st.just("assistant"), "content": texts}),
    st.fixed_dictionaries({"content": texts, "other": texts}),
    st.fixed_dictionaries({"content": st.none(), "refusal": texts}),
    st.just({"tool_calls": [{"index": 0, "id": "call_1", "function": {"name": "f", "arguments": "{"}}]}),
)
finishes = st.sampled_from([None] * 12 + ["stop", "length"])
indexes = st.sampled_from([0, 0, 0, 1])
usages = st.sampled_from([None] * 8 + [{"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}])
BESIDE: list[Json] = [*[{}] * 6, {"system_fingerprint": "fp"}, {"service_tier": "x"}, {"usage": None}]
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
events = st.one_of(
    st.tuples(st.just("chat"), stream("chat")),
    st.tuples(st.just("text"), stream("text")),
    st.tuples(st.just("chat"), runs),
)


@settings(max_examples=400, deadline=None)
@given(events, st.booleans(), st.lists(st.integers(1, 60), max_size=20), st.sampled_from([1, 2]), writings)
def test_the_short_way_and_the_long_way_are_one(
    made: tuple[str, list[Json]], spaced: bool, cuts: list[int], choices: int, writing: bytes
) -> None:
    kind, sent = made
    shape = Shape.CHAT if kind == "chat" else Shape.COMPLETION
    dump: Callable[[Json], bytes] = (lambda value: json.dumps(value).encode()) if spaced else orjson.dumps
    data = b"".join(writing.replace(b"{}", dump(each)) for each in sent) + b"data: [DONE]\n\n"
    blocks, at = [], 0
    for cut in cuts:
        blocks.append(data[at : at + cut])
        at += cut
    blocks = [block for block in (*blocks, data[at:]) if block]
    short = outcome(blocks, shape, choices)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sse, "MOST_KNOWN", 0)
        assert outcome(blocks, shape, choices) == short


def test_plain_chunks_take_the_short_way() -> None:
    sent = [{"id": "c", "choices": [{"index": 0, "delta": {"content": text}}]} for text in ("one", " two", " three")]
    blocks = [b"".join(b"data: " + orjson.dumps(each) + b"\n\n" for each in [{**sent[0]}, *sent, *sent])]
    reader = StreamReader(
        Bytes(blocks),  # type: ignore[arg-type]
        OpenAIDialect().decoder(call()),
        ChatNormaliser(id="gen-1", created=1, model="m", choices=1),
        lambda _usage, _bytes: False,
    )
    reader.advance()
    first, second, others = reader.take()
    assert not isinstance(first, PlainChunks)
    assert not isinstance(second, PlainChunks)
    assert isinstance(others, PlainChunks)
    assert others.texts == [b" two", b" three", b"one", b" two", b" three"]


def test_text_in_any_script_with_line_ends_takes_the_short_way() -> None:
    texts = ["one", "two\n", "\tthree", "四", "\u2028", "five\x7f", "six"]
    events = [orjson.dumps({"id": "c", "choices": [{"index": 0, "delta": {"content": text}}]}) for text in texts]
    reader = StreamReader(
        Bytes([b"".join(b"data: " + event + b"\n\n" for event in events)]),  # type: ignore[arg-type]
        OpenAIDialect().decoder(call()),
        ChatNormaliser(id="gen-1", created=1, model="m", choices=1),
        lambda _usage, _bytes: False,
    )
    reader.advance()
    short = [chunk.text for chunk in reader.take() if isinstance(chunk, PlainChunks)]
    assert short == ["\tthree四", "six"]
    assert reader.text_bytes == len("".join(texts).encode())


@pytest.mark.parametrize(
    "strange",
    [
        b'{"choices":[{"index":0,"delta":{"content":"a\\u0062"}}]}',
        b'{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}',
        b'{"choices":[{"index":0,"delta":{"content":"a","content":"b"}}]}',
        b'{"choices":[{"index":0,"delta":{"content":"a"}}],"usage":{"prompt_tokens":1,"completion_tokens":1}}',
        b'{"x":{"content":"a"},"choices":[{"index":0,"delta":{"content":"a"}}]}',
    ],
)
def test_what_is_not_plain_is_never_learned(strange: bytes) -> None:
    chunks = ChatNormaliser(id="gen-1", created=1, model="m", choices=1)
    chunks.normalise({"choices": [{"index": 0, "delta": {"content": "first"}}]})
    reader = StreamReader(
        Bytes([b"data: " + strange + b"\n\n"] * 3),  # type: ignore[arg-type]
        OpenAIDialect().decoder(call()),
        chunks,
        lambda _usage, _bytes: False,
    )
    for _ in range(3):
        reader.advance()
    assert not any(isinstance(pending, PlainChunks) for pending in reader.take())
