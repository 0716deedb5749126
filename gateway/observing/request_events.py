"""The event of each request of the API."""
# A request begins at the edge (`middleware`; `refusals` where there is no request yet). It is complete when its answer
# is, a stream when the server closes it.

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol
from uuid import UUID

from ..errors import ApiError
from ..fastpath.http_client import UpstreamAttempt
from ..ids import request_id, uuid7
from ..stores.outages import Outage

logger = logging.getLogger(__name__)
LONGEST_TEXT = 1000  # characters of what a client wrote: events may wait for their observers
EVENT = "gateway.request_event"  # of a request's META, or WSGI's environ


# What the endpoints that serve do, in OpenTelemetry's names; of the others, only those that count tokens have a route.
OPERATIONS = {
    "chat/completions": "chat",
    "completions": "text_completion",
    "embeddings": "embeddings",
    "messages": "chat",
    "responses": "chat",
}


class Outcome(StrEnum):
    """The ways in which a request ends."""

    SERVED = "served"
    REFUSED = "refused"  # a status from 400 to 499
    FAILED = "failed"  # a status from 500
    BROKEN = "broken"  # a stream that ended otherwise than finished, after its status 200
    CLIENT_LEFT = "client_left"


class Settled(Protocol):
    """Figures of a settled request, in 10^-10 units."""

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
    """The ids of a request's spans."""

    @property
    def trace_id(self) -> str: ...

    def begin_attempt(self) -> bytes:
        """The header lines that name the upstream's span."""


@dataclass(slots=True)
class RequestEvent:
    """A request without its content; the unknown is empty or None."""

    # `endpoint` is a path below `/v1` without ids, empty for unknown paths; `model` as the client wrote it, cut;
    # `reserved` the account and what is set aside for it (`accounts.in_flight`); `route` and `provider` of the last
    # attempt; `code` and `message` the client's error, or what would be where a stream broke.

    method: str
    endpoint: str = ""
    id: UUID = field(default_factory=uuid7)  # of the request, and of the record that may come of it
    began_at: float = field(default_factory=time.time)  # seconds since the epoch
    started: float = field(default_factory=time.monotonic)
    ended_at: float = 0.0  # of the monotonic clock, as `started` and `first_output_at`
    first_output_at: float | None = None
    account_id: UUID | None = None
    key_id: UUID | None = None
    model: str = ""
    is_stream: bool = False
    body_bytes: int = 0
    reserved: tuple[UUID, int] | None = None
    alias_id: UUID | None = None
    route: str = ""
    provider: str = ""
    attempts: list[UpstreamAttempt] = field(default_factory=list)
    generation_id: UUID | None = None  # of a record that was settled
    settled: Settled | None = None
    settlement_seconds: float = 0.0
    wallet_wait_seconds: float | None = None  # of the settlement, where the database tells (PostgreSQL)
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
        # once; no observer can fail the request
        if self.ended_at:
            return
        self.ended_at = time.monotonic()
        for observe in [*observers, *failure_observers] if self.is_failure else observers:
            try:
                observe(self)
            except Exception as error:  # noqa: BLE001  # the boundary: the answer is out, whatever is made of it
                _outage.failed(error)


Observer = Callable[[RequestEvent], None]
# Called in the request's greenlet: they take microseconds and wait for nothing.
observers: list[Observer] = []
failure_observers: list[Observer] = []  # called for failures alone, so that a served request does not run through them
begin_trace: Callable[[Mapping[str, Any]], Trace] | None = None  # from META; None where nothing is traced
_outage = Outage("a request's event is lost on an observer", logger.error)


def begin(meta: dict[str, Any], endpoint: str = "") -> RequestEvent:
    """A new request's event, kept in its environ."""
    event = meta[EVENT] = RequestEvent(meta["REQUEST_METHOD"], endpoint)
    if begin_trace is not None:
        event.trace = begin_trace(meta)
    return event


def event_of(meta: Mapping[str, Any]) -> RequestEvent:
    """The event of a begun request."""
    event: RequestEvent = meta[EVENT]
    return event
