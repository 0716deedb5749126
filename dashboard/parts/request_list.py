"""Reads an account's requests, records and failures together: page by page, by the beginning of an id, and as CSV."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple, Self, cast
from uuid import UUID

from django.core import signing
from django.db.models import QuerySet
from django.http import Http404

from billing.models import DailyUsage, FailureDay, Generation, RequestFailure, UsageWatermark
from billing.usage import keyset
from billing.usage.keyset import Page, Position, Record, newer_than, older_than
from billing.usage.rollups import BEGINNING
from billing.usage.statement import Line
from billing.usage.statistics import Days, Scope
from gateway.db.pool import release
from gateway.edge import rfc3339
from gateway.ids import GENERATION_PREFIX, MESSAGE_PREFIX, REQUEST_PREFIX, RESPONSE_PREFIX
from gateway.observing.request_events import Outcome

from .filters import FAILURES, OUTCOMES, SERVED

PAGE_ROWS = 50
ROWS_AT_ONCE = 1000  # of a download
LONGEST_CODE = 100  # characters
INSTANT = timedelta(microseconds=1)  # the smallest unit of time in the databases
FEW_KEYS = 20  # with which a search is narrowed to keys
SHORTEST_BEGINNING, ALL_DIGITS = 8, 32
ID = re.compile(
    f"(?:{GENERATION_PREFIX}|{REQUEST_PREFIX}|{RESPONSE_PREFIX}|{MESSAGE_PREFIX})?"
    f"([0-9a-f]{{{SHORTEST_BEGINNING},{ALL_DIGITS}}})",
    re.IGNORECASE,
)
STATUSES = {Outcome.BROKEN: "interrupted", Outcome.CLIENT_LEFT: "client left"}  # of failures; of all others: error
CSV_COLUMNS = (
    *("time", "id", "status", "http_status", "error_code", "error_message", "similar_failures"),
    *("requested_model", "route", "key_id", "key", "tags", "latency_ms", "first_token_ms"),
    *("prompt_tokens", "completion_tokens", "currency", "cost", "energy_wh", "carbon_gco2e"),
)

Row = Generation | RequestFailure
IdRange = tuple[UUID, UUID]  # the first and the last id


class Window(NamedTuple):
    """Holds a range of time to search; `ends` is the first moment after it."""

    begins: datetime
    ends: datetime
    keys: Collection[UUID] | None = None  # the only keys that can have requests in it; None: not known


@dataclass(frozen=True, slots=True)
class RequestFilter:
    """Selects which requests are listed: records, failures or both."""

    records: bool = True
    failures: bool = True
    conditions: Mapping[str, Any] = field(default_factory=dict)  # for failures

    @classmethod
    def read(cls, query: Mapping[str, str]) -> Self:
        """Reads the selection from an address. Raises Http404 for a value that no request can have."""
        outcome, status, code = query.get("outcome"), query.get("status"), query.get("code")
        if (outcome not in (None, *OUTCOMES)) or (status is not None and not re.fullmatch("[1-5][0-9]{2}", status)):
            raise Http404
        if code is not None and (len(code) > LONGEST_CODE or not code.isprintable()):
            raise Http404
        conditions: dict[str, Any] = {} if outcome in (None, FAILURES) else {"outcome": outcome}
        conditions |= {} if status is None else {"status": int(status)}
        conditions |= {} if code is None else {"code": code}
        if outcome is None and not conditions:
            return cls(conditions={"has_record": False})  # a broken stream with a record is listed by its record
        if conditions == {"outcome": SERVED}:
            return cls(failures=False)
        return cls(records=False, conditions=conditions)  # with an error's status or code, "served" finds nothing


EVERYTHING = RequestFilter(conditions={"has_record": False})


def page(
    scope: Scope,
    days: Days,
    shown: RequestFilter = EVERYTHING,
    *,
    before: str | None = None,
    after: str | None = None,
    limit: int = PAGE_ROWS,
    is_oldest_first: bool = False,
) -> Page[Row, str]:
    """Returns a page of requests with their keys. Raises BadSignature for another account's cursor.

    If the oldest are first, the page's `older` is the cursor of the page with newer requests, and the other way round.
    """

    def read(cursor: str | None, count: int, is_backwards: bool) -> list[Row]:
        is_upwards = is_backwards != is_oldest_first
        position: Position | None = None
        if cursor is not None:
            created_at, identifier = signing.loads(cursor, salt=_salt(scope.account_id))
            position = datetime.fromisoformat(created_at), UUID(hex=identifier)
        found: list[Row] = []
        for is_wanted, windows, rows in (
            (shown.records, _windows, select),
            (shown.failures, partial(_failure_windows, shown=shown), partial(select_failures, shown=shown)),
        ):
            ahead = [window for window in windows(scope, days) if _lies_ahead(window, position, is_upwards=is_upwards)]
            left = count if is_wanted else 0
            for window in ahead if is_upwards else reversed(ahead):
                if not left:
                    break
                more = rows(scope, window, position, is_upwards=is_upwards)[:left]
                found += more
                left -= len(more)
        return sorted(found, key=lambda row: (row.created_at, row.pk), reverse=not is_upwards)[:count]

    return keyset.page(read, cursor_of, limit, before=before, after=after)


def id_range(text: str) -> IdRange | None:
    """Returns the first and the last id that begin with a text, with or without its prefix; None if no id can."""
    found = ID.fullmatch(text)
    if found is None:
        return None
    return UUID(hex=found[1].ljust(ALL_DIGITS, "0")), UUID(hex=found[1].ljust(ALL_DIGITS, "f"))


def of_ids(account_id: UUID, ids: IdRange, most: int) -> list[Row]:
    """Returns the account's requests with these ids, newest first: records, and failures without one."""
    chosen = {"account_id": account_id, "pk__range": ids}
    records = list(Generation.objects.filter(**chosen).select_related("key").order_by("-pk")[:most])
    failures = RequestFailure.objects.filter(**chosen).exclude(pk__in=[record.pk for record in records])
    found: list[Row] = [*records, *failures.select_related("key").order_by("-pk")[:most]]
    return sorted(found, key=lambda row: row.pk, reverse=True)[:most]


def csv_lines(scope: Scope, days: Days, shown: RequestFilter, *, is_oldest_first: bool) -> Iterator[Line]:
    """Yields a line of the CSV for each request, reading a block at a time."""
    cursor: str | None = None
    while True:
        block = page(scope, days, shown, before=cursor, limit=ROWS_AT_ONCE, is_oldest_first=is_oldest_first)
        release("default")
        for row in block.rows:
            yield _failure_line(row) if isinstance(row, RequestFailure) else _record_line(row)
        cursor = block.older
        if cursor is None:
            return


def _record_line(record: Generation) -> Line:
    return {
        **_common(record),
        "id": record.public_id,
        "status": "interrupted" if record.interrupted else SERVED,
        "http_status": 200,
        "requested_model": record.requested_alias or record.requested_auto,
        "tags": record.tags,
        "first_token_ms": record.first_token_ms,
        "prompt_tokens": record.prompt_tokens,
        "completion_tokens": record.completion_tokens,
        "currency": record.currency,
        "cost": record.cost,
        "energy_wh": record.energy_wh,
        "carbon_gco2e": record.carbon_gco2e,
    }


def _failure_line(failure: RequestFailure) -> Line:
    return {
        **_common(failure),
        "id": failure.request_id,
        "status": STATUSES.get(Outcome(failure.outcome), "error"),
        "http_status": failure.status,
        "error_code": failure.code,
        "error_message": failure.message,
        "similar_failures": failure.repeated,
        "requested_model": failure.asked,
    }


def _common(row: Row) -> Line:
    return {
        "time": rfc3339.to_text(row.created_at),
        "route": row.route_id,
        "key_id": str(row.key_id) if row.key_id else None,
        "key": row.key.name if row.key else None,
        "latency_ms": row.duration_ms,
    }


def cursor_of(row: Row) -> str:
    """Signs the row's position for its account."""
    return signing.dumps([row.created_at.isoformat(), row.pk.hex], salt=_salt(cast(UUID, row.account_id)))


def select(scope: Scope, window: Window, position: Position | None, *, is_upwards: bool) -> QuerySet[Generation]:
    """Selects the records of a window beyond a position, in the order of an index."""
    return _from(Generation.objects.all(), scope, window, position, is_upwards=is_upwards)


def select_failures(
    scope: Scope, window: Window, position: Position | None, *, is_upwards: bool, shown: RequestFilter
) -> QuerySet[RequestFailure]:
    """Selects the failures of a window beyond a position, in the order of an index."""
    rows = RequestFailure.objects.filter(**shown.conditions)
    return _from(rows, scope, window, position, is_upwards=is_upwards)


def _from(
    rows: QuerySet[Record], scope: Scope, window: Window, position: Position | None, *, is_upwards: bool
) -> QuerySet[Record]:
    conditions = scope.of_records
    if scope.key_id is not None:  # checks the account of the key instead of the row, so that the key's index is used
        conditions["key__account_id"] = conditions.pop("account_id")
    if window.keys is not None:
        conditions["key_id__in"] = window.keys
    rows = rows.filter(**conditions, created_at__gte=window.begins, created_at__lt=window.ends).select_related("key")
    rows = rows.order_by(*(("created_at", "id") if is_upwards else ("-created_at", "-id")))
    if position is None:
        return rows
    return newer_than(rows, position) if is_upwards else older_than(rows, position)


def _salt(account_id: UUID) -> str:
    return f"billing.usage_records/{account_id.hex}"  # unchanged, since people have bookmarked addresses with it


def _lies_ahead(window: Window, position: Position | None, *, is_upwards: bool) -> bool:
    return position is None or (position[0] < window.ends if is_upwards else window.begins <= position[0])


def _windows(scope: Scope, days: Days) -> Iterator[Window]:
    """Yields the windows of time to search, oldest first."""
    # The indexes begin with the account or the key only, and requests narrowed further may be rare: they are looked for
    # on the days and among the keys that have some according to the rollups, and in the tail, which is not rolled up
    # yet.
    if scope == Scope(scope.account_id, scope.key_id):
        yield Window(days.since, days.before)
        return
    mark = UsageWatermark.objects.filter(account_id=scope.account_id).values_list("rolled_until", flat=True).first()
    tail_begins = BEGINNING if mark is None else mark + INSTANT
    rows = DailyUsage.objects.filter(**scope.of_rows, day__range=(days.first, days.last))
    runs = [
        run
        for run in _runs(list(rows.order_by("day").values_list("day", flat=True).distinct()))
        if run.begins < tail_begins
    ]
    keys = _few_keys(rows) if runs and scope.key_id is None else None
    for run in runs:
        yield Window(run.begins, min(run.ends, tail_begins), keys)
    if tail_begins < days.before:
        yield Window(max(tail_begins, days.since), days.before)


def _few_keys(rows: QuerySet[DailyUsage]) -> list[UUID] | None:
    """Returns the keys of rolled-up rows, or None if there are more than FEW_KEYS."""
    keys = list(rows.order_by().values_list("key_id", flat=True).distinct()[: FEW_KEYS + 1])
    return keys if len(keys) <= FEW_KEYS else None


def _failure_windows(scope: Scope, days: Days, *, shown: RequestFilter) -> Iterator[Window]:
    # As `_windows`, but without a tail, since failures are counted when they are written. They have no tags.
    if scope.tag is not None:
        return
    conditions = {name: value for name, value in shown.conditions.items() if name in ("outcome", "status")}
    if not conditions and scope == Scope(scope.account_id, scope.key_id):
        yield Window(days.since, days.before)
        return
    counts = FailureDay.objects.filter(**scope.of_rows, **conditions, day__range=(days.first, days.last))
    yield from _runs(list(counts.order_by("day").values_list("day", flat=True).distinct()))


def _runs(days: list[date]) -> Iterator[Window]:
    """Joins days that follow each other into one window."""
    while days:
        first = days[0]
        length = sum(1 for number, day in enumerate(days) if (day - first).days == number)
        run = Days(first, days[length - 1])
        yield Window(run.since, run.before)
        days = days[length:]
