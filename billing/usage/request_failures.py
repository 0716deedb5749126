"""Keeps requests that were refused or failed: a row for each, and exact counts by day. A flood leaves few rows."""

import sys
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from operator import add
from typing import Any, NamedTuple
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from catalogue.routing import snapshot
from catalogue.routing.model_ids import AUTO, AliasId, AutoId, ExplicitId, parse_model_id
from gateway.errors import AliasNotFound, ApiError
from gateway.ids import uuid7
from gateway.observing.request_events import OPERATIONS, RequestEvent
from gateway.observing.write_behind import WriteBehind
from gateway.redaction import without_secrets

from ..models import LONGEST_ASKED, LONGEST_MESSAGE, NOBODY, FailureDay, RequestFailure

INFERENCE = tuple(OPERATIONS)  # the endpoints whose served requests have a record
MOST_IN_A_BEAT = 10  # rows of one account and code
MOST_WAITING = 2000  # rows of a worker whose database is away
BEYOND = 200  # characters read beyond a text's limit, since a secret that is cut in half is not recognised
ROWS_IN_A_STATEMENT = 100
DROPPED_AT_ONCE = 5000
DROP_EVERY_SECONDS = 600.0


class FailureGroup(NamedTuple):
    """Holds the columns of FailureDay that failures are grouped by: all but `requests`."""

    account_id: UUID
    day: date
    key_id: UUID
    alias_id: UUID
    endpoint: str
    provider: str
    model: str
    region: str
    status: int
    outcome: str


class AccountAlias(NamedTuple):
    """Identifies an alias by its account and name."""

    account_id: UUID
    name: str


# Finds the ids of the aliases that exist. The app `aliases` sets it, since billing must not import that app.
ids_of_aliases: Callable[[Collection[AccountAlias]], Mapping[AccountAlias, UUID]] | None = None

_TABLE = FailureDay._meta.db_table
_ADD = f"""
    INSERT INTO {_TABLE} ({", ".join((*FailureGroup._fields, "requests"))}) VALUES %s
    ON CONFLICT ({", ".join(FailureGroup._fields)}) DO UPDATE SET requests = {_TABLE}.requests + excluded.requests
"""  # noqa: S608  # the table of our own model
_ROW = f"({', '.join(['%s'] * (len(FailureGroup._fields) + 1))})"
_COLUMNS = {field.attname: field for field in FailureDay._meta.concrete_fields}


class CountKey(NamedTuple):
    """Holds a group of failures, and the alias that they asked for if it was not looked up."""

    columns: FailureGroup
    alias: AccountAlias | None


@dataclass(slots=True)
class NotedFailure:
    """Holds a failed request that gets a row, and counts the failures after it that do not (`repeated`)."""

    event: RequestEvent
    by: CountKey
    ended: datetime
    repeated: int = 0


FloodGroup = tuple[UUID | None, str | None]  # account id and error code


class FailureLog:
    """Buffers one worker's failures until its beat writes them."""

    def __init__(self) -> None:
        # Failures that get a row by their request's id, and the number of the others by their CountKey.
        self._noted: WriteBehind[UUID | CountKey, Any] = WriteBehind(
            _write, join=add, most=sys.maxsize, at_once=sys.maxsize
        )
        self._in_beat: dict[FloodGroup, list[NotedFailure]] = {}
        self._flooded: set[FloodGroup] = set()  # groups that had too many rows in the last beat

    def note(self, event: RequestEvent) -> None:
        """Buffers a failure. All are counted; MOST_IN_A_BEAT of an account and code get a row, one in a flood."""
        ended = datetime.fromtimestamp(event.began_at + event.duration, UTC)
        provider, model, region = _located(event)
        counted = FailureGroup(
            event.account_id or NOBODY,
            ended.date(),
            event.key_id or NOBODY,
            event.alias_id or NOBODY,
            event.endpoint,
            provider,
            model,
            region,
            event.status,
            event.outcome.value,
        )
        has_room = len(self._noted) < MOST_WAITING  # without room, aliases are not told apart: each would take an entry
        by = CountKey(counted, _alias_asked(event) if has_room else None)
        group = event.account_id, event.code
        rows = self._in_beat.setdefault(group, [])
        if len(rows) < (1 if group in self._flooded else MOST_IN_A_BEAT) and has_room:
            rows.append(NotedFailure(event, by, ended))
            self._noted.note(event.id, rows[-1])
            return
        self._noted.note(by, 1)
        if rows:
            rows[-1].repeated += 1

    def flush(self) -> None:
        self._flooded = {group for group, rows in self._in_beat.items() if not rows or rows[-1].repeated}
        self._in_beat = {}
        self._noted.flush()


def drop_before(moment: datetime, *, most: int | None = None) -> int:
    """Removes rows older than a moment, DROPPED_AT_ONCE in a transaction, until `most`. Returns how many."""
    dropped = 0
    while most is None or dropped < most:
        old = RequestFailure.objects.filter(created_at__lt=moment).order_by("created_at")
        gone = RequestFailure.objects.filter(pk__in=old.values("pk")[:DROPPED_AT_ONCE]).delete()[0]
        dropped += gone
        if gone < DROPPED_AT_ONCE:
            break
    return dropped


def kept_since(now: datetime) -> datetime:
    """Returns the moment before which failures are not kept (GATEWAY_FAILURE_DAYS)."""
    return now - timedelta(days=settings.GATEWAY_FAILURE_DAYS)


def drop_some() -> bool:
    """Removes some old failures, and tells whether there may be more.

    Workers call it, so that old failures go even if `maintain` does not run.
    """
    return drop_before(kept_since(timezone.now()), most=DROPPED_AT_ONCE) == DROPPED_AT_ONCE


def _located(event: RequestEvent) -> tuple[str, str, str]:
    """Returns the provider, model and region of the route, or of the requested model; unknown ones are empty."""
    if event.route:
        provider, _, rest = event.route.partition("/")
        model, _, region = rest.rpartition("/")
        return provider, model, region
    try:
        asked, catalogue = parse_model_id(event.model[:LONGEST_ASKED]), snapshot.current()
    except ApiError:
        return "", "", ""
    if isinstance(asked, AutoId) and asked.canonical_id in catalogue.by_canonical_id:
        return AUTO, asked.canonical_id, ""
    if isinstance(asked, ExplicitId):
        offer = catalogue.offers.get((asked.provider, asked.canonical_id))
        if offer is not None:
            locode = asked.locode or offer.default_locode
            return asked.provider, asked.canonical_id, locode if locode in offer.routes else ""
    return "", "", ""


def _alias_asked(event: RequestEvent) -> AccountAlias | None:
    """Returns the alias that a request asked for, if it was refused before it was looked up."""
    if event.alias_id is not None or event.account_id is None or event.code == AliasNotFound.code:
        return None
    try:
        asked = parse_model_id(event.model[:LONGEST_ASKED])
    except ApiError:
        return None
    return AccountAlias(event.account_id, asked.name) if isinstance(asked, AliasId) else None


def _row(noted: NotedFailure, counted: FailureGroup) -> RequestFailure:
    event = noted.event
    attempt = event.attempts[-1] if event.attempts else None
    return RequestFailure(
        id=event.id,
        created_at=noted.ended,
        account_id=event.account_id,
        key_id=event.key_id,
        alias_id=None if counted.alias_id == NOBODY else counted.alias_id,
        endpoint=event.endpoint,
        asked=_clean(event.model[: LONGEST_ASKED + BEYOND], LONGEST_ASKED),
        provider=counted.provider,
        model=counted.model,
        region=counted.region,
        status=event.status,
        outcome=counted.outcome,
        code=(event.code or "")[:100],
        message=_clean(event.message[: LONGEST_MESSAGE + BEYOND], LONGEST_MESSAGE),
        upstream_status=(attempt.status or None) if attempt else None,
        duration_ms=round(event.duration * 1000),
        has_record=event.generation_id is not None,
        repeated=noted.repeated,
    )


def _write(batch: dict[UUID | CountKey, Any]) -> None:
    """Writes rows and counts in one transaction."""
    noted = [each for each in batch.values() if isinstance(each, NotedFailure)]
    waiting = {by: number for by, number in batch.items() if isinstance(by, CountKey)}
    named = {by.alias for by in (*waiting, *(each.by for each in noted)) if by.alias is not None}
    ids = ids_of_aliases(named) if named and ids_of_aliases is not None else {}

    def counted(by: CountKey) -> FailureGroup:
        found = None if by.alias is None else ids.get(by.alias)
        return by.columns if found is None else by.columns._replace(alias_id=found)

    requests: Counter[FailureGroup] = Counter(counted(each.by) for each in noted)
    for by, number in waiting.items():
        requests[counted(by)] += number
    counts = sorted(requests.items())  # so that workers that write the same rows cannot deadlock
    rows = [_row(each, counted(each.by)) for each in noted]
    try:
        _insert(rows, counts)
    except IntegrityError:
        written = dict(RequestFailure.objects.filter(pk__in=[row.pk for row in rows]).values_list("pk", "created_at"))
        if not written:
            raise
        if any(written.get(row.pk) == row.created_at for row in rows):
            return  # an earlier try had committed all of them, and its reply was lost
        # A request that took over an Idempotency-Key has the id of the first one, and both may fail.
        for row in rows:
            if row.pk in written:
                row.pk, row.has_record = uuid7(), False  # the row of the other leads to a record, if there is one
        _insert(rows, counts)


def _insert(rows: list[RequestFailure], counts: list[tuple[FailureGroup, int]]) -> None:
    with transaction.atomic():
        RequestFailure.objects.bulk_create(rows, batch_size=ROWS_IN_A_STATEMENT)
        for start in range(0, len(counts), ROWS_IN_A_STATEMENT):
            _add(counts[start : start + ROWS_IN_A_STATEMENT])


def _add(counts: list[tuple[FailureGroup, int]]) -> None:
    parameters: list[Any] = []
    for counted, requests in counts:
        values = {**counted._asdict(), "requests": requests}
        parameters += (_COLUMNS[name].get_db_prep_value(value, connection) for name, value in values.items())
    with connection.cursor() as cursor:
        cursor.execute(_ADD % ", ".join([_ROW] * len(counts)), parameters)


def _clean(text: str, longest: int) -> str:
    """Removes secrets and control characters from a text, and cuts it short."""
    words = text if text.isprintable() else "".join(char if char.isprintable() else " " for char in text)
    # The gateway's own address is no secret: a refusal names the page with the way out.
    own: str = settings.PUBLIC_URL
    clean = own.join(map(without_secrets, words.split(own)))
    return clean if len(clean) <= longest else clean[: longest - 1] + "…"


failure_log = FailureLog()
