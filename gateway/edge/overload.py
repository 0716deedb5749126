"""Refuses inference requests that an overloaded worker cannot serve, by writing to their sockets.

While GATEWAY_MAX_WAITING requests wait for a database connection, further ones are refused once their head is read.
They have no events of their own: the beat reports their number.
"""

import functools
import math
import time
from collections import Counter
from typing import Any
from uuid import UUID

from gunicorn import SERVER, util

from ..db import pool
from ..errors import BUSY_SECONDS, WorkerBusy
from ..ids import request_id, uuid7
from ..observing.request_events import EVENT, RequestEvent
from ..server.hooks import MetricReading
from ..server.turns import pause
from .bodies import BLOCK_BYTES
from .exception_handler import response_bytes

BUSY = "The server is busy. Nothing was billed; please retry."
NO_ID = request_id(UUID(int=0))
# Clients that retry at once must not use up a worker. A refusal takes at most a sixth of a request's CPU time, so a
# worker that serves many requests can also refuse many.
REFUSALS_A_SECOND, REFUSALS_A_REQUEST = 2000, 5
WINDOW_SECONDS, BURST_SECONDS = 0.1, 0.02


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
    MetricReading(
        "gateway_waiting_requests", "Requests that wait to have their key looked up.", lambda: {"": pool.waiting()}
    ),
    MetricReading(
        "gateway_shed_requests",
        "Requests that were refused because too many waited.",
        lambda: {"": overload.total},
        how="counter",
    ),
]


@functools.lru_cache(maxsize=32)
def _busy(path: str, keeps: bool, second: int) -> bytes:
    # NO_ID stands in the place of the request's id.
    first = {"Server": SERVER, "Date": util.http_date(second), "Connection": "keep-alive" if keeps else "close"}
    environ = {"PATH_INFO": path, EVENT: RequestEvent("POST", id=UUID(int=0))}
    return response_bytes("503 Service Unavailable", first, WorkerBusy(BUSY), environ)
