"""Load that a worker sheds: inference requests beyond those that may wait in it (GATEWAY_MAX_WAITING) are refused.

A request begins with a look at its key, for which it needs one of a few sessions: what comes faster than it is served,
or while the database is slow, waits there. A refusal looks at a request's head and at nothing else, is made of bytes
that are kept, and has no event: the beat reports all of them at once.
"""

import functools
import math
import time
from collections import Counter
from typing import Any
from uuid import UUID

import orjson
from django.conf import settings
from gunicorn import SERVER, util

from ..edge.exception_handler import body_of, headers_of
from ..edge.jsonbody import BLOCK_BYTES
from ..edge.responses import name_request, send
from ..errors import BUSY_SECONDS, WorkerBusy
from ..ids import request_id, uuid7
from ..observing.request_events import EVENT, RequestEvent
from ..stores import db
from .hooks import Reading
from .turns import pause

MESSAGE = "This replica has more requests than it can serve now. Nothing was billed: retry."
STATUS_LINE = "HTTP/1.1 503 Service Unavailable"
NO_ID = request_id(UUID(int=0)).encode()
# Clients that come again at once must not have all of a worker's time, and what it serves says how fast the
# machine is: a refusal takes a sixth of a request's CPU or less.
REFUSALS_A_SECOND, REFUSALS_A_REQUEST = 2000, 5
WINDOW_SECONDS, BURST_SECONDS = 0.1, 0.02


class Overload:
    """What one worker has refused."""

    def __init__(self) -> None:
        self._refused: Counter[str] = Counter()  # by endpoint, since the last beat
        self.total = 0
        self.served = 0  # requests that were not refused, in this window
        self._window_at = self._refused_at = self._free_at = -math.inf
        self._seconds_each = 1 / REFUSALS_A_SECOND

    def refusal(self) -> WorkerBusy:
        """Of a request that has an event of its own."""
        self._count(time.monotonic())
        return WorkerBusy(MESSAGE)

    def _count(self, now: float) -> None:
        self.total += 1
        self._refused_at = now

    def shed(self, worker: Any, req: Any, sock: Any) -> bool:
        """Answers a request to an inference endpoint with 503. False where it may be served after all.

        Raises StopIteration where the connection ends with it: its body has not come, and nobody waits for that.
        """
        endpoint = worker.wsgi.name_of(req.path)
        length = getattr(req.body.reader, "length", math.inf)  # nobody knows that of a chunked body
        is_too_large = settings.GATEWAY_MAX_BODY_BYTES < length < math.inf  # which is said first
        if endpoint is None or req.method != "POST" or is_too_large:
            return False
        now = time.monotonic()
        window = now - self._window_at
        if window > WINDOW_SECONDS:
            self._seconds_each = 1 / (REFUSALS_A_SECOND + REFUSALS_A_REQUEST * self.served / window)
            self.served, self._window_at = 0, now
        self._free_at = max(self._free_at, now - BURST_SECONDS) + self._seconds_each
        if self._free_at > now:
            pause(self._free_at - now)
            if not db.is_full():
                return False
        self._count(now)
        self._refused[endpoint] += 1
        if length <= BLOCK_BYTES and req.unreader.come(length):
            req.body.read(length)  # its connection goes on
        keeps = worker.alive and not req.should_close()
        answer = _answer(req.path, keeps, int(time.time())).replace(NO_ID, request_id(uuid7()).encode())
        send(sock, answer)
        if not keeps:
            raise StopIteration
        return True

    def report(self) -> None:
        """With each beat: one event for the requests of an endpoint that had none."""
        refused, self._refused = self._refused, Counter()
        for endpoint, count in refused.items():
            event = RequestEvent("POST", endpoint)
            event.answered(WorkerBusy.status, WorkerBusy(f"{MESSAGE} ({count} requests since the last beat)"))
            event.complete()

    def need(self) -> str | None:
        """What /readyz says while requests are refused."""
        if time.monotonic() - self._refused_at > BUSY_SECONDS:
            return None
        return "This worker has more requests than it can serve, and refuses some."


overload = Overload()
READINGS = [
    Reading("gateway_waiting_requests", "Requests that wait for their key.", lambda: {"": db.waiting()}),
    Reading(
        "gateway_shed_requests",
        "Requests that were refused because too many waited.",
        lambda: {"": overload.total},
        how="counter",
    ),
]


@functools.lru_cache(maxsize=32)
def _answer(path: str, keeps: bool, second: int) -> bytes:
    """A refusal in this second, with NO_ID where its request's id goes."""
    error, event = WorkerBusy(MESSAGE), RequestEvent("POST", id=UUID(int=0))
    environ = {"PATH_INFO": path, EVENT: event}
    body = orjson.dumps(body_of(error, environ))
    headers = {
        "Server": SERVER,
        "Date": util.http_date(second),
        "Connection": "keep-alive" if keeps else "close",
        **headers_of(error),
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
    }
    name_request(headers, environ, event.request_id)
    lines = [STATUS_LINE, *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode() + body
