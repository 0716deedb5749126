"""When keys were last used: noted in memory by each request, written by the worker's beat, one statement for many."""

import uuid
from datetime import datetime

from .models import ApiKey

BATCH_ROWS = 500
_used: dict[uuid.UUID, datetime] = {}


def note(key_id: uuid.UUID, now: datetime) -> None:
    """Remembers a use, for the next beat."""
    _used[key_id] = now


def flush() -> None:
    """Writes what has been noted since the last beat. A batch that fails is noted again."""
    while _used:
        batch = [_used.popitem() for _ in range(min(BATCH_ROWS, len(_used)))]
        keys = [ApiKey(id=key_id, last_used_at=used_at) for key_id, used_at in batch]
        try:
            ApiKey.objects.bulk_update(keys, ["last_used_at"])
        except Exception:
            for key_id, used_at in batch:
                _used.setdefault(key_id, used_at)
            raise
