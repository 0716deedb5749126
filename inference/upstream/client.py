"""One request to an upstream and its answer, which anything in the worker may end at any moment.

Nothing of the client's request but the body that a dialect built goes out: no cookies, no proxies, no redirects. A read
waits on the socket alone; deadlines are looked at by one greenlet for all calls of the worker, which cuts the
connection of a call that is due.
"""

import ssl
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import gevent
from django.conf import settings
from gevent.event import Event

from ..dialects.base import UpstreamRequest
from . import connections
from .connections import Connection
from .deadlines import Deadlines
from .faults import UpstreamFault

SWEEP_SECONDS = 0.1
WATCH_AFTER_SECONDS = 0.3  # a call that is open for so long has its client watched
DRAIN_SECONDS = 0.1
CLOSE_IDLE_EVERY_SWEEPS = 100


class Unreachable(UpstreamFault):
    """No connection, no TLS, or none that lasted until an answer."""


class AnswerTooLarge(UpstreamFault):
    """An answer above GATEWAY_MAX_UPSTREAM_BYTES."""


class WorkerStopped(Exception):
    """This worker's graceful stop has waited as long as it may."""


class UpstreamCall:
    """One request and its answer. `watch_client` is called once when the call has been open for a while.

    `open` and `read` raise DeadlineExpired, Unreachable, BrokenAnswer, AnswerTooLarge, or what `abort` was given.
    """

    __slots__ = (
        "_abort_with",
        "_connection",
        "_most_bytes",
        "_received",
        "_request",
        "content_type",
        "deadlines",
        "headers",
        "is_waiting",
        "opened_at",
        "status",
        "watch_client",
    )

    def __init__(self, request: UpstreamRequest, deadlines: Deadlines) -> None:
        self.deadlines = deadlines
        self.status = 0
        self.content_type = ""
        self.headers: dict[str, str] = {}
        self.is_waiting = False  # for the upstream: whoever reads is not writing to the client
        self.watch_client: Callable[[], None] | None = None
        self._request = request
        self._connection: Connection | None = None
        self.opened_at = time.monotonic()
        self._received = 0
        self._most_bytes: int = settings.GATEWAY_MAX_UPSTREAM_BYTES
        self._abort_with: Exception | None = None

    def open(self) -> None:
        """Sends the request and waits for the head of the answer."""
        _take_in(self)
        request = self._request
        with self:
            origin, head = connections.head_of(request.url, request.headers, len(request.body))
            connection = connections.connection_to(origin, self.deadlines.seconds_left)
            self._connection = connection
            if self._abort_with is not None:
                raise self._abort_with
            connection.send(head, request.body)
            answer = connection.answer
            while not answer.status:
                connection.receive()
        self.status, self.headers = answer.status, answer.headers
        self.content_type = self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def read(self) -> bytes:
        """The next bytes of the body as soon as there are any; empty at its end."""
        connection = self._connection
        if connection is None:
            raise RuntimeError("read before open")
        answer = connection.answer
        if not answer.blocks and not answer.is_complete:
            with self:
                while not answer.blocks and not answer.is_complete:
                    connection.receive()
        block = answer.take()
        self._received += len(block)
        if self._received > self._most_bytes:
            raise AnswerTooLarge(f"answered with more than {self._most_bytes} bytes")
        if not block and self._abort_with is not None:
            raise self._abort_with
        return block

    def read_all(self, most_bytes: int | None = None) -> bytes:
        """The whole body, or its first `most_bytes` bytes and perhaps some more."""
        blocks = []
        while block := self.read():
            blocks.append(block)
            if most_bytes is not None and self._received >= most_bytes:
                break
        return b"".join(blocks)

    def abort(self, reason: Exception) -> None:
        """Cuts the connection; whoever reads gets `reason`. Safe to call from any greenlet, at any time."""
        if self._abort_with is None:
            self._abort_with = reason
            if self._connection is not None:
                self._connection.cut()

    def close(self) -> None:
        """Gives the connection back if the answer was read to its end, and cuts it otherwise. Idempotent."""
        _in_flight.discard(self)
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if self._abort_with is None and (connection.may_be_reused or _reaches_end(connection)):
            connections.keep(connection)
        else:
            connection.cut()
            connection.close()

    # Around whatever waits for the upstream: its failures in our words.

    def __enter__(self) -> Self:
        self.is_waiting = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.is_waiting = False
        if error is None or not isinstance(error, Exception):
            return
        if self._abort_with is not None:
            raise self._abort_with from error
        match error:
            case TimeoutError():
                raise self.deadlines.expired() from error
            case ssl.SSLError() if self._connection is None:
                raise Unreachable("could not be reached: the TLS connection failed") from error
            case OSError() | ValueError() if not self.status:
                raise Unreachable("could not be reached, or closed the connection without an answer") from error
            case OSError():
                raise Unreachable("broke the connection in the middle of its answer") from error


def stop_all() -> None:
    """Ends every call of this worker with WorkerStopped: the streams settle and say so while there is still time."""
    for call in list(_in_flight):
        call.abort(WorkerStopped())


def _reaches_end(connection: Connection) -> bool:
    """Whether the body's end is already on its way, as it is after `[DONE]`."""
    if connection.answer.ends_with_the_connection:
        return False
    try:
        with gevent.Timeout(DRAIN_SECONDS, TimeoutError()):
            connection.receive()
    except (OSError, UpstreamFault):
        return False
    return not connection.answer.blocks and connection.may_be_reused


_in_flight: set[UpstreamCall] = set()
_some_in_flight = Event()
_sweeper: "gevent.Greenlet[[], None] | None" = None


def _take_in(call: UpstreamCall) -> None:
    global _sweeper  # noqa: PLW0603  # one a worker, begun by its first call
    _in_flight.add(call)
    _some_in_flight.set()
    if _sweeper is None or _sweeper.dead:
        _sweeper = gevent.spawn(_sweep)


def _sweep() -> None:
    sweeps = 0
    while True:
        if not _in_flight:
            _some_in_flight.clear()
            _some_in_flight.wait()
        gevent.sleep(SWEEP_SECONDS)
        now = time.monotonic()
        for call in list(_in_flight):
            deadlines = call.deadlines
            # What is late while the client is being written to may have come already: the next read decides.
            if deadlines.overall_ends <= now or (call.is_waiting and deadlines.phase_ends <= now):
                call.abort(deadlines.expired())
            elif call.watch_client is not None and now - call.opened_at >= WATCH_AFTER_SECONDS:
                watch, call.watch_client = call.watch_client, None
                watch()
        sweeps += 1
        if sweeps % CLOSE_IDLE_EVERY_SWEEPS == 0:
            connections.close_idle()
