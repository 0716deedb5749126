"""A period's statement as a download."""

from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest, HttpResponseBase, StreamingHttpResponse
from django.utils import timezone
from django.utils.text import slugify

from accounts.pages import Place, account_page
from billing.periods import InvalidPeriod, Period, this_month
from billing.statement import Totals, lines
from billing.statement_formats import FORMATS


@account_page("GET")  # no HEAD: it would read the whole statement for nothing
def statement(request: HttpRequest, place: Place) -> HttpResponseBase:
    """Streamed: `since`, `until` and `format`, each with a default."""
    month = this_month(timezone.now())
    chosen = request.GET.get("format", "csv")
    if chosen not in FORMATS:
        return refused(f"format: {chosen!r} is none of {', '.join(FORMATS)}.")
    try:
        period = Period.between(request.GET.get("since", month.since), request.GET.get("until", month.until))
    except InvalidPeriod as error:
        return refused(str(error))
    form = FORMATS[chosen]
    name = f"{slugify(place.account.name) or place.account.pk}-{period.since:%Y-%m-%d}-{period.until:%Y-%m-%d}.{chosen}"
    return StreamingHttpResponse(
        form.blocks(lines(place.account, period, Totals())),
        content_type=form.content_type,
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


def refused(message: str) -> HttpResponse:
    """What a download says when it cannot be had: plain text, which nobody takes for the file."""
    return HttpResponseBadRequest(f"{message}\n", content_type="text/plain; charset=utf-8")
