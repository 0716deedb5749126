"""Shows the pages on an account's requests: the list, newest first, and one request in full."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any, Self, cast
from uuid import UUID

import orjson
from django.conf import settings
from django.core import signing
from django.db.models import F, Q, QuerySet, Sum
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils import timezone

from aliases.names import names_of_aliases
from billing.ledger.endings import ENDINGS
from billing.models import DailyUsage, FailureDay, Generation, RequestFailure, UsageWatermark
from billing.usage import keyset
from billing.usage.keyset import Page, Position, Record, newer_than, older_than
from billing.usage.replica import from_replica
from billing.usage.rollups import BEGINNING
from billing.usage.statistics import Days, Scope
from catalogue.pricing import numbers_of, without_prices
from catalogue.routing import health
from catalogue.routing.health import CallCounts
from gateway.ids import generation_id, parse_generation_id, parse_request_id, request_id
from gateway.observing.request_events import Outcome

from .parts import choices
from .parts.access import AccountContext, account_context, account_page, signed_in_page
from .parts.advice import explained
from .parts.filters import FAILURES, NAMES, OUTCOMES, SERVED, filters
from .parts.policy_words import excluded_routes
from .parts.routes import listed_models, other_routes

PAGE_ROWS = 50
LONGEST_SEARCH = 100  # characters of a search that the page shows again
INSTANT = timedelta(microseconds=1)  # the smallest unit of time in the databases

Row = Generation | RequestFailure
Window = tuple[datetime, datetime]  # its first moment, and the first moment after it


@dataclass(frozen=True, slots=True)
class Tokens:
    """Holds the number of one kind of tokens, and its price per 1,000,000 if there is one."""

    kind: str
    number: int
    price: Decimal | None


@dataclass(frozen=True, slots=True)
class RequestFilter:
    """Selects which requests are listed: records, failures or both."""

    records: bool = True
    failures: bool = True
    conditions: Mapping[str, Any] = field(default_factory=dict)  # for failures

    @classmethod
    def read(cls, query: Mapping[str, str]) -> Self:
        """Reads the selection from an address. Raises Http404 for an unknown outcome or status."""
        outcome, status = query.get("outcome"), query.get("status")
        if outcome == SERVED and status is None:
            return cls(failures=False)
        if (outcome not in (None, *OUTCOMES)) or (status is not None and not re.fullmatch("[1-5][0-9]{2}", status)):
            raise Http404
        if outcome is None and status is None:
            return cls(conditions={"has_record": False})  # a broken stream with a record is listed by its record
        conditions: dict[str, Any] = {} if outcome in (None, FAILURES) else {"outcome": outcome}
        return cls(records=False, conditions=conditions if status is None else conditions | {"status": int(status)})


EVERYTHING = RequestFilter(conditions={"has_record": False})


@account_page()
@from_replica
def record_list(request: HttpRequest, current: AccountContext) -> HttpResponseBase:
    """Lists requests. Answers 422 if the days are invalid."""
    # A search (`q`) for an id leads to its page, in any of the person's accounts.
    wanted = request.GET.get("q", "").strip()
    choice, form, shown = _read(request, current)
    if wanted and (address := _address_of(wanted, current, choice)):
        return redirect(address)
    context = {
        "choice": choice,
        "form": form,
        "searched": wanted[:LONGEST_SEARCH],
        "usage_address": choice.to("usage", outcome=None, status=None),
        "kept_days": settings.GATEWAY_FAILURE_DAYS,
    }
    if not form.errors:
        position = _position(request)
        try:
            listed = page(choice.scope, choice.days, shown, before=position["before"], after=position["after"])
        except signing.BadSignature:
            raise Http404 from None
        context |= {
            "records": listed.rows,
            "listed_models": listed_models(listed.rows),
            "older": listed.older and choice.to("usage-records", before=listed.older),
            "newer": listed.newer and choice.to("usage-records", after=listed.newer),
            "here": choice.query(**position),
            "filters": filters(choice),
        }
    return current.page(request, "usage_records", context, form)


@signed_in_page()
def record_detail(request: HttpRequest, generation_id: str) -> HttpResponse:
    """Shows a record with the terms frozen at its admission, never with today's catalogue."""
    # A text that cannot be an id becomes None, which finds no record.
    rows = Generation.objects.select_related("key", "ledger_entry", "terms")
    record = get_object_or_404(rows, pk=parse_generation_id(generation_id))
    current = account_context(request, record.account_id)
    choice, _, _ = _read(request, current)
    context = {
        "record": record,
        "failure": RequestFailure.objects.filter(pk=record.pk, account=current.account).first(),
        "back": choice.to("usage-records", **_position(request)),
        "tokens": _tokens(record),
        "reported": _reported(record),
        "entry": getattr(record, "ledger_entry", None),  # None if the record was not billed
        "ending": (record.cost is None and ENDINGS[record.ending].uncharged_text) or ENDINGS[record.ending].text,
        "reason": (record.routing_reason or "").replace("_", " "),
        "fallback": (record.fallback_reason or "").replace("_", " "),
        "not_used": excluded_routes(record),
    }
    return current.page(request, "usage_record", context)


def _reported(record: Generation) -> str:
    """Returns the numbers of the provider's usage as JSON, without the operator's costs."""
    kept = without_prices(numbers_of(orjson.loads(record.upstream_usage or "null")))
    return orjson.dumps(kept).decode() if kept else ""


@signed_in_page()
def failure_detail(request: HttpRequest, request_id: str) -> HttpResponseBase:
    """Shows why a request failed, or redirects to its record if it has one."""
    rows = RequestFailure.objects.select_related("key").exclude(account=None)
    failure = get_object_or_404(rows, pk=parse_request_id(request_id))
    current = account_context(request, failure.account_id)
    if failure.has_record and Generation.objects.filter(pk=failure.pk).exists():  # otherwise it waits in the spool
        return redirect("usage-record", generation_id=failure.generation_id)
    choice, _, _ = _read(request, current)
    now = timezone.now()
    is_the_providers = bool(failure.region) and failure.outcome in (Outcome.FAILED, Outcome.BROKEN)
    context = {
        "failure": failure,
        "on_route": _on_route(failure, now) if is_the_providers else None,
        "other_routes": other_routes(failure, current.account.currency, now) if is_the_providers else [],
        "explained": explained(failure),
        "alias": names_of_aliases(current.account.pk, [failure.alias_id] if failure.alias_id else []),
        "back": choice.to("usage-records", **_position(request)),
        "kept_days": settings.GATEWAY_FAILURE_DAYS,
    }
    return current.page(request, "request_failure", context)


def _on_route(failure: RequestFailure, now: datetime) -> CallCounts:
    """Counts the account's requests over the failure's route in the last hour, and the failed ones. Two SELECTs."""
    names = ("account_id", "provider", "model", "region")
    same = {name: getattr(failure, name) for name in names} | {"created_at__gt": now - health.HOUR}
    served = Generation.objects.filter(**same).count()
    count, is_failed = F("repeated") + 1, Q(outcome__in=[Outcome.FAILED, Outcome.BROKEN])
    others = RequestFailure.objects.filter(**same).aggregate(
        without_record=Sum(count, filter=Q(has_record=False), default=0), failed=Sum(count, filter=is_failed, default=0)
    )
    return CallCounts(served + others["without_record"], others["failed"])


def page(
    scope: Scope,
    days: Days,
    shown: RequestFilter = EVERYTHING,
    *,
    before: str | None = None,
    after: str | None = None,
    limit: int = PAGE_ROWS,
) -> Page[Row, str]:
    """Returns a page of requests with their keys. Raises BadSignature for another account's cursor."""

    def read(cursor: str | None, count: int, is_upwards: bool) -> list[Row]:
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
    rows = rows.filter(**conditions, created_at__gte=window[0], created_at__lt=window[1]).select_related("key")
    rows = rows.order_by(*(("created_at", "id") if is_upwards else ("-created_at", "-id")))
    if position is None:
        return rows
    return newer_than(rows, position) if is_upwards else older_than(rows, position)


def _read(request: HttpRequest, current: AccountContext) -> tuple[choices.Choice, choices.DaysForm, RequestFilter]:
    query = {name: value for name, value in request.GET.dict().items() if value or name not in NAMES}
    extra = ("outcome", "status")
    choice, form = choices.read(query, current.account, "usage-records", timezone.now(), extra=extra)
    return choice, form, RequestFilter.read(query)


def _address_of(searched: str, current: AccountContext, choice: choices.Choice) -> str | None:
    """Returns the address of the request with this id. In the same account, its page leads back to the list."""
    id_ = parse_generation_id(searched.lower()) or parse_request_id(searched.lower())
    if id_ is None:
        return None
    addresses = (
        (Generation, reverse("usage-record", args=[generation_id(id_)])),
        (RequestFailure, reverse("usage-failure", args=[request_id(id_)])),
    )
    for table, address in addresses:
        rows = table._default_manager.filter(pk=id_, account__in=[account.pk for account in current.accounts])
        for account_id in rows.values_list("account", flat=True):
            return f"{address}?{choice.query()}" if account_id == current.account.pk else address
    return None


def _position(request: HttpRequest) -> dict[str, str | None]:
    return {name: request.GET.get(name) for name in ("before", "after")}


def _salt(account_id: UUID) -> str:
    return f"billing.usage_records/{account_id.hex}"  # unchanged, since people have bookmarked addresses with it


def _lies_ahead(window: Window, position: Position | None, *, is_upwards: bool) -> bool:
    begins, ends = window
    return position is None or (position[0] < ends if is_upwards else begins <= position[0])


def _windows(scope: Scope, days: Days) -> Iterator[Window]:
    """Yields the windows of time to search, oldest first."""
    # The indexes begin with the account or the key only, and requests narrowed further may be rare: they are looked for
    # on the days that have some according to the rollups, and in the tail, which is not rolled up yet.
    if scope == Scope(scope.account_id, scope.key_id):
        yield days.since, days.before
        return
    mark = UsageWatermark.objects.filter(account_id=scope.account_id).values_list("rolled_until", flat=True).first()
    tail_begins = BEGINNING if mark is None else mark + INSTANT
    rows = DailyUsage.objects.filter(**scope.of_rows, day__range=(days.first, days.last))
    for begins, ends in _runs(list(rows.order_by("day").values_list("day", flat=True).distinct())):
        if begins < tail_begins:
            yield begins, min(ends, tail_begins)
    if tail_begins < days.before:
        yield max(tail_begins, days.since), days.before


def _failure_windows(scope: Scope, days: Days, *, shown: RequestFilter) -> Iterator[Window]:
    # As `_windows`, but without a tail, since failures are counted when they are written. They have no tags.
    if scope.tag is not None:
        return
    conditions = {name: value for name, value in shown.conditions.items() if name != "has_record"}
    if not conditions and scope == Scope(scope.account_id, scope.key_id):
        yield days.since, days.before
        return
    counts = FailureDay.objects.filter(**scope.of_rows, **conditions, day__range=(days.first, days.last))
    yield from _runs(list(counts.order_by("day").values_list("day", flat=True).distinct()))


def _runs(days: list[date]) -> Iterator[Window]:
    """Joins days that follow each other into one window."""
    while days:
        first = days[0]
        length = sum(1 for number, day in enumerate(days) if (day - first).days == number)
        run = Days(first, days[length - 1])
        yield run.since, run.before
        days = days[length:]


def _tokens(record: Generation) -> list[Tokens]:
    price, is_embedding = record.billed_price, record.endpoint == Generation.Endpoint.EMBEDDING
    for_how_long = "" if record.cache_write_1h_tokens is None else " for 5 minutes"
    kinds = (
        ("Prompt", record.uncached_prompt_tokens, None if price is None else price.prompt),
        ("Cached prompt", record.cache_read_tokens, None if price is None else price.of_cache_read),
        (
            f"Cache write{for_how_long}",
            record.cache_write_5m_tokens,
            None if price is None else price.of_cache_write_5m,
        ),
        ("Cache write for 1 hour", record.cache_write_1h_tokens, None if price is None else price.of_cache_write_1h),
        ("Completion", record.completion_tokens, None if is_embedding or price is None else price.completion),
        ("of which reasoning", record.reasoning_tokens, None),
    )
    return [Tokens(kind, number, price) for kind, number, price in kinds if number is not None]
