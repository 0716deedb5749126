"""Logs a line for each request or each failure (ACCESS_LOG), without content and secrets."""

import logging
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.conf import settings

from ..money import UNITS
from ..server.hooks import worker_hooks
from .request_events import RequestEvent, failure_observers, observers
from .write_behind import WriteBehind

logger = logging.getLogger("gateway.access")
MOST_WAITING = 2000


def register() -> None:
    """Logs this worker's requests from now on, unless ACCESS_LOG is off."""
    if settings.ACCESS_LOG != "off":
        lines = AccessLines()
        (failure_observers if settings.ACCESS_LOG == "errors" else observers).append(lines.note)
        worker_hooks.beat.append(lines.write)
        worker_hooks.stop.append(lines.write)


class AccessLines:
    """Collects events, and writes their lines with the next beat."""

    # In each beat, events after the first MOST_WAITING are only counted, so that a flood of refusals stays cheap.

    def __init__(self) -> None:
        self._noted: WriteBehind[UUID, RequestEvent] = WriteBehind(_log_each, most=MOST_WAITING)

    def note(self, event: RequestEvent) -> None:
        self._noted.note(event.id, event)

    def write(self) -> None:
        self._noted.flush()
        if left_out := self._noted.left_out():
            logger.warning("requests without a line of their own: %d", left_out)


def _log_each(events: dict[UUID, RequestEvent]) -> None:
    for event in events.values():
        log(event)


def log(event: RequestEvent) -> None:
    """Writes the line of a request, as `name=value` pairs or JSON (LOG_FORMAT)."""
    known = {name: value for name, value in fields(event).items() if value not in (None, "")}
    if settings.LOG_FORMAT == "json":
        logger.info("request", extra={"fields": known})
    else:
        logger.info(" ".join(f"{name}={value}" for name, value in known.items()))


def fields(event: RequestEvent) -> dict[str, Any]:
    """Returns the fields of a line. Durations are in milliseconds; None or empty values are left out later."""
    # The model that the client named and the error's message are not logged: a client can put anything into them. The
    # client's address is personal data, and stands in the proxy's log.
    settled, attempt = event.settled, event.attempts[-1] if event.attempts else None
    first = event.first_output_at
    head_took = attempt.head_at - attempt.began_at if attempt and attempt.head_at else None
    return {
        "request": event.request_id,
        "trace": event.trace and event.trace.trace_id,
        "generation": None if event.generation_id is None else f"gen-{event.generation_id.hex}",
        "ended": datetime.fromtimestamp(event.began_at + event.duration, UTC).isoformat(timespec="milliseconds"),
        "method": event.method,
        "endpoint": event.endpoint,
        "status": event.status,
        "outcome": event.outcome.value,
        "code": event.code,
        "account": None if event.account_id is None else str(event.account_id),
        "key": None if event.key_id is None else str(event.key_id),
        "alias": None if event.alias_id is None else str(event.alias_id),
        "stream": event.is_stream or None,
        "route": event.route,
        "upstream_status": (attempt.status or None) if attempt else None,
        "attempts": len(event.attempts) or None,
        "prompt_tokens": settled.prompt_tokens if settled else None,
        "completion_tokens": settled.completion_tokens if settled else None,
        "cost": f"{Decimal(settled.cost) / UNITS:f}" if settled and settled.cost is not None else None,
        "currency": event.currency if settled else None,
        "duration_ms": round(event.duration * 1000, 1),
        "first_output_ms": None if first is None else round((first - event.started) * 1000, 1),
        "upstream_head_ms": None if head_took is None else round(head_took * 1000, 1),
    }
