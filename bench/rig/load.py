"""Runs the client: a separate process that sends prepared requests on raw keep-alive sockets and times the answers.

`python -m bench.rig.load` reads a Job as one JSON line, connects and warms up, prints a line, waits for one, sends the
requests and prints a Result. Streams are then held open until its input ends. It parses almost nothing, so it costs a
tenth of what it measures.
"""

import json
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Self

import gevent
import gevent.socket
from gevent.pool import Pool

TIMEOUT_SECONDS = 60.0
OPENING = 200  # at once: on a busy machine a thousand would wait too long for a database connection
_HEAD_END = b"\r\n\r\n"
_LAST_CHUNK = b"0\r\n\r\n"
REFUSED = b"HTTP/1.1 503 "
_WORDS = b'"content":" '  # in a frame with more than a role


@dataclass(frozen=True, slots=True)
class Job:
    """Describes the load: `count` requests over `connections`, each with one of the `keys`.

    `hold` keeps streams open.
    """

    port: int
    body: str
    keys: list[str]
    connections: int
    count: int
    warm_up: int = 0
    hold: bool = False
    path: str = "/v1/chat/completions"
    status: int = 200
    frames: bool = False  # of streams are timed one by one
    rate: float = 0.0  # requests begun per second, answered or not; then 503 is not an error


@dataclass(frozen=True, slots=True)
class Result:
    """Holds the outcome: `events` of streams, latencies of whole answers in milliseconds."""

    seconds: float
    events: int
    p50_ms: float
    p99_ms: float
    refused: int = 0
    refused_p50_ms: float = 0.0
    refused_p99_ms: float = 0.0
    frames: int = 0  # with words
    first_p50_ms: float = 0.0
    gap_p50_ms: float = 0.0
    gap_p99_ms: float = 0.0
    worst_gap_ms: float = 0.0


class UnexpectedAnswer(Exception):
    """Reports an unexpected status or a cut answer, which would make all measurements meaningless."""


def percentile(values: list[float], share: float) -> float:
    """Returns the smallest value that at least this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


_ENDS = (b"data: [DONE]", b"event: message_stop")


class Connection:
    """Holds one keep-alive connection with its request."""

    def __init__(self, job: Job, key: str) -> None:
        self._request = _request(job, key)
        self._times_frames = job.frames
        self._statuses = (f"HTTP/1.1 {job.status} ".encode(), *([REFUSED] if job.rate else []))
        address = ("127.0.0.1", job.port)
        self._socket = gevent.socket.create_connection(address, timeout=TIMEOUT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.forget()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def forget(self) -> None:
        """Starts the counts anew."""
        self.latencies: list[float] = []
        self.refusals: list[float] = []
        self.events = self.frames = 0
        self.firsts: list[float] = []
        self.gaps: list[float] = []
        self._moments: list[float] = []

    def work(self, numbers: Iterator[int]) -> None:
        """Sends one request after the other until there are no more."""
        for _ in numbers:
            start = time.perf_counter()
            self._socket.sendall(self._request)
            self._moments.clear()
            body = self._read_answer()
            self.events += body.count(b"data: ")
            self.latencies.append((time.perf_counter() - start) * 1000)
            if self._times_frames:
                self.frames += body.count(_WORDS)
                self.firsts.append((self._moments[0] - start) * 1000)
                self.gaps += [(later - earlier) * 1000 for earlier, later in pairwise(self._moments)]

    def work_at(self, moments: Iterator[float]) -> None:
        """Sends a request at each of these times (of the performance counter), or later if an answer takes long."""
        for moment in moments:
            gevent.sleep(max(0.0, moment - time.perf_counter()))
            start = time.perf_counter()
            self._socket.sendall(self._request)
            self._read_answer()
            latencies = self.refusals if self._was_refused else self.latencies
            latencies.append((time.perf_counter() - start) * 1000)

    def open_stream(self) -> None:
        """Sends one request and waits for its first event."""
        self._socket.sendall(self._request)
        data = b""
        while b"data: " not in data:
            data += self._receive()
        self._check(data)

    def _read_answer(self) -> bytes:
        data = self._receive()
        while _HEAD_END not in data:
            data += self._receive()
        self._check(data)
        head, _, body = data.partition(_HEAD_END)
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        while len(body) < int(length) if length else not body.endswith(_LAST_CHUNK):
            body += self._receive()
        if not length and not any(end in body for end in _ENDS):
            raise UnexpectedAnswer(body[-300:].decode(errors="replace"))
        return body

    def _check(self, data: bytes) -> None:
        self._was_refused = data.startswith(REFUSED)
        if not data.startswith(self._statuses):
            raise UnexpectedAnswer(data[:600].decode(errors="replace"))

    def _receive(self) -> bytes:
        block: bytes = self._socket.recv(256 * 1024)
        if not block:
            raise UnexpectedAnswer("the connection was closed")
        if self._times_frames and _WORDS in block:
            self._moments.append(time.perf_counter())
        return block


def main() -> None:
    """Reads the job, waits for its start, and prints the result."""
    job = Job(**json.loads(sys.stdin.readline()))
    connections = [Connection(job, job.keys[n % len(job.keys)]) for n in range(job.connections)]
    _send(connections, job.warm_up)
    for connection in connections:
        connection.forget()
    print("ready", flush=True)
    sys.stdin.readline()
    start = time.perf_counter()
    if job.hold:
        _all([connection.open_stream for connection in connections], at_once=OPENING)
    elif job.rate:
        moments = iter([start + number / job.rate for number in range(job.count)])
        _all([partial(connection.work_at, moments) for connection in connections])
    else:
        _send(connections, job.count)
    seconds = time.perf_counter() - start
    latencies = [latency for connection in connections for latency in connection.latencies]
    events = sum(connection.events for connection in connections)
    refusals = [latency for connection in connections for latency in connection.refusals]
    figures = [percentile(values or [0.0], share) for values in (latencies, refusals) for share in (0.5, 0.99)]
    result = Result(seconds, events, figures[0], figures[1], len(refusals), figures[2], figures[3])
    if job.frames:
        gaps = [gap for connection in connections for gap in connection.gaps]
        result = replace(
            result,
            frames=sum(connection.frames for connection in connections),
            first_p50_ms=percentile([first for connection in connections for first in connection.firsts], 0.5),
            gap_p50_ms=percentile(gaps, 0.5),
            gap_p99_ms=percentile(gaps, 0.99),
            worst_gap_ms=max(gaps),
        )
    print(json.dumps(asdict(result)), flush=True)
    sys.stdin.read()


def _send(connections: list[Connection], count: int) -> None:
    numbers = iter(range(count))
    _all([partial(connection.work, numbers) for connection in connections])


def _all(calls: Sequence[Callable[[], None]], *, at_once: int | None = None) -> None:
    pool = Pool(at_once)
    for call in calls:
        pool.spawn(call)
    pool.join(timeout=TIMEOUT_SECONDS * 2, raise_error=True)
    if len(pool):
        raise UnexpectedAnswer("not all answers arrived in time")


def _request(job: Job, key: str) -> bytes:
    head = (
        f"POST {job.path} HTTP/1.1",
        "Host: 127.0.0.1",
        f"Authorization: Bearer {key}",
        "Content-Type: application/json",
        f"Content-Length: {len(job.body.encode())}",
    )
    return "\r\n".join(head).encode() + _HEAD_END + job.body.encode()


if __name__ == "__main__":
    main()
