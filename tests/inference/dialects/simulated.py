"""Makes the simulator's answers in the process, as bytes without the head of HTTP."""

from typing import Any

import orjson

from simulator.behaviour import parse
from simulator.call import Call
from simulator.delivery import SimulatedEndpoint, deliver
from simulator.http import Connection, Reply, Request

CREATED = 1_795_264_114
TEXT = "Où est l’été ? 🌞"  # noqa: RUF001  # of two, three and four bytes


class _Caller(Connection):
    """Keeps what is sent to a caller that sends nothing and waits for nothing."""

    def __init__(self) -> None:
        self.received = b""

    def send(self, data: bytes) -> None:
        self.received += data

    def listen(self, seconds: float) -> None:
        """Returns at once, so that no pause takes time."""


def answered(endpoint: SimulatedEndpoint, model: str, text: str = TEXT, **fields: Any) -> bytes:
    """Returns the body of the endpoint's answer to a text by the model, whose name asks for a behaviour."""
    body = {"model": model, "max_tokens": 64, "messages": [{"role": "user", "content": text}], **fields}
    request = Request("POST", body=orjson.dumps(body), version="1.0", keeps_alive=False)
    caller = _Caller()
    deliver(Call(request, body, model, parse(model), CREATED), endpoint, Reply(caller, request))
    return caller.received.partition(b"\r\n\r\n")[2]
