"""What open streams have delivered so far, kept in the database in case their worker dies, and settled if it did.

A stream that is open for some seconds has a row here, which its worker renews with each beat; it ends by itself when it
could not for 30 s. Settling removes the row; one that is 120 s old belongs to nobody, and is settled by a sweep
(docs/operations.md#what-dies-and-what-happens). Claiming deletes it in the settling transaction, so two sweepers, or a
sweeper and the stream itself, cannot both bill. Times are the database's, not the worker's.
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
from .booking import book, keep_terms
from .settlement import retrying
from .unsettled import BadSerializedGeneration, deserialized

logger = logging.getLogger(__name__)

STALE_SECONDS = 120
_USING = "settlement"
_TABLE = Checkpoint._meta.db_table
# %b: as text, psycopg would look through each record for what to escape, which was half of what open streams cost.
_INSERT = f"""
    INSERT INTO {_TABLE} (id, frozen, beat_at)
    SELECT v.id, v.frozen, clock_timestamp() FROM unnest(%b::uuid[], %b::text[]) AS v (id, frozen)
    ON CONFLICT (id) DO NOTHING
"""  # noqa: S608  # the table of our own model
# In the order of the ids, so that two workers (or a worker and a sweeper) cannot wait for each other in a ring.
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


class Swept(NamedTuple):
    """How many stale checkpoints were settled, and how many could not be, which stay."""

    settled: int
    unsettled: int


def insert(frozen: Mapping[uuid.UUID, str]) -> None:
    """First rows of streams that have none yet."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(_INSERT, [list(frozen), list(frozen.values())])
        return
    now = timezone.now()
    rows = [Checkpoint(id=id_, frozen=text, beat_at=now) for id_, text in frozen.items()]
    Checkpoint.objects.bulk_create(rows, ignore_conflicts=True)


def renew(frozen: Mapping[uuid.UUID, str]) -> set[uuid.UUID]:
    """Renews rows, and returns the ids of those that were still there: a stream whose row is gone has been settled."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(_RENEW, [list(frozen), list(frozen.values())])
            return {row[0] for row in cursor.fetchall()}
    with transaction.atomic():
        now = timezone.now()
        return {
            id_ for id_, text in frozen.items() if Checkpoint.objects.filter(pk=id_).update(frozen=text, beat_at=now)
        }


def is_anything_stale() -> bool:
    """Whether a sweep would find something. Raises where the database is away."""
    return _stale().exists()


def sweep() -> Swept:
    """Settles every stale checkpoint as interrupted. One that cannot be is reported and stays."""
    settled = unsettled = 0
    found = _next_stale(after=uuid.UUID(int=0))
    while found is not None:
        try:
            settled += retrying(partial(_settle_orphan, found), f"the checkpoint {found}")
        except Exception as error:  # noqa: BLE001  # whatever is the matter with one must not hold up the others
            unsettled += 1
            if found not in _reported:  # once in a process: a sweep comes back to it again and again
                _reported.add(found)
                logger.error("the checkpoint %s cannot be settled: %r", found, error)  # noqa: TRY400
        found = _next_stale(after=found)
    return Swept(settled, unsettled)


def _stale() -> "QuerySet[Checkpoint]":
    return Checkpoint.objects.using(_USING).filter(beat_at__lt=Now() - timedelta(seconds=STALE_SECONDS))


def _next_stale(*, after: uuid.UUID) -> uuid.UUID | None:
    return _stale().filter(pk__gt=after).order_by("pk").values_list("pk", flat=True).first()


def _settle_orphan(id_: uuid.UUID) -> bool:
    """Whether it was settled; not where its stream has settled or renewed it meanwhile.

    The wallet first, as every settlement does, then the checkpoint: the other way round they would wait in a ring.
    """
    seen = Checkpoint.objects.using(_USING).filter(pk=id_).values_list("frozen", flat=True).first()
    if seen is None:
        return False
    generation, _ = deserialized(seen.encode())
    keep_terms(generation, _USING)
    with transaction.atomic(using=_USING):
        Wallet.objects.using(_USING).select_for_update().get(pk=generation.account_id)
        claimed = _claim(id_)
        if claimed is None:
            return False
        generation, quota_region = deserialized(claimed.encode())
        if generation.pk != id_:
            raise BadSerializedGeneration(f"the checkpoint is that of {generation.pk}")
        if Generation.objects.using(_USING).filter(pk=id_).exists():
            return False  # written while the stream was settling: only the row was left to remove
        book(generation, quota_region=quota_region, using=_USING)
    logger.warning("settled %s, whose worker is gone", generation.public_id)
    return True


def _claim(id_: uuid.UUID) -> str | None:
    """Takes a row away if it is still stale; the surrounding transaction decides whether it is gone."""
    if connections[_USING].vendor == "postgresql":
        with connections[_USING].cursor() as cursor:
            cursor.execute(_CLAIM, [id_, STALE_SECONDS])
            row: tuple[str] | None = cursor.fetchone()
            return None if row is None else row[0]
    content = _stale().filter(pk=id_).values_list("frozen", flat=True).first()
    if content is not None:
        Checkpoint.objects.using(_USING).filter(pk=id_).delete()
    return content
