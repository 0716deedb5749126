"""One call that the simulator answers, and the events that an answer is streamed in."""

from dataclasses import dataclass
from enum import Enum, auto
from hashlib import sha1
from typing import Any

import orjson

from inference.simulator.behaviour import Behaviour
from inference.simulator.http import Request

Json = dict[str, Any]


class RefusedError(Exception):
    """The request is one that a real provider would answer with a 400."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.message, self.param = message, param


class Kind(Enum):
    """What an event is to the faults: they count outputs and look for the finish."""

    STRUCTURE = auto()
    OUTPUT = auto()
    FINISH = auto()
    USAGE = auto()
    DONE = auto()


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a stream: its data, or the literal text of one, and its name where the dialect names events."""

    kind: Kind
    data: Json | str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A request with what was understood of it. `identity` follows from the body: the same call, the same id."""

    request: Request
    body: Json
    model: str
    behaviour: Behaviour
    created: int

    @property
    def streams(self) -> bool:
        """Whether the caller wants events rather than one body."""
        return self.body.get("stream") is True

    @property
    def identity(self) -> str:
        """Twenty-four hex digits, the same for the same body."""
        return sha1(self.request.body, usedforsecurity=False).hexdigest()[:24]

    @property
    def received(self) -> Json:
        """All that reached the simulator, for `describe`."""
        request = self.request
        return {
            "method": request.method,
            "path": request.path,
            "query": request.query,
            "headers": request.headers,
            "body": self.body,
        }

    def described(self) -> bytes:
        """`received` as JSON, made only where it is asked for."""
        return orjson.dumps(self.received) if self.behaviour.describe else b"{}"
