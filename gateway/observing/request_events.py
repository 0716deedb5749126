"""Records an event for each request of the API, and passes it to observers when the request is complete."""
# A request begins at the edge (`middleware`, or `broken_http` if it could not be parsed). It is complete when its
# answer is; a stream is complete when the server closes it.

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol
from uuid import UUID

from ..db.outages import Outage
from ..errors import ApiError
from ..fastpath.http_client import UpstreamAttempt
from ..ids import request_id, uuid7

logger = logging.getLogger(__name__)
LONGEST_TEXT = 1000  # characters of a client's text: events may be kept for a while
EVENT = "gateway.request_event"  # the key in a request's META, or WSGI's environ


# OpenTelemetry's names for what an endpoint does. Of the other endpoints only those that count tokens have a route.
OPERATIONS = {
    "chat/completions": "chat",
    "completions": "text_completion",
    "embeddings": "embeddings",
    "messages": "chat",
    "responses": "chat",
}


class Outcome(StrEnum):
    """Lists the ways in which a request ends."""

    SERVED = "served"
    REFUSED = "refused"  # a status from 400 to 499
    FAILED = "failed"  # a status from 500
    BROKEN = "broken"  # a stream that broke off after its status 200
    CLIENT_LEFT = "client_left"


class SettledFigures(Protocol):
    """Gives the figures of a settled request. Money, Wh and gCO2e are in units of 10^-10; None is unknown."""

    @property
    def uncached_prompt_tokens(self) -> int: ...
    @property
    def prompt_tokens(self) -> int: ...
    @property
    def cache_read_tokens(self) -> int | None: ...
    @property
    def cache_write_tokens(self) -> int | None: ...
    @property
    def completion_tokens(self) -> int: ...
    @property
    def reasoning_tokens(self) -> int | None: ...
    @property
    def cost(self) -> int | None: ...
    @property
    def cost_eur(self) -> int | None: ...
    @property
    def energy_wh(self) -> int | None: ...
    @property
    def carbon_gco2e(self) -> int | None: ...


class Trace(Protocol):
    """Gives the ids of a request's spans."""

    @property
    def trace_id(self) -> str: ...

    def begin_attempt(self) -> bytes:
        """Begins the span of a call to an upstream; returns the header lines that name it."""


@dataclass(slots=True)
class RequestEvent:
    """Describes a request without its content. What is unknown is empty or None."""

    # `endpoint`: the path below `/v1` without ids, empty for an unknown path. `model`: shortened, as the client wrote
    # it. `reserved`: the purses and the amounts reserved in them (`accounts.in_flight`). `route`, `provider`: of the
    # last attempt. `code`, `message`: the client's error, or the error that broke off a stream.

    method: str
    endpoint: str = ""
    id: UUID = field(default_factory=uuid7)  # also the id of the request's record
    began_at: float = field(default_factory=time.time)  # seconds since the epoch
    started: float = field(default_factory=time.monotonic)
    ended_at: float = 0.0  # on the monotonic clock, as `started` and `first_output_at`
    first_output_at: float | None = None
    account_id: UUID | None = None
    key_id: UUID | None = None
    model: str = ""
    is_stream: bool = False
    body_bytes: int = 0
    reserved: tuple[tuple[str, int], ...] = ()
    alias_id: UUID | None = None
    route: str = ""
    provider: str = ""
    attempts: list[UpstreamAttempt] = field(default_factory=list)
    generation_id: UUID | None = None  # set once its record is settled
    settled: SettledFigures | None = None
    settlement_seconds: float = 0.0
    wallet_wait_seconds: float | None = None  # during settlement; only PostgreSQL reports it
    currency: str = ""
    status: int = 0
    code: str | None = None
    message: str = ""
    outcome: Outcome = Outcome.SERVED
    trace: Trace | None = None

    @property
    def request_id(self) -> str:
        return request_id(self.id)

    @property
    def is_failure(self) -> bool:
        return self.status >= 400 or self.outcome == Outcome.BROKEN

    @property
    def duration(self) -> float:
        return self.ended_at - self.started

    @property
    def region(self) -> str:
        return self.route.rpartition("/")[2]

    def answered(self, status: int, error: ApiError | None) -> None:
        self.status = status
        if status < 400:
            return
        if self.outcome == Outcome.SERVED:
            self.outcome = Outcome.REFUSED if status < 500 else Outcome.FAILED
        if error is not None:
            self.code, self.message = error.code, error.message[:LONGEST_TEXT]

    def broke(self, code: str | None, message: str) -> None:
        self.outcome, self.code, self.message = Outcome.BROKEN, code, message[:LONGEST_TEXT]

    def complete(self) -> None:
        # Takes effect once. An observer's error does not fail the request.
        if self.ended_at:
            return
        self.ended_at = time.monotonic()
        for observe in [*observers, *failure_observers] if self.is_failure else observers:
            try:
                observe(self)
            except Exception as error:  # noqa: BLE001  # the boundary: the answer has been sent
                _outage.failed(error)


Observer = Callable[[RequestEvent], None]
# Called in the request's greenlet: an observer must take microseconds and must not wait.
observers: list[Observer] = []
failure_observers: list[Observer] = []  # called only for failures, so that they cost a served request nothing
begin_trace: Callable[[Mapping[str, Any]], Trace] | None = None  # takes META; None if nothing is traced
_outage = Outage("a request's event is lost on an observer", logger.error)


def begin(meta: dict[str, Any], endpoint: str = "") -> RequestEvent:
    """Makes the event of a new request, and keeps it in `meta`, the request's META or environ."""
    event = meta[EVENT] = RequestEvent(meta["REQUEST_METHOD"], endpoint)
    if begin_trace is not None:
        event.trace = begin_trace(meta)
    return event


def event_of(meta: Mapping[str, Any]) -> RequestEvent:
    """Returns the event that `begin` has put into META or the environ."""
    event: RequestEvent = meta[EVENT]
    return event
