"""Keeps in the database what open streams have delivered so far, and settles it if their worker died.

Within a second of its first output a stream gets a row here, which its worker renews every few seconds. A stream whose
row could not be renewed for 30 s is ended by its worker. Settling removes the row; a row that was not renewed for 120 s
was left by a dead worker, and a sweep settles it (docs/operations.md#what-dies-and-what-happens). The settling
transaction claims the row by deleting it, so two sweepers, or a sweeper and the stream itself, cannot both bill. Times
are the database's, not the worker's.
"""

import logging
import uuid
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import NamedTuple

from django.db import connection, connections, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from ..models import Checkpoint, Generation, Wallet
from .booking import book, write_new_terms
from .settlement import retrying
from .unsettled import BadSerializedGeneration, deserialized

logger = logging.getLogger(__name__)

STALE_SECONDS = 120
_USING = "settlement"
_TABLE = Checkpoint._meta.db_table
# %b sends binary: in text, psycopg scans each record for characters to escape, which was half the cost of open streams.
_INSERT = f"""
    INSERT INTO {_TABLE} (id, frozen, beat_at)
    SELECT v.id, v.frozen, clock_timestamp() FROM unnest(%b::uuid[], %b::text[]) AS v (id, frozen)
    ON CONFLICT (id) DO NOTHING
"""  # noqa: S608  # the table of our own model
# Rows are locked in the order of their ids, so that two workers (or a worker and a sweeper) cannot deadlock.
_RENEW = f"""
    WITH v AS (SELECT * FROM unnest(%b::uuid[], %b::text[]) AS v (id, frozen)),
         locked AS (SELECT c.id FROM {_TABLE} c JOIN v USING (id) ORDER BY c.id FOR UPDATE OF c)
    UPDATE {_TABLE} c SET frozen = v.frozen, beat_at = clock_timestamp()
    FROM v JOIN locked USING (id) WHERE c.id = v.id
    RETURNING c.id
"""  # noqa: S608
_CLAIM = f"""
    DELETE FROM {_TABLE}
    WHERE id = %s AND beat_at < clock_timestamp() - make_interval(secs => %s) RETURNING frozen
"""  # noqa: S608
_reported: set[uuid.UUID] = set()


class SweepCounts(NamedTuple):
    """Counts the stale checkpoints that a sweep settled, and those that it could not settle, which stay."""

    settled: int
    unsettled: int


def insert(serialized: Mapping[uuid.UUID, str]) -> None:
    """Writes the first checkpoints of streams, by the generation's id; rows that exist are left alone."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(_INSERT, [list(serialized), list(serialized.values())])
        return
    now = timezone.now()
    rows = [Checkpoint(id=id_, frozen=text, beat_at=now) for id_, text in serialized.items()]
    Checkpoint.objects.bulk_create(rows, ignore_conflicts=True)


def renew(serialized: Mapping[uuid.UUID, str]) -> set[uuid.UUID]:
    """Renews checkpoints, and returns the ids of those that still exist: a stream without its row has been settled."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(_RENEW, [list(serialized), list(serialized.values())])
            return {row[0] for row in cursor.fetchall()}
    with transaction.atomic():
        now = timezone.now()
        return {
            id_
            for id_, text in serialized.items()
            if Checkpoint.objects.filter(pk=id_).update(frozen=text, beat_at=now)
        }


def is_anything_stale() -> bool:
    """Tells whether a sweep would find something. Raises a database error if the database is away."""
    return _stale().exists()


def sweep() -> SweepCounts:
    """Settles every stale checkpoint as interrupted. One that cannot be settled is logged and stays."""
    settled = unsettled = 0
    found = _next_stale(after=uuid.UUID(int=0))
    while found is not None:
        try:
            settled += retrying(partial(_settle_orphan, found), f"the checkpoint {found}")
        except Exception as error:  # noqa: BLE001  # a fault of one checkpoint must not hold up the others
            unsettled += 1
            if found not in _reported:  # log it once in a process: every sweep meets it again
                _reported.add(found)
                logger.error("the checkpoint %s cannot be settled: %r", found, error)  # noqa: TRY400
        found = _next_stale(after=found)
    return SweepCounts(settled, unsettled)


def _stale() -> "QuerySet[Checkpoint]":
    return Checkpoint.objects.using(_USING).filter(beat_at__lt=Now() - timedelta(seconds=STALE_SECONDS))


def _next_stale(*, after: uuid.UUID) -> uuid.UUID | None:
    return _stale().filter(pk__gt=after).order_by("pk").values_list("pk", flat=True).first()


def _settle_orphan(id_: uuid.UUID) -> bool:
    """Settles a stale checkpoint. Returns False if its stream has settled or renewed it meanwhile.

    It locks the wallet first and then the checkpoint, as every settlement does: the other order could deadlock.
    """
    seen = Checkpoint.objects.using(_USING).filter(pk=id_).values_list("frozen", flat=True).first()
    if seen is None:
        return False
    generation, _ = deserialized(seen.encode())
    write_new_terms(generation, _USING)
    with transaction.atomic(using=_USING):
        Wallet.objects.using(_USING).select_for_update().get(pk=generation.account_id)
        claimed = _claim(id_)
        if claimed is None:
            return False
        generation, quota_region = deserialized(claimed.encode())
        if generation.pk != id_:
            raise BadSerializedGeneration(f"the checkpoint holds another generation, {generation.pk}")
        if Generation.objects.using(_USING).filter(pk=id_).exists():
            return False  # the stream is settled: it wrote this row while that happened, and the row only had to go
        book(generation, quota_region=quota_region, using=_USING)
    logger.warning("settled %s, whose worker is gone", generation.public_id)
    return True


def _claim(id_: uuid.UUID) -> str | None:
    """Deletes a row if it is still stale, and returns its content. A rollback of the caller's transaction undoes it."""
    if connections[_USING].vendor == "postgresql":
        with connections[_USING].cursor() as cursor:
            cursor.execute(_CLAIM, [id_, STALE_SECONDS])
            row: tuple[str] | None = cursor.fetchone()
            return None if row is None else row[0]
    content = _stale().filter(pk=id_).values_list("frozen", flat=True).first()
    if content is not None:
        Checkpoint.objects.using(_USING).filter(pk=id_).delete()
    return content
