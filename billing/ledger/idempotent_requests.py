"""Claims `Idempotency-Key`s in the database, so that a repeated request is neither served nor billed twice.

A row stands for one use of an `Idempotency-Key` by one API key at one endpoint (docs/api.md#idempotency). Its unique
constraint decides between requests that arrive at the same moment. Nothing is locked while a request runs: each
function here is a few short statements.

The row's id is the id of the generation, so the books show what became of a request whose worker died. A repetition

- is refused with IdempotencyReplayed if the request was billed: its record has a cost, its row is marked as billed, or
  its settlement is in this machine's spool;
- is refused with IdempotencyInProgress if the request has a checkpoint, until a sweep has settled it;
- runs under its own id if the request has a record without a cost;
- runs under the first one's id if there is no trace of the request, once its row is stale.

In the last case the first one's settlement may still arrive, from another machine's spool or a worker that had stalled.
Only one of the two is booked, because settling is idempotent by that id. `claimed_by` distinguishes them: a worker
renews and removes a row only while the row has its own claim.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection
from django.db.models import BooleanField, Exists, ExpressionWrapper, OuterRef, Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from gateway.errors import IdempotencyInProgress, IdempotencyKeyReused, IdempotencyReplayed
from gateway.ids import generation_id

from ..models import Checkpoint, Generation, IdempotentRequest
from . import spool
from .checkpoints import STALE_SECONDS

KEPT_FOR = timedelta(hours=24)
DROPPED_AT_ONCE = 5000
DROP_EVERY_SECONDS = 600.0
MOST_TRIES = 5
_TABLE = IdempotentRequest._meta.db_table
_COLUMNS = {field.attname: field for field in IdempotentRequest._meta.concrete_fields}
# SQL for the database's present time, in the format in which Django stores times.
_NOW = {"postgresql": "clock_timestamp()", "sqlite": "strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now')"}


@dataclass(frozen=True, slots=True)
class IdempotencyKeyUse:
    """Identifies one use of an `Idempotency-Key`, by digests of the header's value and of the body."""

    key_id: UUID
    endpoint: str
    header_digest: bytes  # of the header's value
    body_digest: bytes


class _FirstUse(NamedTuple):
    """Holds the row of a key, and whether its request has a checkpoint or a record."""

    id: UUID
    claimed_by: UUID | None
    body_digest: bytes
    is_billed: bool
    is_stale: bool
    is_old: bool
    has_checkpoint: bool
    has_record: bool
    is_unbilled: bool

    @property
    def is_over(self) -> bool:
        """Tells whether the row no longer counts: it is a day old, or its record shows that nothing was billed."""
        return self.is_old or self.is_unbilled

    @property
    def has_vanished(self) -> bool:
        """Tells whether the request's worker seems to be gone, without a trace in the books.

        A request with a checkpoint has not vanished: a sweep will bill it.
        """
        return self.is_stale and not (self.is_billed or self.has_record or self.has_checkpoint)


def claim(use: IdempotencyKeyUse, id_: UUID, *, running: Collection[UUID]) -> UUID:
    """Claims a key for the request `id_`, and returns the id under which it runs.

    That is another id if an earlier request with this key and body has vanished with its worker. `running` are the
    requests of this worker, which have not vanished even if their rows could not be renewed.
    Raises IdempotencyInProgress, IdempotencyReplayed and IdempotencyKeyReused.
    """
    for _ in range(MOST_TRIES):
        if _insert(use, id_):
            return id_
        first = _first_use(use)
        if first is None:
            continue  # the earlier request has just ended without a bill
        if first.claimed_by == id_:
            # Our own statement succeeded at the first try. Only its reply was lost, with the database connection.
            return first.id
        if first.is_over:
            IdempotentRequest.objects.filter(pk=first.id).delete()
            continue
        has_vanished = first.has_vanished and first.id not in running and not spool.holds(first.id)
        if bytes(first.body_digest) != use.body_digest:
            if not has_vanished:
                raise IdempotencyKeyReused
            _row_if_still_stale(first.id).delete()
        elif not has_vanished:
            is_undecided = not first.is_billed and not first.has_record and not spool.holds(first.id)
            raise _in_progress() if is_undecided else _replayed(first.id)
        elif _row_if_still_stale(first.id).update(beat_at=Now(), claimed_by=id_):
            return first.id
    raise _in_progress()


def renew(claims: Mapping[UUID, UUID]) -> None:
    """Notes that these requests still run. `claims` maps a row's id to the claim that the row must still have."""
    _held_by(claims).update(beat_at=Now())


def note_billed(ids: Iterable[UUID]) -> None:
    """Notes that these requests are billed: their settlement is in the books or in the spool."""
    IdempotentRequest.objects.filter(pk__in=sorted(ids)).update(is_billed=True)


def free(claims: Mapping[UUID, UUID]) -> None:
    """Makes the keys of requests that ended without a bill usable again, except those that others have taken over.

    `claims` is as for `renew`.
    """
    _held_by(claims).filter(is_billed=False).delete()


def drop_before(moment: datetime, *, most: int | None = None) -> int:
    """Removes rows older than a moment in batches, until at least `most` are removed. Returns how many were."""
    dropped = 0
    while most is None or dropped < most:
        old = IdempotentRequest.objects.filter(created_at__lt=moment).order_by("created_at")
        gone = IdempotentRequest.objects.filter(pk__in=old.values("pk")[:DROPPED_AT_ONCE]).delete()[0]
        dropped += gone
        if gone < DROPPED_AT_ONCE:
            break
    return dropped


def drop_some() -> bool:
    """Removes some rows older than a day, and tells whether there may be more.

    Workers call it, so that old rows go even if `maintain` does not run.
    """
    return drop_before(timezone.now() - KEPT_FOR, most=DROPPED_AT_ONCE) == DROPPED_AT_ONCE


def _insert(use: IdempotencyKeyUse, id_: UUID) -> bool:
    values = {
        "id": id_,
        "claimed_by": id_,
        "key_id": use.key_id,
        "endpoint": use.endpoint,
        "name_digest": use.header_digest,
        "body_digest": use.body_digest,
    }
    now = _NOW[connection.vendor]
    statement = f"""
        INSERT INTO {_TABLE} ({", ".join(values)}, created_at, beat_at)
        VALUES ({", ".join(["%s"] * len(values))}, {now}, {now})
        ON CONFLICT (key_id, endpoint, name_digest) DO NOTHING
    """  # noqa: S608  # the table and columns of our own model
    parameters = [_COLUMNS[name].get_db_prep_value(value, connection) for name, value in values.items()]
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return bool(cursor.rowcount == 1)


def _first_use(use: IdempotencyKeyUse) -> _FirstUse | None:
    """Reads in one statement the row of the request that holds the key, and its traces in the books."""
    record = Generation.objects.filter(pk=OuterRef("pk"))
    rows = IdempotentRequest.objects.filter(
        key_id=use.key_id, endpoint=use.endpoint, name_digest=use.header_digest
    ).annotate(
        is_stale=_as_boolean(beat_at__lt=Now() - timedelta(seconds=STALE_SECONDS)),
        is_old=_as_boolean(created_at__lt=Now() - KEPT_FOR),
        has_checkpoint=Exists(Checkpoint.objects.filter(pk=OuterRef("pk"))),
        has_record=Exists(record),
        is_unbilled=Exists(record.filter(cost=None)),
    )
    row = rows.values_list(*_FirstUse._fields).first()
    return None if row is None else _FirstUse(*row)


def _as_boolean(**condition: Any) -> "ExpressionWrapper[Q]":
    return ExpressionWrapper(Q(**condition), output_field=BooleanField())


def _held_by(claims: Mapping[UUID, UUID]) -> "QuerySet[IdempotentRequest]":
    """Selects rows that still have these claims."""
    # No claim is ever on two rows, so ids and claims may be compared as two separate lists.
    return IdempotentRequest.objects.filter(pk__in=sorted(claims), claimed_by__in=sorted(claims.values()))


def _row_if_still_stale(id_: UUID) -> "QuerySet[IdempotentRequest]":
    """Selects a row if its request is not billed and, even now, has not renewed it for STALE_SECONDS."""
    stale = Now() - timedelta(seconds=STALE_SECONDS)
    return IdempotentRequest.objects.filter(pk=id_, is_billed=False, beat_at__lt=stale)


def _in_progress() -> IdempotencyInProgress:
    return IdempotencyInProgress(headers={"Retry-After": "1"})


def _replayed(id_: UUID) -> IdempotencyReplayed:
    first = generation_id(id_)
    message = f"This request was served and billed before, as {first}. It is not billed again. Answers are not kept."
    return IdempotencyReplayed(message, headers={"X-Generation-Id": first})
