"""Claims the `Idempotency-Key`s of requests (docs/api.md#idempotency), and holds them while the requests run.

A key is claimed before the balance is checked. Its row is renewed by the beat, as long as the request runs, and no
connection is held meanwhile. When the request ends, its key is freed if nothing was billed. If that cannot be written,
the beat writes it once the database is back.
"""

import logging
import re
import time
from collections.abc import Mapping
from hashlib import sha256
from typing import Any
from uuid import UUID

from django.db import Error

from accounts import in_flight
from billing.ledger import idempotent_requests
from billing.ledger.idempotent_requests import IdempotencyKeyUse
from gateway.db import pool
from gateway.db.outages import Outage
from gateway.errors import NOTHING_BILLED, InvalidRequest, step
from gateway.observing.request_events import RequestEvent

from .authentication import Payer
from .wire_forms.base import WireForm

logger = logging.getLogger(__name__)
_outage = Outage("the ends of requests with an Idempotency-Key cannot be written", logger.error)

HEADER = "HTTP_IDEMPOTENCY_KEY"  # in META
VALUE = re.compile("[ -~]{1,255}")
RULE = "must be 1 to 255 printable ASCII characters."
RENEW_EVERY_SECONDS = 5.0

# The claims of requests, by the ids under which these run. A claim is the id that the request had when it came.
_running: dict[UUID, UUID] = {}
_unbilled: dict[UUID, UUID] = {}  # ended, and their keys are not free yet
_billed: set[UUID] = set()  # ended, and not noted in their rows yet
_renewed_at = 0.0


class SentKey:
    """Holds the digests of a request's `Idempotency-Key` and, once it is read, of its body."""

    __slots__ = ("_body_digest", "_header_digest")

    def __init__(self, name: str) -> None:
        self._header_digest, self._body_digest = sha256(name.encode()).digest(), b""

    def note_body(self, sent: bytes) -> None:
        self._body_digest = sha256(sent).digest()

    def use(self, form: WireForm, payer: Payer) -> IdempotencyKeyUse:
        return IdempotencyKeyUse(payer.key_id, form.endpoint, self._header_digest, self._body_digest)


def sent_key(environ: Mapping[str, Any]) -> SentKey:
    """Returns the `Idempotency-Key` of a request that has one. Raises InvalidRequest."""
    name = environ[HEADER]
    if not VALUE.fullmatch(name):
        raise InvalidRequest.of_field("Idempotency-Key", RULE)
    return SentKey(name)


def begin(use: IdempotencyKeyUse, event: RequestEvent) -> None:
    """Claims a key for a request until `end_request`.

    The request takes over the id of an earlier one that vanished with its worker, so that one of the two is billed.
    Raises IdempotencyInProgress, IdempotencyReplayed and IdempotencyKeyReused.
    """
    with step("checking the Idempotency-Key", NOTHING_BILLED):
        try:
            id_ = pool.on_a_live_connection(lambda: idempotent_requests.claim(use, event.id, running=_running))
        except Error:
            _unbilled[event.id] = event.id  # the database may have written the row nevertheless
            raise
        finally:
            pool.release("default")
        _running[id_] = event.id
        event.id = id_


def end_request(event: RequestEvent) -> None:
    """Ends what a request holds while it runs: its reservation and its key. Idempotent."""
    in_flight.end(event)
    if _running and (claim := _running.pop(event.id, None)) is not None:
        _end_key(event, claim)


def leave_undecided(event: RequestEvent) -> None:
    """Stops renewing the key of a request of which it is unknown whether it was billed.

    Its row becomes stale, and the books decide then.
    """
    _running.pop(event.id, None)


def beat() -> None:
    """Writes what could not be written yet, and renews the rows of running requests; runs once a second."""
    global _renewed_at  # noqa: PLW0603  # once a worker
    if _billed or _unbilled:
        _write_ends()
    now = time.monotonic()
    if _running and now - _renewed_at >= RENEW_EVERY_SECONDS:
        idempotent_requests.renew(_running)
        _renewed_at = now


def write_ends() -> None:
    """Writes the ends of this worker's last requests, when it stops."""
    if _billed or _unbilled:
        _write_ends()


def _end_key(event: RequestEvent, claim: UUID) -> None:
    if event.settled is not None and event.settled.cost is not None:
        _billed.add(event.id)  # the record shows it already, unless it waits in the spool
        return
    _unbilled[event.id] = claim
    try:
        with pool.answering_within(pool.BRIEF_SECONDS):
            _free({event.id: claim})
    except Error as error:
        _outage.failed(error)  # the beat tries again
    finally:
        pool.release("default")


def _write_ends() -> None:
    billed = set(_billed)
    idempotent_requests.note_billed(billed)
    _billed.difference_update(billed)
    _free(dict(_unbilled))
    _outage.worked()


def _free(claims: dict[UUID, UUID]) -> None:
    idempotent_requests.free(claims)
    for id_, claim in claims.items():
        if _unbilled.get(id_) == claim:  # while the database worked, the id may have ended again under another claim
            del _unbilled[id_]
