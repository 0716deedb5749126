"""Adds up an account's usage for `GET /v1/usage` (docs/management.md#ledger-and-usage), exactly as its records do."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.utils import timezone

from accounts.models import ApiKey
from gateway.edge.rfc3339 import to_text
from gateway.errors import InvalidRequest
from gateway.money import plain

from ..models import NOBODY, FailureDay, Generation
from .statistics import Days, GroupColumn, Row, Scope, Totals, breakdown, failures_by, hourly

Json = dict[str, Any]
LONGEST_HOURS = timedelta(days=31)  # hours are added up from the records, days from their sums
LONGEST_DAYS = timedelta(days=3660)
EARLIEST_YEAR, LATEST_YEAR = 1970, 9000
USUAL_TIME = timedelta(days=30)
GROUPS = {
    "key": GroupColumn.KEY,
    "model": GroupColumn.MODEL,
    "provider": GroupColumn.PROVIDER,
    "region": GroupColumn.REGION,
    "alias": GroupColumn.ALIAS,
    "endpoint": GroupColumn.ENDPOINT,
    "tag": GroupColumn.TAG,
}
ENDPOINTS = {  # the endpoints of failures, which are paths, in the words of records
    "chat/completions": Generation.Endpoint.CHAT.value,
    "completions": Generation.Endpoint.COMPLETION.value,
    "embeddings": Generation.Endpoint.EMBEDDING.value,
    "responses": Generation.Endpoint.RESPONSES.value,
    "messages": Generation.Endpoint.MESSAGES.value,
}


UNKNOWN = (NOBODY, "")  # in the columns of failures
# Finds the names of an account's aliases. The app `aliases` sets it, since billing must not import that app.
names_of_aliases: Callable[[UUID, Collection[UUID]], Mapping[UUID, str]] | None = None


@dataclass(frozen=True, slots=True)
class UsageQuery:
    """Holds the whole buckets between two moments, and what they are grouped by."""

    account_id: UUID
    since: datetime
    until: datetime
    bucket: str
    groups: tuple[str, ...]

    @property
    def days(self) -> Days:
        return Days(self.since.date(), (self.until - timedelta(microseconds=1)).date())

    @property
    def columns(self) -> tuple[GroupColumn, ...]:
        """Returns what to read: a model's three-part id needs its provider too."""
        names = dict.fromkeys(GROUPS[name] for name in self.groups)
        if GroupColumn.MODEL in names:
            names[GroupColumn.PROVIDER] = None
        return tuple(names)


def in_whole_buckets(since: datetime | None, until: datetime | None, bucket: str) -> tuple[datetime, datetime]:
    """Returns the beginning of the first bucket and the end of the last.

    Without `until` the time ends now, and without `since` it is USUAL_TIME. Raises InvalidRequest.
    """
    for name, moment in (("since", since), ("until", until)):
        if moment is not None and not EARLIEST_YEAR <= moment.year <= LATEST_YEAR:
            raise InvalidRequest.of_field(name, f"must be from {EARLIEST_YEAR} to {LATEST_YEAR}.")
    until = until or timezone.now()
    since = since or until - USUAL_TIME
    if until <= since:
        raise InvalidRequest.of_field("until", "must be after `since`.")
    begin, end = begin_of(since.astimezone(UTC), bucket), begin_of(until.astimezone(UTC), bucket)
    if end < until:
        end = next_of(end, bucket)
    longest = LONGEST_HOURS if bucket == "hour" else LONGEST_DAYS
    if end - begin > longest:
        raise InvalidRequest.of_field("since", f"must be at most {longest.days} days before `until`.")
    return begin, end


def begin_of(moment: datetime, bucket: str) -> datetime:
    """Returns the first moment of the UTC hour, day or month that contains this one."""
    hour = moment.replace(minute=0, second=0, microsecond=0)
    if bucket == "hour":
        return hour
    day = hour.replace(hour=0)
    return day if bucket == "day" else day.replace(day=1)


def next_of(begin: datetime, bucket: str) -> datetime:
    """Returns the first moment of the next bucket."""
    if bucket == "hour":
        return begin + timedelta(hours=1)
    return begin + timedelta(days=1) if bucket == "day" else (begin + timedelta(days=31)).replace(day=1)


def rows_of(query: UsageQuery) -> list[tuple[datetime, tuple[Any, ...], Totals]]:
    """Returns the totals of each bucket and group in which there was a request, oldest first."""
    merged: dict[tuple[datetime, tuple[Any, ...]], Totals] = {}
    for moment, group, totals in [*_served(query), *_failed(query)]:
        at = begin_of(moment, query.bucket), group
        merged[at] = merged[at] + totals if at in merged else totals
    found = [(begin, group, totals) for (begin, group), totals in merged.items()]
    return sorted(found, key=lambda each: (each[0], [str(value or "") for value in each[1]]))


def counts_failures(query: UsageQuery) -> bool:
    """Tells whether failures can be counted: they are kept by day, and have no tags."""
    return query.bucket != "hour" and "tag" not in query.groups


def _served(query: UsageQuery) -> Iterator[tuple[datetime, tuple[Any, ...], Totals]]:
    scope = Scope(query.account_id)
    if query.bucket == "hour":
        for hour, row in hourly(scope, query.days, *query.columns):
            if query.since <= hour < query.until:
                yield hour, _group(row, query), row.totals
        return
    for row in breakdown(scope, query.days, GroupColumn.DAY, *query.columns):
        if row.day is not None:
            yield _midnight(row.day), _group(row, query), row.totals


def _failed(query: UsageQuery) -> Iterator[tuple[datetime, tuple[Any, ...], Totals]]:
    if not counts_failures(query):
        return
    days, columns = query.days, query.columns
    failures = FailureDay.objects.filter(account_id=query.account_id, day__range=(days.first, days.last))
    for found, totals in failures_by(failures, "day", *columns):
        values = dict(zip(("day", *columns), found, strict=True))
        if "endpoint" in values:
            values["endpoint"] = ENDPOINTS[values["endpoint"]]
        row = Row(totals, **{name: None if value in UNKNOWN else value for name, value in values.items()})
        yield _midnight(values["day"]), _group(row, query), totals


def _group(row: Row, query: UsageQuery) -> tuple[Any, ...]:
    return tuple(getattr(row, column) for column in query.columns)


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def shown(query: UsageQuery, rows: Sequence[tuple[datetime, tuple[Any, ...], Totals]]) -> list[Json]:
    """Returns rows as the API shows them. Money and footprints are decimal strings; what is unknown is left out."""
    keys = dict(ApiKey.objects.filter(pk__in=_values(query, rows, GroupColumn.KEY)).values_list("pk", "name"))
    aliases: Mapping[UUID, str] = {}
    if names_of_aliases is not None:
        aliases = names_of_aliases(query.account_id, _values(query, rows, GroupColumn.ALIAS))
    return [
        {
            "start": to_text(begin),
            "end": to_text(next_of(begin, query.bucket)),
            **_shown_group(dict(zip(query.columns, group, strict=True)), query, keys, aliases),
            **_figures(totals, with_failures=counts_failures(query)),
        }
        for begin, group, totals in rows
    ]


def _values(
    query: UsageQuery, rows: Sequence[tuple[datetime, tuple[Any, ...], Totals]], column: GroupColumn
) -> set[UUID]:
    """Returns the ids in a column of the groups, without None."""
    if column not in query.columns:
        return set()
    position = query.columns.index(column)
    return {group[position] for _, group, _ in rows} - {None}


def _shown_group(
    group: dict[GroupColumn, Any], query: UsageQuery, keys: Mapping[UUID, str], aliases: Mapping[UUID, str]
) -> Json:
    shown: Json = {}
    for name in query.groups:
        value = group[GROUPS[name]]
        match name:
            case "key":
                shown[name] = None if value is None else {"id": str(value), "name": keys.get(value, "")}
            case "model":
                parts = (group[GroupColumn.PROVIDER], value)
                shown[name] = "/".join(part for part in parts if part) or None
            case "alias":
                shown[name] = aliases.get(value)
            case _:
                shown[name] = value
    return shown


def _figures(totals: Totals, *, with_failures: bool) -> Json:
    figures: Json = {
        "requests": totals.requests,
        "prompt_tokens": totals.prompt_tokens,
        "completion_tokens": totals.completion_tokens,
        "cached_tokens": totals.cache_read_tokens,
        "cost": totals.cost,
        "energy_wh": totals.energy_wh,
        "energy_wh_low": totals.energy_wh_low,
        "energy_wh_high": totals.energy_wh_high,
        "carbon_gco2e": totals.carbon_gco2e,
    }
    if with_failures:
        figures["failures"] = totals.unserved
    return {
        name: plain(figure) if isinstance(figure, Decimal) else figure
        for name, figure in figures.items()
        if figure is not None
    }
