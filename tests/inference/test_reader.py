"""Server-sent events are read at any segmentation and in any legal writing, down to the chunks that clients get."""

import json
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalogue.pricing import ContradictoryUsage
from gateway.fastpath.faults import UpstreamFault
from inference.dialects import DIALECTS
from inference.sse import SseParser
from tests.examples import examples
from tests.inference.dialects import recorded_anthropic, recorded_openai
from tests.inference.dialects.playback import PlaybackResult, play
from tests.inference.test_nonsense import drawing

__all__ = ["drawing"]

DRAWN = 25  # for each recording

# Maps a name to a recorded stream of either dialect.
STREAMS: dict[str, tuple[str, bytes]] = {
    f"{dialect}-{name.removesuffix('_STREAM').lower()}": (dialect, recording)
    for dialect, module in (("openai", recorded_openai), ("anthropic", recorded_anthropic))
    for name, recording in vars(module).items()
    if name.endswith("STREAM")
}
every_stream = pytest.mark.parametrize("name", STREAMS)
BOM = b"\xef\xbb\xbf"
MEANINGLESS = [b":", b": ping", b"id: 7", b"event: x", b"retry: 10", b"unknown: y", b"id"]


def parsed(blocks: list[bytes]) -> list[bytes]:
    """Returns the data of all events."""
    parser = SseParser()
    return [*(data for block in blocks for data in parser.feed(block)), *parser.finish()]


def outcome(name: str, blocks: list[bytes]) -> PlaybackResult | tuple[type[Exception], str]:
    """Returns the result of a stream, or how it failed."""
    dialect, _ = STREAMS[name]
    try:
        return play(DIALECTS[dialect], blocks)
    except (UpstreamFault, ContradictoryUsage) as error:
        return type(error), str(error)


def events_of(recording: bytes) -> list[bytes]:
    return parsed([recording])


# --- The cuts do not matter


@every_stream
def test_a_recording_cut_at_any_byte_is_the_same(name: str) -> None:
    _, whole = STREAMS[name]
    expected = parsed([whole])
    for at in range(1, len(whole)):
        assert parsed([whole[:at], whole[at:]]) == expected
    assert parsed([whole[at : at + 1] for at in range(len(whole))]) == expected


@every_stream
def test_a_recording_cut_anywhere_says_the_same_to_clients(name: str, drawing: Random) -> None:
    _, whole = STREAMS[name]
    expected = outcome(name, [whole])
    for _ in range(DRAWN):
        pieces = cut(whole, drawing)
        assert outcome(name, pieces) == expected, pieces


def cut(whole: bytes, drawing: Random) -> list[bytes]:
    """Cuts the bytes into pieces, some of them empty."""
    cuts = sorted(drawing.choices(range(len(whole) + 1), k=drawing.randint(0, 30)))
    return [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]


# --- The writing does not matter


def written(events: list[bytes], drawing: Random) -> bytes:
    """Writes the events in a way that the standard allows: line ends, comments, spaces, fields, lines of data."""
    end = drawing.choice([b"\n", b"\r\n", b"\r"])
    lines: list[bytes] = []
    for event in events:
        lines += drawing.choices(MEANINGLESS, k=drawing.randint(0, 2))
        colon = drawing.choice([b"data:", b"data: "])
        pieces = event.split(b"\n")
        if event.startswith(b"{") and drawing.choice([True, False]):
            pieces = json.dumps(json.loads(event), indent=1).encode().split(b"\n")
        lines += [colon + piece for piece in pieces]
        lines += [b""] * drawing.randint(1, 3)
    return drawing.choice([b"", BOM]) + end.join([*lines, b""])


@every_stream
def test_a_recording_in_another_writing_says_the_same_to_clients(name: str, drawing: Random) -> None:
    _, whole = STREAMS[name]
    events, expected = events_of(whole), outcome(name, [whole])
    for _ in range(DRAWN):
        pieces = cut(written(events, drawing), drawing)
        assert outcome(name, pieces) == expected, pieces


@settings(max_examples=examples(200), deadline=None)
@given(data=st.data())
def test_data_of_any_bytes_arrives_as_it_was(data: st.DataObject) -> None:
    line = st.binary(max_size=20).filter(
        lambda piece: not {b"\n", b"\r"} & {piece[at : at + 1] for at in range(len(piece))}
    )
    events = data.draw(
        st.lists(line.filter(lambda piece: piece.strip() and not piece.startswith(b" ")), min_size=1, max_size=5)
    )
    end = data.draw(st.sampled_from([b"\n", b"\r\n", b"\r"]))
    text = b"".join(b"data:" + event + end * 2 for event in events)
    assert parsed(cut(text, data.draw(st.randoms(use_true_random=True)))) == events


@pytest.mark.parametrize(
    ("text", "events"),
    [
        (b"data: a\n\n", [b"a"]),
        (b"data: a", [b"a"]),  # upstreams omit the last blank line
        (b"data: a\n", [b"a"]),
        (b"data: a\r", [b"a"]),
        (BOM + b"data: a", [b"a"]),
        (BOM + b"data: a\n\n", [b"a"]),
        (b"data:a\n\ndata:  b\n\n", [b"a", b" b"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"data\ndata\n\n", []),
        (b"data:\n\n", []),
        (b"data: \n\n", []),
        (b"data:   \n\n", []),
        (b"data: a\n\ndata: \n\ndata: \n\ndata: b\n\n", [b"a", b"b"]),
        (b"event: ping\ndata:\n\nevent: x\ndata: a\n\n", [b"a"]),
        (b"event: ping\ndata: \n\nevent: ping\ndata: \n\n", []),
        (b"\n\n: nothing\n\nevent: x\n\nid: 1\n\n", []),
        (b"data: a\r\n\r\ndata: b\r\rdata: c\n\n", [b"a", b"b", b"c"]),
        (b"database: a\n\n", []),
        (b" data: a\n\n", []),
        ("data: é\u2028\u0085\x0b\x0c\n\n".encode(), ["é\u2028\u0085\x0b\x0c".encode()]),
        (b"", []),
    ],
    ids=str,
)
def test_what_is_an_event(text: bytes, events: list[bytes]) -> None:
    assert parsed([text]) == events
    assert parsed([text[at : at + 1] for at in range(len(text))]) == events


def test_a_long_line_in_many_pieces_is_read_in_linear_time() -> None:
    """Sixteen megabytes come in a thousand pieces: joining them again each time would copy eight gigabytes."""
    piece = b"x" * 16_384
    (event,) = parsed([b"data: ", *[piece] * 1024, b"\n\n"])
    assert len(event) == 16 * 1024 * 1024
