"""A period's statement as a download."""

from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.utils.text import slugify

from accounts.pages import Place, account_page
from billing.periods import this_month
from billing.statement import Totals, lines
from billing.statement_formats import FORMATS
from billing.statement_forms import StatementForm


@account_page("GET")  # no HEAD: it would read the whole statement for nothing
def statement(request: HttpRequest, place: Place) -> HttpResponseBase:
    """Streamed: `since`, `until` and `format`, each with a default. A bound at fault leads back to the credit page."""
    chosen = request.GET.get("format", "csv")
    if chosen not in FORMATS:
        return refused(f"format: {chosen!r} is none of {', '.join(FORMATS)}.")
    asked = StatementForm(request.GET.dict(), this_month(timezone.now()))
    if not asked.is_valid():
        fields = {"account": place.account.pk, "since": asked["since"].value(), "until": asked["until"].value()}
        return redirect(f"{reverse('credit')}?{urlencode(fields)}#statement")
    form, period = FORMATS[chosen], asked.period
    name = f"{slugify(place.account.name) or place.account.pk}-{period.since:%Y-%m-%d}-{period.until:%Y-%m-%d}.{chosen}"
    return StreamingHttpResponse(
        form.blocks(lines(place.account, period, Totals())),
        content_type=form.content_type,
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


def refused(message: str) -> HttpResponse:
    """What a download says when it cannot be had: plain text, which nobody takes for the file."""
    return HttpResponseBadRequest(f"{message}\n", content_type="text/plain; charset=utf-8")
