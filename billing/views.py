"""The dashboard's pages on money and use."""

from typing import cast
from uuid import UUID

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from accounts.models import Account, User

from .overview import accounts_of, read


@require_safe
@never_cache
@login_required
def overview(request: HttpRequest) -> HttpResponse:
    """One account's money, keys and requests; the first by name unless `?account=` names another of one's own."""
    accounts = list(accounts_of(cast(User, request.user)))
    if not accounts:
        return render(request, "billing/no_account.html")
    account = _chosen(accounts, request.GET.get("account"))
    context = {
        "page": read(account, timezone.now()),
        "account": account,
        "accounts": accounts,
        "public_url": settings.PUBLIC_URL,
    }
    return render(request, "billing/overview.html", context)


def _chosen(accounts: list[Account], wanted: str | None) -> Account:
    """The account asked for. One of somebody else's is 404, like one that does not exist."""
    if wanted is None:
        return accounts[0]
    try:
        identifier = UUID(wanted)
    except ValueError:
        raise Http404 from None
    for account in accounts:
        if account.pk == identifier:
            return account
    raise Http404
