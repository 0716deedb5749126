"""Writes answers directly to the socket: to broken HTTP, and to requests that an overloaded worker refuses.

If more requests than GATEWAY_MAX_WAITING wait for a database connection, further ones are refused once their head is
read. They have no events of their own: the beat reports their number.
"""

import functools
import math
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import orjson
from gunicorn import SERVER, config, util
from gunicorn.http import errors as http_errors

from ..db import pool
from ..errors import BUSY_SECONDS, ApiError, InvalidRequest, WorkerBusy
from ..ids import request_id, uuid7
from ..observing.request_events import (
    EVENT,
    RequestEvent,
)
from ..server.bounded_request import (
    HEAD_SECONDS,
    MOST_HEAD_BYTES,
    HeadTooSlow,
)
from ..server.hooks import Reading
from ..server.turns import pause
from .bodies import BLOCK_BYTES
from .exception_handler import body_of, headers_of
from .responses import name_request

MALFORMED = "400 Bad Request", "The HTTP request is malformed."
NOT_ONE_HOST = "400 Bad Request", "An HTTP/1.1 request carries one Host header, no more and no fewer."
FAULTS: dict[type[Exception], tuple[str, str]] = {
    http_errors.LimitRequestLine: (
        "414 URI Too Long",
        f"The request line is longer than {config.LimitRequestLine.default} bytes.",
    ),
    http_errors.LimitRequestHeaders: (
        "431 Request Header Fields Too Large",
        f"The request has more than {config.LimitRequestFields.default} headers, "
        f"or one of more than {config.LimitRequestFieldSize.default} bytes, "
        f"or more than {MOST_HEAD_BYTES} bytes of them in all.",
    ),
    HeadTooSlow: ("408 Request Timeout", f"The headers of the request did not come within {HEAD_SECONDS:g} seconds."),
    http_errors.ExpectationFailed: (
        "417 Expectation Failed",
        "The Expect header asks for something else than 100-continue.",
    ),
    http_errors.UnsupportedTransferCoding: (
        "501 Not Implemented",
        "The only Transfer-Encoding that is understood is chunked.",
    ),
}
BUSY = "This replica has more requests than it can serve now. Nothing was billed: retry."
NO_ID = request_id(UUID(int=0))
# Clients that retry at once must not use up a worker. A refusal takes at most a sixth of a request's CPU time, so a
# worker that serves many requests can also refuse many.
REFUSALS_A_SECOND, REFUSALS_A_REQUEST = 2000, 5
WINDOW_SECONDS, BURST_SECONDS = 0.1, 0.02


def of_broken_http(error: BaseException) -> bytes:
    """Returns the whole response to a request that could not be parsed; the connection closes after it."""
    status_line, refused = "500 Internal Server Error", ApiError()
    if isinstance(error, http_errors.ParseException):
        fault = next((fault for kind, fault in FAULTS.items() if isinstance(error, kind)), MALFORMED)
        if isinstance(error, http_errors.InvalidHeader) and error.hdr == "HOST":
            fault = NOT_ONE_HOST
        status_line, refused = fault[0], InvalidRequest(fault[1])
    event = RequestEvent(method="")
    event.answered(int(status_line[:3]), refused)
    event.complete()
    return _response(status_line, {"Connection": "close"}, refused, {"PATH_INFO": "", EVENT: event})


def _response(status_line: str, first: dict[str, str], error: ApiError, environ: Mapping[str, Any]) -> bytes:
    body = orjson.dumps(body_of(error, environ))
    headers = first | headers_of(error) | {"Content-Type": "application/json", "Content-Length": str(len(body))}
    name_request(headers, environ, environ[EVENT].request_id)
    lines = [f"HTTP/1.1 {status_line}", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode() + body


class Overload:
    """Refuses requests while too many wait in this worker, and counts the refusals."""

    def __init__(self) -> None:
        self._refused: Counter[str] = Counter()  # by endpoint, since the last beat
        self.total = 0
        self.served = 0  # requests that were not refused, in this window
        self._window_at = self._refused_at = self._free_at = -math.inf
        self._seconds_each = 1 / REFUSALS_A_SECOND

    def refusal(self) -> WorkerBusy:
        self._count(time.monotonic())
        return WorkerBusy(BUSY)

    def _count(self, now: float) -> None:
        self.total += 1
        self._refused_at = now

    def shed(self, worker: Any, req: Any, sock: Any) -> bool:
        """Refuses the request; returns False if it may be served after all.

        Raises StopIteration after a refusal that must close the connection, because the body was left unread.
        """
        # 1. Only an inference request is refused here.
        endpoint = worker.wsgi.paths.get(req.path)
        if endpoint is None or req.method != "POST" or req.declares_too_much:  # a 413 comes first
            return False
        # 2. Wait for a turn, because refusals are limited. The request is served if there is room by then.
        now = time.monotonic()
        window = now - self._window_at
        if window > WINDOW_SECONDS:
            self._seconds_each = 1 / (REFUSALS_A_SECOND + REFUSALS_A_REQUEST * self.served / window)
            self.served, self._window_at = 0, now
        self._free_at = max(self._free_at, now - BURST_SECONDS) + self._seconds_each
        if self._free_at > now:
            pause(self._free_at - now)
            if not pool.is_full():
                return False
        # 3. Refuse it.
        self._count(now)
        self._refused[endpoint.name] += 1
        length = getattr(req.body.reader, "length", math.inf)  # unknown for a chunked body
        if length <= BLOCK_BYTES and req.unreader.come(length):
            req.body.read(length)  # so that the connection can be kept
        keeps = worker.alive and not req.should_close()
        answer = _busy(req.path, keeps, int(time.time())).replace(NO_ID.encode(), request_id(uuid7()).encode())
        sock.sendall(answer)
        if not keeps:
            raise StopIteration
        return True

    def report(self) -> None:
        """Records one event for all refusals of an endpoint since the last beat."""
        refused, self._refused = self._refused, Counter()
        for endpoint, count in refused.items():
            event = RequestEvent("POST", endpoint)
            event.answered(WorkerBusy.status, WorkerBusy(f"{BUSY} ({count} requests since the last beat)"))
            event.complete()

    def need(self) -> str | None:
        """Returns the reason for /readyz to fail, or None."""
        if time.monotonic() - self._refused_at > BUSY_SECONDS:
            return None
        return "This worker has more requests than it can serve, and refuses some."


overload = Overload()
READINGS = [
    Reading(
        "gateway_waiting_requests", "Requests that wait to have their key looked up.", lambda: {"": pool.waiting()}
    ),
    Reading(
        "gateway_shed_requests",
        "Requests that were refused because too many waited.",
        lambda: {"": overload.total},
        how="counter",
    ),
]


@functools.lru_cache(maxsize=32)
def _busy(path: str, keeps: bool, second: int) -> bytes:
    # NO_ID stands where the request's id belongs
    first = {"Server": SERVER, "Date": util.http_date(second), "Connection": "keep-alive" if keeps else "close"}
    environ = {"PATH_INFO": path, EVENT: RequestEvent("POST", id=UUID(int=0))}
    return _response("503 Service Unavailable", first, WorkerBusy(BUSY), environ)
