"""Sends a request to an upstream and reads the answer. Any greenlet may end the call at any moment."""

import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

import gevent
from django.conf import settings
from gevent.event import Event

from . import connections
from .client_watch import Client, ClientLeft, ClientWatch
from .connections import Connection
from .faults import AnswerTooLarge, DeadlineExpired, Unreachable, UpstreamFault

SWEEP_SECONDS = 0.1
WATCH_AFTER_SECONDS = 0.3  # the client is watched once the call has lasted this long
DRAIN_SECONDS = 0.1
CLOSE_IDLE_EVERY_SWEEPS = 100
FIRST_BYTE, STREAM_IDLE, OVERALL, AFTER_FINISH = "first-byte", "stream-idle", "overall", "after-finish"
MOST_ERROR_BYTES = 1024 * 1024  # some servers repeat the request in their error, an agent's conversation included
PEEKED_BYTES = 8  # enough to tell a stream from JSON
AFTER_FINISH_SECONDS = 2.0  # how long to wait for late usage once every choice has finished
# How long to wait for usage if the client leaves before every choice has finished. Together with the time until we
# notice that, it is less than a second (docs/api.md#endings).
AFTER_CLIENT_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class UpstreamRequest:
    """Holds a request to an upstream. It is sent without cookies, proxies or redirects.

    `headers` include the credential. `adjusted` names the fields that differ from the client's request.
    """

    url: str
    body: bytes
    headers: dict[str, str] = field(repr=False)
    adjusted: tuple[str, ...] = ()


@dataclass(slots=True)
class UpstreamAttempt:
    """Describes one call for metrics and traces. Times are on the monotonic clock; 0 means not yet."""

    provider: str = ""
    route: str = ""
    model: str = ""
    host: str = ""
    port: int = 0
    began_at: float = field(default_factory=time.monotonic)
    connected_at: float = 0.0
    head_at: float = 0.0
    ended_at: float = 0.0
    status: int = 0


class WorkerStopped(Exception):
    """Ends a call that was still open when the worker's graceful stop ran out of time."""


class Deadlines:
    """Holds the timeouts of a call: one for the whole call, and one for its present phase."""

    __slots__ = ("_idle_seconds", "_overall_seconds", "_phase_seconds", "overall_ends", "phase", "phase_ends")

    def __init__(self, first_byte: float) -> None:
        now = time.monotonic()
        self._idle_seconds: float = settings.GATEWAY_STREAM_IDLE_TIMEOUT
        self._overall_seconds: float = settings.GATEWAY_OVERALL_TIMEOUT
        self.overall_ends = now + self._overall_seconds
        self.phase, self._phase_seconds, self.phase_ends = FIRST_BYTE, first_byte, now + first_byte

    def progressed(self) -> None:
        if self.phase is not AFTER_FINISH:
            self.phase, self._phase_seconds = STREAM_IDLE, self._idle_seconds
            self.phase_ends = time.monotonic() + self._idle_seconds

    def finished(self, has_finished: bool = True) -> None:
        """Waits only for late usage from here on; with False, goes back to waiting for more of the stream."""
        self.phase, self._phase_seconds = (
            (AFTER_FINISH, AFTER_FINISH_SECONDS) if has_finished else (STREAM_IDLE, self._idle_seconds)
        )
        self.phase_ends = time.monotonic() + self._phase_seconds

    def whole_answer(self) -> None:
        self.phase, self._phase_seconds, self.phase_ends = OVERALL, self._overall_seconds, self.overall_ends

    def client_left(self) -> None:
        """Waits only for usage from here on, whatever else the upstream sends."""
        seconds = AFTER_FINISH_SECONDS if self.is_after_finish else AFTER_CLIENT_SECONDS
        self.overall_ends = min(self.overall_ends, time.monotonic() + seconds)

    @property
    def is_after_finish(self) -> bool:
        return self.phase is AFTER_FINISH

    @property
    def seconds_left(self) -> float:
        return max(0.0, min(self.phase_ends, self.overall_ends) - time.monotonic())

    def expired(self) -> DeadlineExpired:
        if self.overall_ends <= self.phase_ends:
            return DeadlineExpired(OVERALL, self._overall_seconds)
        return DeadlineExpired(self.phase, self._phase_seconds)


class UpstreamCall:
    """Sends one request and reads its answer, and watches the client if that takes a while.

    `open` and `read` raise an UpstreamFault, or the exception that was given to `abort`.
    """

    def __init__(self, request: UpstreamRequest, deadlines: Deadlines, client: Client, account: UUID) -> None:
        self.deadlines, self.client, self._account = deadlines, client, account
        self.adjusted, self.sent_bytes = request.adjusted, len(request.body)
        self.status = 0
        self.content_type = ""
        self.headers: dict[str, str] = {}
        self.is_waiting = False  # for the upstream, so nothing is being written to the client
        self.watch: ClientWatch | None = None
        # Called once, in the hub, when the client has left. If it is None, the call is aborted instead.
        self.on_client_left: Callable[[], None] | None = None
        self._request: UpstreamRequest | None = request
        self._connection: Connection | None = None
        self.attempt = UpstreamAttempt()
        self.trace_headers = b""  # each line with its line end
        self._most_bytes: int = settings.GATEWAY_MAX_UPSTREAM_BYTES
        self._abort_with: Exception | None = None
        self._is_alone = False

    def open(self) -> None:
        # 1. Begin to observe the deadlines, and the client if it may have left.
        if self._request is None:
            raise RuntimeError("opened twice")
        _take_in(self)
        self.is_waiting = True
        if self.client.doubtful:
            self.watch_client()
        # 2. Send the request, and wait for the head of the answer.
        try:
            status, headers = self._exchange()
        except Exception as error:
            self._raise_fault(error)
            raise
        finally:
            self.is_waiting = False
        # 3. Keep what the head says.
        self.attempt.head_at = time.monotonic()
        self.status = self.attempt.status = status
        self.headers = headers
        self.content_type = self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def _exchange(self) -> tuple[int, dict[str, str]]:
        # Returns the status and the headers of the answer.
        request = self._take_request()
        # 1. Connect.
        origin, head = connections.head_of(request.url, tuple(request.headers.items()))
        self.attempt.host, self.attempt.port = origin.host, origin.port
        connection = connections.connection_to(
            origin, self._account, self.attempt.provider, self.deadlines.seconds_left
        )
        self._connection = connection
        self.attempt.connected_at = time.monotonic()
        if self._abort_with is not None:
            raise self._abort_with
        # 2. Send the request, and receive until the head of the answer is complete.
        head = b"%b%d\r\n%b\r\n" % (head, self.sent_bytes, self.trace_headers)
        connection.send(head, request.body)
        del request  # because the body may be large and the answer may take long
        answer = connection.answer
        while not answer.status:
            connection.receive()
        return answer.status, answer.headers

    def _take_request(self) -> UpstreamRequest:
        request, self._request = self._request, None
        if request is None:
            raise RuntimeError("opened twice")
        return request

    def read(self) -> bytes:
        """Waits for the next bytes and returns them; empty at the end."""
        connection = self._connection
        if connection is None:
            raise RuntimeError("read before open")
        answer = connection.answer
        if not answer.blocks and not answer.is_complete:
            self.is_waiting = True
            try:
                while not answer.blocks and not answer.is_complete:
                    connection.receive()
            except Exception as error:
                self._raise_fault(error)
                raise
            finally:
                self.is_waiting = False
        block = answer.take()
        if answer.received_bytes > self._most_bytes:
            raise AnswerTooLarge(f"answered with more than {self._most_bytes} bytes")
        if not block and self._abort_with is not None:
            raise self._abort_with
        return block

    def peek(self) -> bytes:
        """Returns the first bytes, and puts them back to be read again."""
        body = b""
        while len(body) < PEEKED_BYTES and (block := self.read()):
            body += block
        if body:
            self._put_back(body)
        return body

    def _put_back(self, block: bytes) -> None:
        if self._connection is not None:
            self._connection.answer.blocks.insert(0, block)  # as if it had just arrived

    def read_all(self) -> bytes:
        blocks = []
        while block := self.read():
            blocks.append(block)
        return b"".join(blocks)

    def read_error(self) -> bytes:
        body = b""
        while len(body) < MOST_ERROR_BYTES and (block := self.read()):
            body += block
        return body[:MOST_ERROR_BYTES]

    def serve_alone(self, answered: str) -> None:
        """Closes the connection after this answer, which is of the wrong kind.

        Raises UpstreamFault with the message `answered` if the connection has served another request before: this may
        be a surplus answer to that one, and the right answer may still come.
        """
        if self._connection is None or self._connection.uses > 1:
            raise UpstreamFault(answered)
        self._is_alone = True

    def abort(self, reason: Exception) -> None:
        """Cuts the connection; the greenlet that reads from it raises `reason`."""
        if self._abort_with is None:
            self._abort_with = reason
            if self._connection is not None:
                self._connection.cut()

    def close(self) -> None:
        """Keeps the connection if its answer was read to the end, and cuts it otherwise."""
        self.stop_watching()
        connection, self._connection = self._connection, None
        if connection is None:
            return
        is_over = self._abort_with is not None or self._is_alone
        if not is_over and (connection.may_be_reused or _reaches_end(connection)):
            connections.keep(connection)
        else:
            connection.cut()
            connection.close()

    def watch_client(self) -> None:
        self.watch = ClientWatch(self.client, is_quiet=lambda: self.is_waiting, on_gone=self._note_client_left)

    def _note_client_left(self) -> None:
        if self.on_client_left is None:
            self.abort(ClientLeft())
        else:
            self.on_client_left()

    def stop_watching(self) -> None:
        self.attempt.ended_at = self.attempt.ended_at or time.monotonic()
        _in_flight.discard(self)
        self.on_client_left = None  # breaks a cycle: the stream holds this call
        if self.watch is not None:
            self.watch.stop()

    def _raise_fault(self, error: Exception) -> None:
        # Returns if the error is an UpstreamFault already; the caller raises it again.
        if self._abort_with is not None:
            raise self._abort_with from error
        match error:
            case TimeoutError():
                raise self.deadlines.expired() from error
            case ssl.SSLError() if self._connection is None:
                raise Unreachable("could not be reached: the TLS connection failed") from error
            case OSError() | ValueError() if not self.status:
                raise Unreachable("could not be reached, or closed the connection before answering") from error
            case OSError():
                raise Unreachable("closed the connection before completing the response") from error


def stop_all() -> None:
    """Aborts every open call with WorkerStopped."""
    for call in list(_in_flight):
        call.abort(WorkerStopped())


def open_calls() -> dict[str, float]:
    """Returns the number of open calls, for metrics."""
    return {"": len(_in_flight)}


def _reaches_end(connection: Connection) -> bool:
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
    global _sweeper  # noqa: PLW0603  # one for each worker, started by its first call
    _in_flight.add(call)
    _some_in_flight.set()
    if _sweeper is None or _sweeper.dead:
        _sweeper = gevent.spawn(_sweep)


def _sweep() -> None:
    sweeps = 0
    # One greenlet serves all calls: a timer for each read would start and stop with every chunk of a stream.
    while True:
        if not _in_flight:
            _some_in_flight.clear()
            _some_in_flight.wait()
        gevent.sleep(SWEEP_SECONDS)
        now = time.monotonic()
        for call in list(_in_flight):
            deadlines = call.deadlines
            # While we write to the client, the next bytes may have arrived: the next read decides.
            if deadlines.overall_ends <= now or (call.is_waiting and deadlines.phase_ends <= now):
                call.abort(deadlines.expired())
            elif call.watch is None and now - call.attempt.began_at >= WATCH_AFTER_SECONDS:
                call.watch_client()
        sweeps += 1
        if sweeps % CLOSE_IDLE_EVERY_SWEEPS == 0:
            connections.close_idle()
