"""The pages on API keys: for every member of their account; anybody else finds nothing."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django import forms
from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone

from accounts import keys
from accounts.models import Account, ApiKey
from accounts.rate_limits import budgets_of

from .access import AccountContext, account_context, account_page, page_address, signed_in_page

PAGE_ROWS = 50
EXPIRY_LABELS = {
    "7d": "7 days",
    "30d": "30 days",
    "90d": "90 days",
    "180d": "180 days",
    "1y": "1 year",
    "never": "Never",
}
RELOADED = (
    "If you have created it just now and reloaded the page: a key is shown once only. Delete it and create another if "
    "you did not copy it."
)


@dataclass(frozen=True, slots=True)
class KeyLine:
    """A key that is not deleted. Whether it has expired is decided by the clock, as at each request."""

    key: ApiKey
    has_expired: bool

    @property
    def limits(self) -> str:
        """What it may use in a minute, in words: its own limits and the gateway's; empty where neither has any."""
        budgets = budgets_of(self.key.rpm, self.key.tpm)
        limits = ((budgets.requests, self.key.rpm, "requests"), (budgets.tokens, self.key.tpm, "tokens"))
        return ", ".join(
            f"{limit:,} {what}" if limit else f"any {what}" for limit, own, what in limits if limit or own is not None
        )


class CreateForm(forms.Form):
    """A name and how long the key is good for."""

    name = forms.CharField(
        label="Name",
        help_text="Where the key is used, such as a program or a machine.",
        error_messages={"required": keys.NAME_RULE},
        widget=forms.TextInput(attrs={"autocomplete": "off", "maxlength": keys.MAX_NAME_LENGTH, "spellcheck": "false"}),
    )
    expiry = forms.ChoiceField(
        label="Expiry",
        help_text="After that it stops working.",
        choices=list(EXPIRY_LABELS.items()),
        initial=keys.DEFAULT_LIFETIME,
    )

    def __init__(self, data: Any = None) -> None:
        super().__init__(data, auto_id="create-%s", label_suffix="")

    def issue(self, account: Account) -> tuple[ApiKey, str] | None:
        """The new key with its token, which cannot be had again; None where the form has a fault, and says which."""
        if not self.is_valid():
            return None
        try:
            return keys.issue(account, name=self.cleaned_data["name"], lifetime=self.cleaned_data["expiry"])
        except keys.InvalidKeyName as error:
            self.add_error("name", str(error))
        except keys.KeyNameTaken as error:
            self.add_error("name", f"{error} {RELOADED}")
        return None


@account_page("GET", "HEAD", "POST")
def key_list(request: HttpRequest, current: AccountContext) -> HttpResponse:
    """An account's keys, a page at a time, and a form for one more, whose answer shows the token.

    Neither a redirect nor a message could carry the token: both would store it.
    """
    form = CreateForm(request.POST if request.method == "POST" else None)
    issued = form.issue(current.account) if form.is_bound else None
    if issued is not None:
        context = {"key": issued[0], "token": issued[1], "public_url": settings.PUBLIC_URL}
        return render(request, "dashboard/new_key.html", current.template_context | context)
    before = request.GET.get("before")
    lines = newest_keys(current.account, timezone.now(), PAGE_ROWS + 1, before=before)
    older = lines[PAGE_ROWS - 1].key.pk if len(lines) > PAGE_ROWS else None
    context = {"lines": lines[:PAGE_ROWS], "older": older, "form": form, "before": before}
    return render(
        request, "dashboard/keys.html", current.template_context | context, status=422 if form.errors else 200
    )


@signed_in_page("GET", "HEAD", "POST")
def delete_key(request: HttpRequest, key_id: UUID) -> HttpResponse:
    """Asks first; a form sent from there deletes. A page that is out of date is told so."""
    key = get_object_or_404(ApiKey, pk=key_id, account__membership__user=request.user.pk)
    if key.deleted_at is None and request.method != "POST":
        context = account_context(request, key.account_id).template_context | {"key": key}
        return render(request, "dashboard/delete_key.html", context)
    if key.deleted_at is None and keys.delete(key):
        messages.success(request, f"{key.name} is deleted. Requests with it are refused from now on.")
    else:
        messages.info(request, f"{key.name} was deleted already.")
    return redirect(page_address("keys", key.account_id))


def newest_keys(account: Account, now: datetime, rows: int, *, before: str | None = None) -> list[KeyLine]:
    """So many keys that are not deleted, or of those older than the key `before`. Raises Http404 for what is no id."""
    live = ApiKey.objects.filter(account=account, deleted_at=None).order_by("-pk")  # an id grows with time
    if before is not None:
        try:
            live = live.filter(pk__lt=UUID(before))
        except ValueError:
            raise Http404 from None
    return [KeyLine(key, key.expires_at is not None and key.expires_at <= now) for key in live[:rows]]
