"""Reads a stream of the Messages API, and checks what every client relies on."""

import json
from dataclasses import dataclass
from typing import Any, Self

import requests

from tests import described
from tests.servers.customer import Customer

Json = dict[str, Any]

PATH = "/v1/messages"
HELLO: list[Json] = [{"role": "user", "content": "hello there"}]
WEATHER: Json = {"name": "weather", "description": "Of a place.", "input_schema": {"type": "object", "properties": {}}}
CLOCK: Json = {"name": "clock", "input_schema": {"type": "object", "properties": {}}}


def ask(customer: Customer, model: str, headers: dict[str, str] | None = None, **fields: Any) -> requests.Response:
    """Sends a hello and returns the raw response."""
    body = {"model": model, "max_tokens": 64, "messages": HELLO, **fields}
    return customer.http.post(f"{PATH}?beta=true", json=body, headers=headers)


@dataclass(frozen=True)
class Events:
    """Holds the events of a stream that has ended."""

    headers: requests.structures.CaseInsensitiveDict[str]
    all: list[Json]

    @classmethod
    def of(cls, reply: requests.Response) -> Self:
        """Reads a stream and checks that it has one message, blocks one after the other, and one stop or error last."""
        assert reply.status_code == 200, reply.text
        assert reply.headers["Content-Type"] == "text/event-stream"
        return cls.read([reply.content], reply.headers)

    @classmethod
    def read(cls, frames: list[bytes], headers: requests.structures.CaseInsensitiveDict[str] | None = None) -> Self:
        """Reads frames and checks them like a stream."""
        *pieces, rest = b"".join(frames).decode().split("\n\n")
        assert rest == ""
        events = [_event(piece) for piece in pieces]
        assert [event["type"] for event in events].count("message_start") == 1
        assert events[0]["type"] == "message_start"
        assert events[0]["message"]["usage"]["input_tokens"] > 0
        described.events_conform(events, "MessageEvent")
        _require_blocks_in_order(events)
        assert events[-1]["type"] in ("message_stop", "error")
        return cls(headers or requests.structures.CaseInsensitiveDict(), events)

    def named(self, kind: str) -> list[Json]:
        return [event for event in self.all if event["type"] == kind]

    @property
    def text(self) -> str:
        return "".join(event["delta"].get("text", "") for event in self.named("content_block_delta"))

    @property
    def last(self) -> Json:
        """Returns the event with the usage and the metadata, or the error."""
        (last,) = self.named("message_delta") or self.named("error")
        return last


def stream(customer: Customer, model: str, **fields: Any) -> Events:
    return Events.of(ask(customer, model, stream=True, **fields))


def _event(piece: str) -> Json:
    name, data = piece.split("\n")
    event: Json = json.loads(data.removeprefix("data: "))
    assert name == f"event: {event['type']}"
    return event


def _require_blocks_in_order(events: list[Json]) -> None:
    """Checks that one block is open at a time, and that indices ascend."""
    is_open, index = False, -1
    for event in events:
        match event["type"]:
            case "content_block_start":
                assert (is_open, event["index"]) == (False, index + 1)
                is_open, index = True, index + 1
            case "content_block_delta":
                assert (is_open, event["index"]) == (True, index)
            case "content_block_stop":
                assert (is_open, event["index"]) == (True, index)
                is_open = False
    assert not is_open or events[-1]["type"] == "error"
