"""The records behind a choice of usage, newest first, page by page; no page costs more for lying deep."""

from collections.abc import Iterator
from datetime import date, datetime, timedelta
from uuid import UUID

from django.core import signing
from django.db.models import QuerySet

from . import keyset
from .keyset import Page, Position, newer_than, older_than
from .models import Generation
from .rollup_models import DailyUsage, UsageWatermark
from .rollups import BEGINNING
from .usage_statistics import Days, Scope

PAGE_ROWS = 50
INSTANT = timedelta(microseconds=1)  # the databases' smallest step of time

Window = tuple[datetime, datetime]  # the first moment of it, and the first one after it


def page(
    scope: Scope, days: Days, *, before: str | None = None, after: str | None = None, limit: int = PAGE_ROWS
) -> Page[Generation, str]:
    """A page of records with their keys. Raises BadSignature for another account's cursor."""

    def read(cursor: str | None, wanted: int, is_upwards: bool) -> list[Generation]:
        if cursor is None:
            return _read(scope, days, None, wanted, is_upwards=is_upwards)
        created_at, identifier = signing.loads(cursor, salt=_salt(scope.account_id))
        position = datetime.fromisoformat(created_at), UUID(hex=identifier)
        return _read(scope, days, position, wanted, is_upwards=is_upwards)

    return keyset.page(read, cursor_of, limit, before=before, after=after)


def cursor_of(record: Generation) -> str:
    """The record's position, signed for its account."""
    return signing.dumps([record.created_at.isoformat(), record.pk.hex], salt=_salt(record.account_id))


def _salt(account_id: UUID) -> str:
    return f"billing.usage_records/{account_id.hex}"


def _read(scope: Scope, days: Days, position: Position | None, wanted: int, *, is_upwards: bool) -> list[Generation]:
    """So many records behind the position, in the order of reading."""
    found: list[Generation] = []
    windows = [window for window in _windows(scope, days) if _lies_ahead(window, position, is_upwards=is_upwards)]
    for window in windows if is_upwards else reversed(windows):
        found += select(scope, window, position, is_upwards=is_upwards)[: wanted - len(found)]
        if len(found) == wanted:
            break
    return found


def _lies_ahead(window: Window, position: Position | None, *, is_upwards: bool) -> bool:
    begins, ends = window
    return position is None or (position[0] < ends if is_upwards else begins <= position[0])


def select(scope: Scope, window: Window, position: Position | None, *, is_upwards: bool) -> QuerySet[Generation]:
    """The records of a window behind a position, in the order of an index, from which they are read either way."""
    records = _of(scope).filter(created_at__gte=window[0], created_at__lt=window[1])
    if is_upwards:
        records = records.order_by("created_at", "id")
        return records if position is None else newer_than(records, position)
    records = records.order_by("-created_at", "-id")
    return records if position is None else older_than(records, position)


def _of(scope: Scope) -> QuerySet[Generation]:
    """A key's records are told by the key's account, so that there is one index to enter: the key's."""
    conditions = scope.of_records
    if scope.key_id is not None:
        conditions["key__account_id"] = conditions.pop("account_id")
    return Generation.objects.filter(**conditions).select_related("key")


def _windows(scope: Scope, days: Days) -> Iterator[Window]:
    """Where in time to look, oldest first.

    The indexes know accounts and keys only. What is narrowed further may be rare, and its records are looked for on
    the days alone that have some by the rollups, and in the tail, which those do not know yet.
    """
    if scope == Scope(scope.account_id, scope.key_id):
        yield days.since, days.before
        return
    mark = UsageWatermark.objects.filter(account_id=scope.account_id).values_list("rolled_until", flat=True).first()
    tail_begins = BEGINNING if mark is None else mark + INSTANT
    for begins, ends in _runs(_days_with_rows(scope, days)):
        if begins < tail_begins:
            yield begins, min(ends, tail_begins)
    if tail_begins < days.before:
        yield max(tail_begins, days.since), days.before


def _days_with_rows(scope: Scope, days: Days) -> list[date]:
    rows = DailyUsage.objects.filter(**scope.of_rows, day__range=(days.first, days.last))
    return list(rows.order_by("day").values_list("day", flat=True).distinct())


def _runs(days: list[date]) -> Iterator[Window]:
    """Days that follow each other are one window."""
    while days:
        first = days[0]
        length = sum(1 for number, day in enumerate(days) if (day - first).days == number)
        run = Days(first, days[length - 1])
        yield run.since, run.before
        days = days[length:]
