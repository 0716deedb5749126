"""Chat completions as tests ask for them, and their answers as plain JSON."""

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
# Two words in, two words out, at the prices of tests/catalogue.py.
HELLO_COST = "0.0000036"


def question(slug: str, **fields: object) -> Json:
    """A request to the model of this slug at `sim`, or to the model of this id."""
    model = slug if "/" in slug else f"sim/test/{slug}"
    return {"model": model, "messages": HELLO, **fields}


def ask(customer: Customer, slug: str, **fields: object) -> requests.Response:
    """The raw response to a question."""
    return customer.http.post(PATH, json=question(slug, **fields))


def answer(customer: Customer, slug: str, **fields: object) -> Json:
    """The answer to a question, which must succeed."""
    reply = ask(customer, slug, **fields)
    assert reply.status_code == 200, reply.text
    body: Json = reply.json()
    return body


def received(customer: Customer, **fields: object) -> Json:
    """What reached the upstream: the model `describe` answers with it. The cap keeps the answer whole upstream."""
    content = answer(customer, "describe", **{"max_tokens": 16, **fields})["choices"][0]["message"]["content"]
    described: Json = json.loads(content)
    return described


@dataclass(frozen=True)
class Stream:
    """A stream that has ended: its JSON frames, and whether `[DONE]` came, last."""

    headers: requests.structures.CaseInsensitiveDict[str]
    frames: list[Json]
    done: bool

    @classmethod
    def of(cls, reply: requests.Response) -> Self:
        """Reads a response to its end, byte by byte as the wire has it."""
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
        """The frames that are no errors."""
        return [frame for frame in self.frames if "error" not in frame]

    @property
    def errors(self) -> list[Json]:
        return [frame["error"] for frame in self.frames if "error" in frame]

    @property
    def text(self) -> str:
        """The content of all choices, in the order of its arrival."""
        deltas = [choice["delta"] for chunk in self.chunks for choice in chunk["choices"]]
        return "".join(delta.get("content") or "" for delta in deltas)

    @property
    def id(self) -> str:
        return self.headers["X-Generation-Id"]


def stream(customer: Customer, slug: str, **fields: object) -> Stream:
    """A whole stream, which must at least begin."""
    return Stream.of(ask(customer, slug, stream=True, **fields))


def _data(event: str) -> str:
    """An event is one line of data: a client may not understand more."""
    assert event.startswith("data: {")
    assert "\n" not in event
    return event.removeprefix("data: ")
