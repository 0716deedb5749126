"""Plays a recorded stream through the parser, a dialect's decoder and the normaliser, as `inference.stream` does."""

import copy
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import orjson

from catalogue.pricing import Usage
from inference.chunks import ChatNormaliser
from inference.dialects.base import Dialect, Event, StreamDecoder
from inference.reader import SseParser
from tests.inference.dialects.routes import call

Chunk = dict[str, Any]
# The ids of tool calls that an upstream gave none are random.
_OWN_IDS = re.compile(rb"call_[0-9a-f]{32}")


@dataclass
class Played:
    """What came out. `raw` are the decoder's own chunks, `chunks` the normalised ones that clients get."""

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
        """Each call put together as clients do it: by index, names once, arguments concatenated."""
        calls: dict[int, Chunk] = {}
        for fragment in (fragment for delta in self.deltas for fragment in delta.get("tool_calls", ())):
            if fragment["index"] not in calls:
                function = fragment["function"]
                calls[fragment["index"]] = {"id": fragment["id"], "name": function["name"], "arguments": ""}
            calls[fragment["index"]]["arguments"] += fragment["function"]["arguments"]
        assert list(calls) == list(range(len(calls)))
        return list(calls.values())


def play(dialect: Dialect, blocks: Iterable[bytes]) -> Played:
    """Plays until the dialect's own end, or the end of the bytes. Raises what the decoder raises."""
    parser, decoder, played = SseParser(), dialect.decoder(call()), Played()
    chunks = ChatNormaliser(id="gen-1", created=1, model="acme/test/model/FRPAR", choices=1)
    for block in blocks:
        if _feed(parser.feed(block), decoder, chunks, played):
            break
    else:
        _feed(parser.finish(), decoder, chunks, played)
    played.chunks += [_plain(finish) for finish in chunks.finishes()]
    played.is_complete = chunks.is_complete
    return played


def _feed(events: Iterable[bytes], decoder: StreamDecoder, chunks: ChatNormaliser, played: Played) -> bool:
    for data in events:
        event = event_of(decoder.decode(data))
        if event.is_last:
            played.reached_end = True
            return True
        usage, prompt_usage = decoder.counted(event.reported)
        played.usage = usage or played.usage
        played.prompt_usage = prompt_usage or played.prompt_usage
        if event.chunk is None:
            continue
        played.raw.append(copy.deepcopy(event.chunk))
        normalised = chunks.normalise(event.chunk)
        if normalised is not None:
            played.chunks.append(_plain(normalised))
    return False


def _plain(normalised: Chunk) -> Chunk:
    chunk: Chunk = orjson.loads(_OWN_IDS.sub(b"call_own", orjson.dumps(normalised)))
    return chunk


def event_of(said: Chunk | Event | None) -> Event:
    """What a decoder has said, as an event that has the usage of its chunk."""
    event = said if isinstance(said, Event) else Event(said)
    if event.reported is None and event.chunk is not None and "choices" in event.chunk:
        event.reported = event.chunk.pop("usage", None)
    return event


def events(*payloads: dict[str, Any]) -> list[bytes]:
    """Events of a test's own making, as one block each."""
    return [b"data: " + orjson.dumps(payload) + b"\n\n" for payload in payloads]
