"""The first page: one account's balance, keys, newest requests and last 30 days."""

from datetime import datetime
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from accounts.models import Account
from billing.accounts import rate_warning
from billing.models import Generation
from catalogue import quota, snapshot
from catalogue.listing import View, served_now
from catalogue.models import Modality
from gateway.errors import ServiceUnavailable

from .access import AccountContext, account_page
from .credit import funds_of
from .keys import newest_keys

CHATS = frozenset({Generation.Endpoint.CHAT, Generation.Endpoint.RESPONSES, Generation.Endpoint.MESSAGES})
NEWEST_KEYS = 5
NEWEST_REQUESTS = 20
PLACEHOLDER_MODEL = "provider/creator/model"


@account_page()
def overview(request: HttpRequest, current: AccountContext) -> HttpResponse:
    """What an account has, who may spend it and on what it went."""
    return render(request, "dashboard/overview.html", current.template_context | read(current.account, timezone.now()))


def read(account: Account, now: datetime) -> dict[str, Any]:
    """What the page shows. Five SELECTs, each by an index, and one for an account whose currency is not EUR."""
    records = Generation.objects.filter(account_id=account.pk).select_related("key").order_by("-created_at", "-id")
    newest = list(records[:NEWEST_REQUESTS])
    chats = (f"{record.provider}/{record.model}" for record in newest if record.endpoint in CHATS)
    return {
        "funds": funds_of(account.pk, now),
        "keys": newest_keys(account, now, NEWEST_KEYS),
        "requests": newest,
        "example_model": next(chats, None) or _some_chat_model(now),
        "rate_warning": rate_warning(account),
        "public_url": settings.PUBLIC_URL,
    }


def _some_chat_model(now: datetime) -> str:
    """The first chat model that can be called now, as a 3-part id; a placeholder where there is none."""
    try:
        catalogue = snapshot.current()
    except ServiceUnavailable:
        return PLACEHOLDER_MODEL
    today = quota.day_of(now)
    view = View(today, quota.held(catalogue.with_quota, today))
    for offer in catalogue.offers.values():
        default = (route for route in served_now(offer, view) if route.locode == offer.default_locode)
        if offer.modality == Modality.CHAT and any(route.price is not None for route in default):
            return offer.id
    return PLACEHOLDER_MODEL
