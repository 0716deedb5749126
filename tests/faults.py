"""Draws faults of the simulated provider for the fuzzer, and runs an upstream that commits and spoils them."""

import contextlib
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hypothesis import strategies as st

from simulator.behaviour import (
    BAD_USAGES,
    CACHE_HITS,
    ERRORS,
    INDEXES,
    SIGNERS,
    SURROGATES,
    TOOL_NAMES,
    TROUBLES,
    USAGE_SHAPES,
    WORDS,
)
from tests.servers.listener import Listener, read_request

Json = dict[str, Any]
PATIENCE_SECONDS = 20

# These words make an answer that does not end, or not soon: each case would use up the gateway's whole patience.
ENDLESS = {"stall", "hold", "endless", "slow-first-byte", "pause-after-role"}
# These words send bytes on a kept-alive connection, which this upstream does not support.
KEPT = {"surplus"}
POINTS = ("0", "1", "2", "5", "finish")
# Lists the arguments of each word that takes some.
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "pings": ("2:0",),
    "chunks": ("0:0", "3:0", "60:0"),
    "late-usage": ("0.001",),
    "drop": POINTS,
    "malformed": POINTS,
    "error-frame": POINTS,
    "unreadable": (*POINTS, "1:2", "2:3"),
    "status": ("400", "401", "404", "422", "429", "500", "503", "529"),
    "html": ("200", "502"),
    "context": ("1",),
    "trouble": tuple(TROUBLES),
    "error-in": tuple(f"{shape}{status}" for shape in ERRORS for status in ("", ":200")),
    "rejects": ("stream", "tools"),
    "bad-usage": BAD_USAGES,
    "usage-shape": (*sorted(CACHE_HITS), *USAGE_SHAPES),
    "usage-in": ("x_groq", "choice", "error"),
    "more-choices": ("1", "2"),
    "cached": ("20",),
    "cache-write": ("20", "20:10"),
    "energy": ("36", "99999999"),
    "impact": ("36000",),
    "reasoning": ("reasoning_content", "reasoning", "reasoning_text"),
    "signs": SIGNERS,
    "finish": ("stop", "tool_calls", "length", "MAX_TOKENS", "SAFETY", "error", "refusal", "end_turn"),
    "stop-in": ("matched_stop", "stop_reason"),
    "index": INDEXES,
    "tool-name": TOOL_NAMES,
    "surrogates": tuple(SURROGATES),
    "lists": ("1", "3"),
    "blank-data": ("1", "3"),
    "split": ("1", "7", "100000"),
}
DRAWN = [
    f"{word}:{argument}" if argument else word
    for word in sorted(WORDS.keys() - ENDLESS - KEPT)
    for argument in ARGUMENTS.get(word, ("",))
]
# Some faults show only together with these: a tool call, reasoning.
COMPANIONS = st.sampled_from(["", "tools", "reasoning", "tools+reasoning"])
faults = st.tuples(COMPANIONS, st.lists(st.sampled_from(DRAWN), min_size=1, max_size=3, unique=True)).map(
    lambda drawn: "+".join(filter(None, (drawn[0], *drawn[1])))
)


class Edit(NamedTuple):
    """Replaces `length` bytes of an answer by `put`; `at` is where, from 0 (its beginning) to 1 (its end)."""

    at: float
    length: int
    put: bytes


@dataclass
class FaultyUpstream:
    """Answers as the simulator does for a model of these `words`, after the `edits` one by one, cut off at `end`."""

    simulator_port: int
    words: str = "echo"
    edits: list[Edit] = field(default_factory=list)
    end: float = 1.0

    def __post_init__(self) -> None:
        self._listener = Listener(self._answer)
        self.port = self._listener.port

    def close(self) -> None:
        self._listener.close()

    def _answer(self, talk: socket.socket) -> None:
        request = read_request(talk)
        content = json.dumps({**request.body, "model": self.words}).encode()
        lines = [
            "Host: simulator",
            "Connection: close",
            f"Content-Length: {len(content)}",
            f"anthropic-beta: {request.headers.get('anthropic-beta', '')}",
        ]
        head = request.first_line + "\r\n".join([*lines, "", ""]).encode()
        talk.sendall(self._spoilt(self._asked(head + content)))

    def _asked(self, request: bytes) -> bytes:
        """Returns all that the simulator answers until it closes or resets the connection."""
        received = b""
        with socket.create_connection(("127.0.0.1", self.simulator_port), timeout=PATIENCE_SECONDS) as simulator:
            simulator.sendall(request)
            with contextlib.suppress(ConnectionResetError):
                while block := simulator.recv(65536):
                    received += block
        return received

    def _spoilt(self, content: bytes) -> bytes:
        for at, length, put in self.edits:
            position = int(at * len(content))
            content = content[:position] + put + content[position + length :]
        return content[: round(self.end * len(content))]


@contextlib.contextmanager
def faulty_upstream(simulator_port: int) -> Iterator[FaultyUpstream]:
    with contextlib.closing(FaultyUpstream(simulator_port)) as upstream:
        yield upstream
