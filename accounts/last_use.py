"""When keys were last used: noted in memory by each request, written by the worker's beat, one statement for many."""

import uuid
from datetime import datetime

from .models import ApiKey

BATCH_ROWS = 100
_used: dict[uuid.UUID, datetime] = {}


def note(key_id: uuid.UUID, now: datetime) -> None:
    """Remembers a use, for the next beat."""
    _used[key_id] = now


def flush() -> None:
    """Writes what has been noted since the last beat, and no more: uses noted meanwhile wait for the next one.

    What could not be written is noted again.
    """
    noted = dict(_used)
    _used.clear()
    waiting = list(noted.items())
    while waiting:
        batch = waiting[:BATCH_ROWS]
        try:
            ApiKey.objects.bulk_update([ApiKey(id=key, last_used_at=at) for key, at in batch], ["last_used_at"])
        except Exception:
            for key, used_at in waiting:
                _used.setdefault(key, used_at)
            raise
        waiting = waiting[BATCH_ROWS:]
