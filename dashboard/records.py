"""Shows the pages on an account's requests: the list, its CSV, and one request in full."""

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

import orjson
from django.conf import settings
from django.core import signing
from django.db.models import F, Q, Sum
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode

from aliases.names import names_of_aliases
from billing.ledger.endings import ENDINGS
from billing.models import Generation, RequestFailure
from billing.usage.replica import from_replica
from billing.usage.statement import csv_blocks
from catalogue.pricing import numbers_of, without_prices
from catalogue.routing import health
from catalogue.routing.health import CallCounts
from gateway.ids import parse_generation_id, parse_request_id
from gateway.observing.request_events import Outcome

from .parts import choices
from .parts.access import AccountContext, account_context, account_page, signed_in_page
from .parts.advice import explained
from .parts.downloads import download, refused_choice
from .parts.filters import NAMES, filters
from .parts.policy_words import excluded_routes
from .parts.request_list import CSV_COLUMNS, PAGE_ROWS, RequestFilter, Row, csv_lines, id_range, of_ids, page
from .parts.routes import listed_models, other_routes

LONGEST_SEARCH = 100  # characters of a search that the page shows again
OLDEST_FIRST = "oldest"  # in the address
# After these errors another route of the model may work, as after errors of the provider.
OF_ROUTE = frozenset(
    {
        "model_not_found",
        "model_unavailable",
        "policy_denied",
        "provider_not_configured",
        "provider_quota_exhausted",
        "provider_unavailable",
    }
)
OF_LIST = ("outcome", "status", "code", "sort")  # fields of its address that other pages do not have


@dataclass(frozen=True, slots=True)
class Tokens:
    """Holds the number of one kind of tokens, and its price per 1,000,000 if there is one."""

    kind: str
    number: int
    price: Decimal | None


@account_page()
@from_replica
def record_list(request: HttpRequest, current: AccountContext) -> HttpResponseBase:
    """Lists requests. Answers 422 if the days are invalid."""
    # A search (`q`) for a whole id leads to its page, in any of the person's accounts. The beginning of an id leads to
    # the page of the only request of this account that has it, or lists those that have it.
    wanted = request.GET.get("q", "").strip()
    choice, form, shown = _read(request, current)
    matches = _matches(wanted, current)
    if len(matches) == 1:
        account_id, address = matches[0].account_id, _address_of(matches[0])
        return redirect(f"{address}?{choice.query()}" if account_id == current.account.pk else address)
    is_oldest_first = choice.extra.get("sort") == OLDEST_FIRST
    context = {
        "choice": choice,
        "form": form,
        "searched": wanted[:LONGEST_SEARCH],
        "matches": matches[:PAGE_ROWS],
        "has_more_matches": len(matches) > PAGE_ROWS,
        "usage_address": choice.to("usage", **dict.fromkeys(OF_LIST)),
        "kept_days": settings.GATEWAY_FAILURE_DAYS,
    }
    if not form.errors:
        before, after = request.GET.get("before"), request.GET.get("after")
        try:
            listed = page(choice.scope, choice.days, shown, before=before, after=after, is_oldest_first=is_oldest_first)
        except signing.BadSignature:
            raise Http404 from None
        context |= {
            "records": listed.rows,
            "listed_models": listed_models(matches or listed.rows),
            "next": listed.older and choice.to("usage-records", before=listed.older),
            "previous": listed.newer and choice.to("usage-records", after=listed.newer),
            "is_oldest_first": is_oldest_first,
            "other_order": choice.to("usage-records", sort=None if is_oldest_first else OLDEST_FIRST),
            "export_address": choice.to("usage-records-export"),
            "here": choice.query(**_position(request)),
            "filters": filters(choice),
            "is_filtered": bool({*NAMES} & {*choice.narrowing, *choice.extra}),
            "cleared": choice.to("usage-records", **dict.fromkeys(NAMES)),
        }
    return current.page(request, "usage_records", context, form)


@account_page("GET")  # no HEAD: it would read everything for nothing
@from_replica
def record_export(request: HttpRequest, current: AccountContext) -> HttpResponseBase:
    """Streams the requests of the list as CSV. Answers 400 if its days are invalid."""
    choice, form, shown = _read(request, current)
    if form.errors:
        return refused_choice(form)
    is_oldest_first = choice.extra.get("sort") == OLDEST_FIRST
    lines = csv_lines(choice.scope, choice.days, shown, is_oldest_first=is_oldest_first)
    name = f"requests-{choice.days.first}-{choice.days.last}.csv"
    return download(csv_blocks(lines, CSV_COLUMNS), "text/csv; charset=utf-8", current, name)


@signed_in_page()
def record_detail(request: HttpRequest, generation_id: str) -> HttpResponse:
    """Shows a record with the terms frozen at its admission, never with today's catalogue."""
    # A text that cannot be an id becomes None, which finds no record.
    rows = Generation.objects.select_related("key", "ledger_entry__leaf", "terms").defer("ledger_entry__leaf__content")
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
    similar, of_similar = _similar(failure, now)
    is_the_providers = bool(failure.region) and failure.outcome in (Outcome.FAILED, Outcome.BROKEN)
    context = {
        "failure": failure,
        "on_route": _on_route(failure, now) if is_the_providers else None,
        "other_routes": other_routes(failure, current.account, now)
        if is_the_providers or failure.code in OF_ROUTE
        else [],
        "explained": explained(failure),
        "similar": similar,
        "similar_address": f"{reverse('usage-records')}?{urlencode(of_similar)}",
        "has_model_page": bool(listed_models([failure])),
        "alias": names_of_aliases(current.account.pk, [failure.alias_id] if failure.alias_id else []),
        "back": choice.to("usage-records", **_position(request)),
        "kept_days": settings.GATEWAY_FAILURE_DAYS,
    }
    return current.page(request, "request_failure", context)


def _similar(failure: RequestFailure, now: datetime) -> tuple[int, dict[str, str]]:
    """Counts the last hour's failures of the same code and route, and returns the fields of the list's address."""
    begins = now - health.HOUR
    alike = {"code": failure.code} if failure.code else {"outcome": failure.outcome}
    place, address = {}, {}
    if failure.provider and failure.model:
        place, address = (
            {"provider": failure.provider, "model": failure.model},
            {"model": f"{failure.provider}/{failure.model}"},
        )
        if failure.region:
            place["region"] = address["region"] = failure.region
    rows = RequestFailure.objects.filter(account=failure.account, created_at__gt=begins, **alike, **place)
    days = {"since": f"{begins.astimezone(UTC):%Y-%m-%d}", "until": f"{now.astimezone(UTC):%Y-%m-%d}"}
    found = rows.aggregate(requests=Sum(F("repeated") + 1, default=0))["requests"]
    return found, {"account": str(failure.account_id), **days, **alike, **address}


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


def _read(request: HttpRequest, current: AccountContext) -> tuple[choices.Choice, choices.DaysForm, RequestFilter]:
    query = {name: value for name, value in request.GET.dict().items() if value or name not in NAMES}
    if query.get("sort") not in (None, OLDEST_FIRST):
        raise Http404
    choice, form = choices.read(query, current.account, "usage-records", timezone.now(), extra=OF_LIST)
    return choice, form, RequestFilter.read(query)


def _matches(searched: str, current: AccountContext) -> list[Row]:
    """Returns the requests whose id begins with a text, newest first, and one more than a page if there are as many."""
    ids = id_range(searched)
    if ids is None:
        return []
    own = of_ids(current.account.pk, ids, PAGE_ROWS + 1)
    if own or ids[0] != ids[1]:
        return own
    return [row for account in current.accounts if account != current.account for row in of_ids(account.pk, ids, 1)]


def _address_of(row: Row) -> str:
    if isinstance(row, RequestFailure):
        return reverse("usage-failure", args=[row.request_id])
    return reverse("usage-record", args=[row.public_id])


def _position(request: HttpRequest) -> dict[str, str | None]:
    return {name: request.GET.get(name) for name in ("before", "after")}


def _tokens(record: Generation) -> list[Tokens]:
    price, is_embedding = record.billed_price, record.endpoint == Generation.Endpoint.EMBEDDING
    for_how_long = "" if record.cache_write_1h_tokens is None else " (5 min TTL)"
    kinds = (
        ("Prompt", record.uncached_prompt_tokens, None if price is None else price.prompt),
        ("Cached prompt", record.cache_read_tokens, None if price is None else price.of_cache_read),
        (
            f"Cache write{for_how_long}",
            record.cache_write_5m_tokens,
            None if price is None else price.of_cache_write_5m,
        ),
        ("Cache write (1 h TTL)", record.cache_write_1h_tokens, None if price is None else price.of_cache_write_1h),
        ("Completion", record.completion_tokens, None if is_embedding or price is None else price.completion),
        ("of which reasoning", record.reasoning_tokens, None),
    )
    return [Tokens(kind, number, price) for kind, number, price in kinds if number is not None]
