"""The pages on an account's requests: the records behind a choice of usage, newest first, and one record in full.

No page of the list costs more for lying deep.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from uuid import UUID

from django.core import signing
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils import timezone

from billing import keyset
from billing.endings import ENDINGS
from billing.keyset import Page, Position, newer_than, older_than
from billing.models import DailyUsage, Generation, UsageWatermark
from billing.rollups import BEGINNING
from billing.usage_statistics import Days, Scope
from gateway.ids import parse_generation_id

from . import usage_choice
from .access import AccountContext, account_context, account_page, signed_in_page

PAGE_ROWS = 50
INSTANT = timedelta(microseconds=1)  # the databases' smallest step of time

Window = tuple[datetime, datetime]  # the first moment of it, and the first one after it


@dataclass(frozen=True, slots=True)
class Tokens:
    """One kind of tokens, and their price per 1,000,000 in the record's `price_currency`; None where they have none."""

    kind: str
    number: int
    price: Decimal | None


@account_page()
def record_list(request: HttpRequest, current: AccountContext) -> HttpResponse:
    """The list, with the addresses of its neighbours. 422 where the days are none that could be shown."""
    choice, form = usage_choice.read(request.GET.dict(), current.account, "usage-records", timezone.now())
    context = current.template_context | {"choice": choice, "form": form, "usage_address": choice.to("usage")}
    if not form.errors:
        position = _position(request)
        try:
            listed = page(choice.scope, choice.days, before=position["before"], after=position["after"])
        except signing.BadSignature:
            raise Http404 from None
        context |= {
            "records": listed.rows,
            "older": listed.older and choice.to("usage-records", before=listed.older),
            "newer": listed.newer and choice.to("usage-records", after=listed.newer),
            "here": choice.query(**position),
        }
    return render(request, "dashboard/usage_records.html", context, status=422 if form.errors else 200)


@signed_in_page()
def record_detail(request: HttpRequest, generation_id: str) -> HttpResponse:
    """One record, for members of its account: from what it froze at admission, never from today's catalogue."""
    # No record has the id None, which is what a text that can be no id becomes.
    rows = Generation.objects.select_related("key", "ledger_entry")
    record = get_object_or_404(rows, pk=parse_generation_id(generation_id))
    current = account_context(request, record.account_id)
    choice, _ = usage_choice.read(request.GET.dict(), current.account, "usage-records", timezone.now())
    context = {
        "record": record,
        "back": choice.to("usage-records", **_position(request)),
        "tokens": _tokens(record),
        "entry": getattr(record, "ledger_entry", None),  # a record that was not billed has none
        "ending": ENDINGS[record.ending].text,
        "reason": (record.routing_reason or "").replace("_", " "),
        "fallback": (record.fallback_reason or "").replace("_", " "),
    }
    return render(request, "dashboard/usage_record.html", current.template_context | context)


def page(
    scope: Scope, days: Days, *, before: str | None = None, after: str | None = None, limit: int = PAGE_ROWS
) -> Page[Generation, str]:
    """A page of records with their keys. Raises BadSignature for another account's cursor."""

    def read(cursor: str | None, count: int, is_upwards: bool) -> list[Generation]:
        """So many records behind the cursor, in the order of reading."""
        position: Position | None = None
        if cursor is not None:
            created_at, identifier = signing.loads(cursor, salt=_salt(scope.account_id))
            position = datetime.fromisoformat(created_at), UUID(hex=identifier)
        records: list[Generation] = []
        windows = [window for window in _windows(scope, days) if _lies_ahead(window, position, is_upwards=is_upwards)]
        for window in windows if is_upwards else reversed(windows):
            records += select(scope, window, position, is_upwards=is_upwards)[: count - len(records)]
            if len(records) == count:
                break
        return records

    return keyset.page(read, cursor_of, limit, before=before, after=after)


def cursor_of(record: Generation) -> str:
    """The record's position, signed for its account."""
    return signing.dumps([record.created_at.isoformat(), record.pk.hex], salt=_salt(record.account_id))


def select(scope: Scope, window: Window, position: Position | None, *, is_upwards: bool) -> QuerySet[Generation]:
    """The records of a window behind a position, in the order of an index, from which they are read either way."""
    conditions = scope.of_records
    if scope.key_id is not None:  # by the key's account, so that there is one index to enter: the key's
        conditions["key__account_id"] = conditions.pop("account_id")
    records = Generation.objects.filter(**conditions, created_at__gte=window[0], created_at__lt=window[1])
    if is_upwards:
        records = records.select_related("key").order_by("created_at", "id")
        return records if position is None else newer_than(records, position)
    records = records.select_related("key").order_by("-created_at", "-id")
    return records if position is None else older_than(records, position)


def _position(request: HttpRequest) -> dict[str, str | None]:
    """Where among the records a page begins or ends."""
    return {name: request.GET.get(name) for name in ("before", "after")}


def _salt(account_id: UUID) -> str:
    return f"billing.usage_records/{account_id.hex}"  # as in addresses that people have kept


def _lies_ahead(window: Window, position: Position | None, *, is_upwards: bool) -> bool:
    begins, ends = window
    return position is None or (position[0] < ends if is_upwards else begins <= position[0])


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
    rows = DailyUsage.objects.filter(**scope.of_rows, day__range=(days.first, days.last))
    for begins, ends in _runs(list(rows.order_by("day").values_list("day", flat=True).distinct())):
        if begins < tail_begins:
            yield begins, min(ends, tail_begins)
    if tail_begins < days.before:
        yield max(tail_begins, days.since), days.before


def _runs(days: list[date]) -> Iterator[Window]:
    """Days that follow each other are one window."""
    while days:
        first = days[0]
        length = sum(1 for number, day in enumerate(days) if (day - first).days == number)
        run = Days(first, days[length - 1])
        yield run.since, run.before
        days = days[length:]


def _tokens(record: Generation) -> list[Tokens]:
    """The kinds that were reported, at the prices that they were billed at."""
    price = record.billed_price
    for_how_long = "" if record.cache_write_1h_tokens is None else " for 5 minutes"
    kinds = (
        ("Prompt", record.uncached_prompt_tokens, price.prompt),
        ("Prompt, read from the cache", record.cache_read_tokens, price.of_cache_read),
        (f"Prompt, written to the cache{for_how_long}", record.cache_write_5m_tokens, price.of_cache_write_5m),
        ("Prompt, written to the cache for 1 hour", record.cache_write_1h_tokens, price.of_cache_write_1h),
        ("Completion", record.completion_tokens, price.completion),
        ("of it reasoning", record.reasoning_tokens, None),
    )
    return [Tokens(kind, number, price) for kind, number, price in kinds if number is not None]
