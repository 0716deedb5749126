"""Sends chat completions and returns their answers as plain JSON."""

import json
from dataclasses import dataclass
from typing import Any, Self

import requests

from tests import described
from tests.servers.customer import Customer

Json = dict[str, Any]

PATH = "/v1/chat/completions"
HELLO: list[Json] = [{"role": "user", "content": "hello there"}]
DONE = "data: [DONE]"
# This is the cost of two words in and two words out, at the prices of tests/catalogue.py.
HELLO_COST = "0.0000036"


def question(slug: str, **fields: object) -> Json:
    """Builds a request to the model with this slug at `sim`, or with this id."""
    model = slug if "/" in slug else f"sim/test/{slug}"
    return {"model": model, "messages": HELLO, **fields}


def ask(customer: Customer, slug: str, **fields: object) -> requests.Response:
    """Sends a question and returns the raw response."""
    return customer.http.post(PATH, json=question(slug, **fields))


def answer(customer: Customer, slug: str, **fields: object) -> Json:
    """Sends a question, which must succeed, and returns the answer."""
    reply = ask(customer, slug, **fields)
    assert reply.status_code == 200, reply.text
    body: Json = reply.json()
    return body


def received(customer: Customer, **fields: object) -> Json:
    """Returns the request that reached the upstream, which the model `describe` answers with.

    The cap is low enough for the upstream's answer not to be streamed.
    """
    content = answer(customer, "describe", **{"max_tokens": 16, **fields})["choices"][0]["message"]["content"]
    described: Json = json.loads(content)
    return described


@dataclass(frozen=True)
class Stream:
    """Holds a stream that has ended: its JSON frames, and whether it ended with `[DONE]`."""

    headers: requests.structures.CaseInsensitiveDict[str]
    frames: list[Json]
    done: bool

    @classmethod
    def of(cls, reply: requests.Response) -> Self:
        """Reads a response to its end, byte by byte as it was sent."""
        assert reply.status_code == 200, reply.text
        assert reply.headers["Content-Type"] == "text/event-stream"
        *events, rest = reply.content.decode().split("\n\n")
        assert rest == ""
        done = events[-1] == DONE
        frames = [json.loads(_data(event)) for event in (events[:-1] if done else events)]
        if reply.request.path_url == PATH:
            described.events_conform(frames, "ChatCompletionChunk")
        return cls(reply.headers, frames, done)

    @property
    def chunks(self) -> list[Json]:
        """Returns the frames that are not errors."""
        return [frame for frame in self.frames if "error" not in frame]

    @property
    def errors(self) -> list[Json]:
        return [frame["error"] for frame in self.frames if "error" in frame]

    @property
    def text(self) -> str:
        """Returns the content of all choices, in order of arrival."""
        deltas = [choice["delta"] for chunk in self.chunks for choice in chunk["choices"]]
        return "".join(delta.get("content") or "" for delta in deltas)

    @property
    def id(self) -> str:
        return self.headers["X-Generation-Id"]


def stream(customer: Customer, slug: str, **fields: object) -> Stream:
    """Reads a whole stream, which must at least begin."""
    return Stream.of(ask(customer, slug, stream=True, **fields))


def _data(event: str) -> str:
    """Returns the event's data, which must be a single line: some clients understand no more."""
    assert event.startswith("data: {")
    assert "\n" not in event
    return event.removeprefix("data: ")
