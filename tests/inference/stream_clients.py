"""Runs clients that keep what they receive of a stream, however it ends."""

import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import requests

from inference.estimator import tokens_in
from tests.chat import PATH, question
from tests.servers.customer import Customer

Json = dict[str, Any]
BROKEN = (requests.RequestException, OSError)


@dataclass(frozen=True)
class PartialStream:
    """Holds what a client has received of one stream."""

    id: str
    frames: list[Json]
    done: bool

    @property
    def text(self) -> str:
        deltas = [choice["delta"] for frame in self.frames for choice in frame.get("choices", [])]
        return "".join(delta.get("content") or "" for delta in deltas)

    @property
    def codes(self) -> list[str]:
        """Returns the codes of its errors."""
        return [frame["error"]["code"] for frame in self.frames if "error" in frame]

    @property
    def messages(self) -> list[str]:
        """Returns the messages of its errors."""
        return [frame["error"]["message"] for frame in self.frames if "error" in frame]

    @property
    def usage(self) -> Json | None:
        return next((frame["usage"] for frame in self.frames if frame.get("usage")), None)

    @property
    def most_tokens(self) -> int:
        """Returns the most tokens that an estimate may bill for it."""
        return tokens_in(len(self.text.encode()))


class StreamClients:
    """Reads several streams at the same time."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool

    def open(self, customer: Customer, *slugs: str) -> list["Future[PartialStream]"]:
        """Begins streams of these models; returns when each has its first bytes."""
        begun = [begin(customer, slug) for slug in slugs]
        return [self._pool.submit(read_to_end, reply, blocks, first) for reply, blocks, first in begun]


@contextmanager
def stream_clients(most: int = 16) -> Iterator[StreamClients]:
    with ThreadPoolExecutor(max_workers=most) as pool:
        yield StreamClients(pool)


def begin(customer: Customer, slug: str) -> tuple[requests.Response, Iterator[bytes], bytes]:
    """Begins a stream and returns it with its first bytes."""
    reply = requests.post(
        customer.gateway.origin + PATH,
        json=question(slug, stream=True),
        headers={"Authorization": f"Bearer {customer.key}"},
        stream=True,
        timeout=60,
    )
    assert reply.status_code == 200, reply.text
    blocks = reply.iter_content(chunk_size=None)
    return reply, blocks, next(blocks)


def read_to_end(reply: requests.Response, blocks: Iterator[bytes], received: bytes) -> PartialStream:
    """Reads to the end, good or bad."""
    try:
        with reply:
            for block in blocks:
                received += block
    except BROKEN:
        pass
    return partial_stream(reply.headers["X-Generation-Id"], received)


def partial_stream(id_: str, received: bytes) -> PartialStream:
    """Parses the whole events; the incomplete rest of a cut stream is left out."""
    events = [event.removeprefix("data: ") for event in received.decode(errors="ignore").split("\n\n")[:-1]]
    frames = [json.loads(event) for event in events if event.startswith("{")]
    return PartialStream(id_, frames, done="[DONE]" in events)
