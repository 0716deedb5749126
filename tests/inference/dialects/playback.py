"""Plays a recorded stream through the parser, a dialect's decoder and the normaliser, as `inference.stream` does."""

import copy
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import orjson

from catalogue.pricing import Usage
from inference.chunks import ChatNormaliser, Normaliser
from inference.deltas import Delta, UnreadableEvent
from inference.dialects.base import Dialect, StreamDecoder
from inference.sse import SseParser
from tests.inference.dialects.routes import call

Chunk = dict[str, Any]
# Tool calls without an id from the upstream get a random one.
_OWN_IDS = re.compile(rb"call_[0-9a-f]{32}")


@dataclass
class PlaybackResult:
    """Holds the result: `raw` are the decoder's own chunks, `chunks` the normalised ones that clients get."""

    raw: list[Chunk] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)
    usage: Usage | None = None
    prompt_usage: Usage | None = None
    reached_end: bool = False
    is_complete: bool = False

    @property
    def deltas(self) -> list[Chunk]:
        return [choice["delta"] for chunk in self.chunks for choice in chunk["choices"]]

    @property
    def finish(self) -> str | None:
        return next((reason for chunk in self.chunks if (reason := chunk["choices"][0]["finish_reason"])), None)

    def text(self, name: str = "content") -> str:
        return "".join(delta.get(name) or "" for delta in self.deltas)

    def tool_calls(self) -> list[Chunk]:
        """Returns each call put together as clients do it: by index, names once, arguments concatenated."""
        calls: dict[int, Chunk] = {}
        for fragment in (fragment for delta in self.deltas for fragment in delta.get("tool_calls", ())):
            if fragment["index"] not in calls:
                function = fragment["function"]
                calls[fragment["index"]] = {"id": fragment["id"], "name": function["name"], "arguments": ""}
            calls[fragment["index"]]["arguments"] += fragment["function"]["arguments"]
        assert list(calls) == list(range(len(calls)))
        return list(calls.values())


def play(dialect: Dialect, blocks: Iterable[bytes]) -> PlaybackResult:
    """Plays until the dialect's own end, or the end of the bytes. Raises what the decoder raises."""
    parser, decoder, played = SseParser(), dialect.decoder(call()), PlaybackResult()
    chunks = ChatNormaliser(id="gen-1", created=1, model="acme/test/model/FRPAR", choices=1)
    for block in blocks:
        if _feed(parser.feed(block), decoder, chunks, played):
            break
    else:
        _feed(parser.finish(), decoder, chunks, played)
    played.chunks += [_plain(delta.chunk) for delta in chunks.finishes()]
    played.is_complete = chunks.is_complete
    return played


def _feed(events: Iterable[bytes], decoder: StreamDecoder, chunks: ChatNormaliser, played: PlaybackResult) -> bool:
    for data in events:
        said = decoder.decode([data])
        played.raw += [copy.deepcopy(delta.chunk) for delta in said if isinstance(delta, Delta)]
        sent: list[Delta] = []
        for each in said:
            if isinstance(each, UnreadableEvent):
                raise each.error
            chunks.take([each], sent)
        played.chunks += [_plain(delta.chunk) for delta in sent]
        for reported, _ in chunks.reported:
            usage, prompt_usage = decoder.counted(reported)
            played.usage = usage or played.usage
            played.prompt_usage = prompt_usage or played.prompt_usage
        chunks.reported.clear()
        if chunks.has_ended:
            played.reached_end = True
            return True
    return False


def _plain(normalised: Chunk) -> Chunk:
    chunk: Chunk = orjson.loads(_OWN_IDS.sub(b"call_own", orjson.dumps(normalised)))
    return chunk


def taken(decoder: StreamDecoder, normaliser: Normaliser, *payloads: dict[str, Any] | bytes) -> list[Delta]:
    """Returns what these events give the framing. Raises whatever ends the stream."""
    sent: list[Delta] = []
    events = [payload if isinstance(payload, bytes) else orjson.dumps(payload) for payload in payloads]
    normaliser.take(decoder.decode(events), sent)
    return sent


def events(*payloads: dict[str, Any]) -> list[bytes]:
    """Returns a test's own events, each as one block."""
    return [b"data: " + orjson.dumps(payload) + b"\n\n" for payload in payloads]
