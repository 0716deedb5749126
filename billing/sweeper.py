"""Settling what nobody will: streams whose worker died (design section 3).

A live stream renews its checkpoint every few seconds, and ends by itself when it could not for 30 s. A row that is
120 s old therefore belongs to nobody. Claiming deletes it in the settling transaction, so two sweepers, or a sweeper
and the stream itself, cannot both bill.
"""

import logging
import uuid
from datetime import timedelta

from django.db import connections, transaction
from django.utils import timezone

from . import frozen
from .ledger import settle
from .models import Checkpoint

logger = logging.getLogger(__name__)

STALE_SECONDS = 120
_TABLE = Checkpoint._meta.db_table
_USING = "settlement"
_CLAIM = f"""
    DELETE FROM {_TABLE} WHERE id = (
        SELECT id FROM {_TABLE}
        WHERE beat_at < clock_timestamp() - make_interval(secs => %s) AND id <> ALL(%s::uuid[])
        ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED
    ) RETURNING id, frozen
"""  # noqa: S608  # the table of our own model


def sweep(stale_seconds: float = STALE_SECONDS) -> int:
    """Settles every stale checkpoint as interrupted, and returns how many. One that cannot be is reported and stays."""
    settled, hopeless = 0, list[uuid.UUID]()
    while True:
        claimed: uuid.UUID | None = None
        try:
            with transaction.atomic(using=_USING):
                row = _claim(stale_seconds, hopeless)
                if row is None:
                    return settled
                claimed, content = row
                generation, quota_region = frozen.thaw(content.encode())
                settle(generation, quota_region=quota_region, using=_USING)
        except (frozen.BadFrozenGeneration, ValueError, LookupError):
            logger.exception("the checkpoint %s cannot be settled", claimed)
            if claimed is not None:
                hopeless.append(claimed)
        else:
            settled += 1
            logger.warning("settled %s, whose worker is gone", generation.public_id)


def _claim(stale_seconds: float, hopeless: list[uuid.UUID]) -> tuple[uuid.UUID, str] | None:
    """Takes one stale row away; the surrounding transaction decides whether it is gone."""
    if connections[_USING].vendor == "postgresql":
        with connections[_USING].cursor() as cursor:
            cursor.execute(_CLAIM, [stale_seconds, hopeless])
            row: tuple[uuid.UUID, str] | None = cursor.fetchone()
            return row
    before = timezone.now() - timedelta(seconds=stale_seconds)
    stale = Checkpoint.objects.using(_USING).filter(beat_at__lt=before).exclude(pk__in=hopeless).order_by("pk").first()
    if stale is None:
        return None
    found = stale.pk, stale.frozen
    stale.delete(using=_USING)
    return found
