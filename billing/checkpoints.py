"""What open streams have delivered so far, kept in the database in case their worker dies.

A stream that is open for some seconds has a row here, which its worker renews with each beat. Settling removes the row;
a row that nobody renews is settled by the sweeper. Times are the database's, not the worker's.
"""

import uuid
from collections.abc import Mapping

from django.db import connection, transaction
from django.utils import timezone

from .models import Checkpoint

_TABLE = Checkpoint._meta.db_table
_INSERT = f"""
    INSERT INTO {_TABLE} (id, frozen, beat_at)
    SELECT v.id, v.frozen, clock_timestamp() FROM unnest(%s::uuid[], %s::text[]) AS v (id, frozen)
    ON CONFLICT (id) DO NOTHING
"""  # noqa: S608  # the table of our own model
# In the order of the ids, so that two workers (or a worker and a sweeper) cannot wait for each other in a ring.
_RENEW = f"""
    WITH v AS (SELECT * FROM unnest(%s::uuid[], %s::text[]) AS v (id, frozen)),
         locked AS (SELECT c.id FROM {_TABLE} c JOIN v USING (id) ORDER BY c.id FOR UPDATE OF c)
    UPDATE {_TABLE} c SET frozen = v.frozen, beat_at = clock_timestamp()
    FROM v JOIN locked USING (id) WHERE c.id = v.id
    RETURNING c.id
"""  # noqa: S608


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
