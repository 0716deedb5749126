"""Reads the events of a Responses stream, and checks what applies to all of them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import orjson
import requests

from tests import described

Json = dict[str, Any]
DONE = "data: [DONE]"
ENDINGS = ("response.completed", "response.incomplete", "response.failed")


@dataclass(frozen=True)
class Events:
    """Holds the events of one stream, without `[DONE]`."""

    all: list[Json]

    @classmethod
    def of(cls, reply: requests.Response) -> Self:
        """Reads a response to its end."""
        assert reply.status_code == 200, reply.text
        assert reply.headers["Content-Type"] == "text/event-stream"
        stream = cls.read([reply.content])
        described.events_conform(stream.all, "ResponseEvent")
        return stream

    @classmethod
    def read(cls, frames: Iterable[bytes]) -> Self:
        """Parses and checks the frames.

        Each event has its data's type as its name, their numbers have no gap, there is one ending as the last event,
        every opened item is closed and in the final response, and `[DONE]` follows.
        """
        *events, done, rest = b"".join(frames).decode().split("\n\n")
        assert (done, rest) == (DONE, "")
        received = []
        for event in events:
            name, data = event.split("\n")
            received.append(orjson.loads(data.removeprefix("data: ")))
            assert name == f"event: {received[-1]['type']}"
        assert [event["sequence_number"] for event in received] == list(range(len(received)))
        assert [event["type"] for event in received][:2] == ["response.created", "response.in_progress"]
        assert [event["type"] in ENDINGS for event in received] == [False] * (len(received) - 1) + [True]
        stream = cls(received)
        opened = [event["output_index"] for event in stream.named("response.output_item.added")]
        closed = [event["output_index"] for event in stream.named("response.output_item.done")]
        assert sorted(closed) == opened == list(range(len(opened)))
        items = {event["output_index"]: event["item"] for event in stream.named("response.output_item.done")}
        assert stream.final["output"] == [items[index] for index in sorted(items)]
        return stream

    def named(self, *names: str) -> list[Json]:
        return [event for event in self.all if event["type"] in names]

    @property
    def types(self) -> list[str]:
        """Returns the types in order; adjacent repeats are listed once."""
        types = [event["type"].removeprefix("response.") for event in self.all]
        return [name for before, name in zip([None, *types], types, strict=False) if name != before]

    @property
    def final(self) -> Json:
        """Returns the response in the last event."""
        response: Json = self.all[-1]["response"]
        return response

    @property
    def text(self) -> str:
        """Returns the message's text, put together from its deltas."""
        return "".join(event["delta"] for event in self.named("response.output_text.delta"))
