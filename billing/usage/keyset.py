"""Reads rows page by page from a position in an index, so that page 1,000 costs the same as page 1."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar
from uuid import UUID

from django.db.models import Model, QuerySet

Row = TypeVar("Row")
Record = TypeVar("Record", bound=Model)  # with `created_at` and a UUID as `id`
Cursor = TypeVar("Cursor")
Position = tuple[datetime, UUID]  # of a record in a listing: created_at, and the id in case two are equal


@dataclass(frozen=True, slots=True)
class Page(Generic[Row, Cursor]):
    """Holds rows, newest first, and the cursors of the older and newer page; None if there is no such page."""

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
    """Returns the newest page, the page of rows older than the cursor `before`, or the page of rows newer than `after`.

    A page that would begin with the newest row is the newest page. `read` takes a cursor, the number of rows wanted
    beyond it, and whether newer rows are wanted; it returns newer rows oldest first, older rows newest first.
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
    """Filters records older than a position.

    Reading starts at the position's time, and skips only records of the same microsecond. (Both databases can compare
    (created_at, id) as a row, but the SQL that Django writes for SQLite reads the index from its start.)
    """
    created_at, identifier = position
    return records.filter(created_at__lte=created_at).exclude(created_at=created_at, id__gte=identifier)


def newer_than(records: QuerySet[Record], position: Position) -> QuerySet[Record]:
    """Filters records newer than a position, as `older_than` does for older ones."""
    created_at, identifier = position
    return records.filter(created_at__gte=created_at).exclude(created_at=created_at, id__lte=identifier)
