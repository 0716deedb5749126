"""The first page: one account's money, keys and requests."""

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from accounts.pages import Place, account_page
from billing.accounts import rate_warning
from billing.overview import read


@account_page()
def overview(request: HttpRequest, place: Place) -> HttpResponse:
    """What an account has, who may spend it and on what it went."""
    context = {
        "page": read(place.account, timezone.now()),
        "rate_warning": rate_warning(place.account),
        "public_url": settings.PUBLIC_URL,
    }
    return render(request, "billing/overview.html", place.context | context)
