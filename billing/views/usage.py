"""The pages on an account's usage: sums and charts, the records behind them, one record, and a download."""

from typing import Any

from django.core.signing import BadSignature
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.text import slugify

from accounts.pages import Place, account_page, member_page, place_in
from billing import usage_choice, usage_export, usage_page, usage_record, usage_records
from billing.models import Generation
from billing.statement_formats import csv_blocks
from billing.usage_choice import Choice
from billing.usage_forms import DaysForm
from billing.views.statement import refused
from gateway.ids import parse_generation_id


@account_page()
def usage(request: HttpRequest, place: Place) -> HttpResponse:
    """What was used on some days, in total, by day and by group."""
    choice, form = _chosen(request, place, "usage")
    context = place.context | {"choice": choice, "form": form}
    if not form.errors:
        context |= {"page": usage_page.read(choice), "records_address": choice.to("usage-records")}
        context |= {"export_address": choice.to("usage-export")}
    return render(request, "billing/usage.html", context, status=_status(form))


@account_page()
def records(request: HttpRequest, place: Place) -> HttpResponse:
    """The requests themselves, newest first."""
    choice, form = _chosen(request, place, "usage-records")
    context = place.context | {"choice": choice, "form": form, "usage_address": choice.to("usage")}
    if not form.errors:
        context |= _page(request, choice)
    return render(request, "billing/usage_records.html", context, status=_status(form))


@member_page()
def record(request: HttpRequest, generation_id: str) -> HttpResponse:
    """Everything that is known of one request, for members of its account."""
    found = _record(generation_id)
    place = place_in(request, found.account_id)
    choice, _ = _chosen(request, place, "usage-records")
    context = {
        "record": found,
        "back": choice.to("usage-records", **_position(request)),
        "tokens": usage_record.tokens_of(found),
        "entry": usage_record.entry_of(found),
        "ending": usage_record.ENDINGS[found.ending],
        "reason": (found.routing_reason or "").replace("_", " "),
        "fallback": (found.fallback_reason or "").replace("_", " "),
    }
    return render(request, "billing/usage_record.html", place.context | context)


@account_page("GET")  # no HEAD: it would read everything for nothing
def export(request: HttpRequest, place: Place) -> HttpResponseBase:
    """The sums by day and group as CSV, streamed."""
    choice, form = _chosen(request, place, "usage-export")
    if form.errors:
        return refused("\n".join(f"{name}: {error}" for name, errors in form.errors.items() for error in errors))
    days = choice.days
    name = f"{slugify(place.account.name) or place.account.pk}-usage-{days.first}-{days.last}-by-{choice.by}.csv"
    return StreamingHttpResponse(
        csv_blocks(usage_export.lines(choice), usage_export.columns(choice.by)),
        content_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


def _chosen(request: HttpRequest, place: Place, page: str) -> tuple[Choice, DaysForm]:
    return usage_choice.read(request.GET.dict(), place.account, page, timezone.now())


def _page(request: HttpRequest, choice: Choice) -> dict[str, Any]:
    """The page of records, with the addresses of its neighbours."""
    position = _position(request)
    try:
        found = usage_records.page(choice.scope, choice.days, before=position["before"], after=position["after"])
    except BadSignature:
        raise Http404 from None
    older = found.older and choice.to("usage-records", before=found.older)
    newer = found.newer and choice.to("usage-records", after=found.newer)
    here = choice.query(**position)
    return {"records": found.rows, "older": older, "newer": newer, "here": here}


def _position(request: HttpRequest) -> dict[str, str | None]:
    """Where among the records a page begins or ends."""
    return {name: request.GET.get(name) for name in ("before", "after")}


def _record(generation_id: str) -> Generation:
    identifier = parse_generation_id(generation_id)
    found = None
    if identifier is not None:
        found = Generation.objects.select_related("key", "ledger_entry").filter(pk=identifier).first()
    if found is None:
        raise Http404
    return found


def _status(form: DaysForm) -> int:
    return 422 if form.errors else 200
