"""The dashboard's pages on money and use."""

from datetime import datetime
from typing import NamedTuple, cast
from uuid import UUID

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseBadRequest,
    HttpResponseBase,
    StreamingHttpResponse,
)
from django.shortcuts import render
from django.utils import timezone
from django.utils.text import slugify
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_safe

from accounts.models import Account, User

from .overview import accounts_of, read
from .periods import InvalidPeriod, Period
from .statement import Totals, lines
from .statement_formats import FORMATS


@require_safe
@never_cache
@login_required
def overview(request: HttpRequest) -> HttpResponse:
    """One account's money, keys and requests; the first by name unless `?account=` names another of one's own."""
    accounts = list(accounts_of(cast(User, request.user)))
    if not accounts:
        return render(request, "billing/no_account.html")
    account = chosen_account(accounts, request.GET.get("account"))
    now = timezone.now()
    context = {
        "page": read(account, now),
        "month": _this_month(now),
        "account": account,
        "accounts": accounts,
        "public_url": settings.PUBLIC_URL,
    }
    return render(request, "billing/overview.html", context)


@require_GET  # no HEAD: it would read the whole statement for nothing
@never_cache
@login_required
def statement(request: HttpRequest) -> HttpResponseBase:
    """A period's statement as a download, streamed: `account`, `since`, `until` and `format`, each with a default."""
    accounts = list(accounts_of(cast(User, request.user)))
    account = chosen_account(accounts, request.GET.get("account"))
    month = _this_month(timezone.now())
    chosen = request.GET.get("format", "csv")
    if chosen not in FORMATS:
        return _refused(f"format: {chosen!r} is none of {', '.join(FORMATS)}.")
    try:
        period = Period.between(request.GET.get("since", month.since), request.GET.get("until", month.until))
    except InvalidPeriod as error:
        return _refused(str(error))
    form = FORMATS[chosen]
    name = f"{slugify(account.name) or account.pk}-{period.since:%Y-%m-%d}-{period.until:%Y-%m-%d}.{chosen}"
    return StreamingHttpResponse(
        form.blocks(lines(account, period, Totals())),
        content_type=form.content_type,
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


class Month(NamedTuple):
    """The days that a statement is of unless it is asked for another time."""

    since: str
    until: str


def _this_month(now: datetime) -> Month:
    return Month(f"{now:%Y-%m}-01", f"{now:%Y-%m-%d}")


def _refused(message: str) -> HttpResponse:
    return HttpResponseBadRequest(f"{message}\n", content_type="text/plain; charset=utf-8")


def chosen_account(accounts: list[Account], wanted: str | None) -> Account:
    """The account asked for. One of somebody else's is 404, like one that does not exist."""
    if wanted is None and accounts:
        return accounts[0]
    try:
        identifier = UUID(wanted or "")
    except ValueError:
        raise Http404 from None
    for account in accounts:
        if account.pk == identifier:
            return account
    raise Http404
