"""Reading rows page by page from a position in an index, so that page 1,000 costs what page 1 does."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar
from uuid import UUID

from django.db.models import Model, QuerySet

Row = TypeVar("Row")
Record = TypeVar("Record", bound=Model)  # with `created_at` and a UUID as `id`
Cursor = TypeVar("Cursor")
Position = tuple[datetime, UUID]  # of a record in a listing: created_at, and the id where two were created at once


@dataclass(frozen=True, slots=True)
class Page(Generic[Row, Cursor]):
    """Rows, newest first, and the cursors of the pages beside it; None where nothing lies beyond."""

    rows: list[Row]
    older: Cursor | None
    newer: Cursor | None


def page(
    read: Callable[[Cursor | None, int, bool], list[Row]],
    cursor_of: Callable[[Row], Cursor],
    limit: int,
    *,
    before: Cursor | None = None,
    after: Cursor | None = None,
) -> Page[Row, Cursor]:
    """The newest page; the one that follows the cursor `before`; or the one that leads up to the cursor `after`.

    A page that would begin with the newest row is the newest page. `read` takes a cursor, how many rows behind it are
    wanted, and whether newer ones are, which it returns from the oldest on.
    """
    if after is not None:
        found = read(after, limit + 1, True)
        if len(found) > limit:
            return Page(found[:limit][::-1], older=cursor_of(found[0]), newer=cursor_of(found[limit - 1]))
        before = None
    found = read(before, limit + 1, False)
    return Page(
        found[:limit],
        older=cursor_of(found[limit - 1]) if len(found) > limit else None,
        newer=cursor_of(found[0]) if found and before is not None else None,
    )


def older_than(records: QuerySet[Record], position: Position) -> QuerySet[Record]:
    """Reading begins at the position's time: all that is skipped are records of that very microsecond.

    (Both databases can compare (created_at, id) as a row, but Django spells that out for SQLite in a way that reads
    from the start.)
    """
    created_at, identifier = position
    return records.filter(created_at__lte=created_at).exclude(created_at=created_at, id__gte=identifier)


def newer_than(records: QuerySet[Record], position: Position) -> QuerySet[Record]:
    """The other direction of `older_than`."""
    created_at, identifier = position
    return records.filter(created_at__gte=created_at).exclude(created_at=created_at, id__lte=identifier)
