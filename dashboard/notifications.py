"""Shows the page on notifications by mail."""

from decimal import Decimal
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.html import format_html

from accounts.models import Account, User
from gateway.money import MAX_MONEY, ExactDecimalFormField

from .parts.access import AccountContext, account_page, page_address
from .parts.changes import ChangesForm


class NotificationsForm(ChangesForm):
    """Asks whether the person wants mail, and for the account's threshold."""

    wants_notices = forms.BooleanField(
        label="Email me about accounts I own",
        required=False,
        help_text="Low balance, no credit left, and API keys that expire within seven days: one email for each event.",
    )
    low_balance = ExactDecimalFormField(
        label="Low balance",
        required=False,
        min_value=Decimal(0),
        max_value=MAX_MONEY,
        max_digits=18,
        decimal_places=2,
        help_text="Owners get an email when the balance falls below this amount. Leave empty for one at zero only.",
    )

    def __init__(self, data: Any, current: AccountContext) -> None:
        account = current.account
        initial = {"wants_notices": current.person.wants_notices, "low_balance": account.low_balance}
        super().__init__(data, initial)
        label = format_html("Low-balance threshold of <bdi>{}</bdi> ({})", account.name, account.currency)
        self.fields["low_balance"].label = label
        if not current.is_owner:
            del self.fields["low_balance"]


@account_page("GET", "HEAD", "POST")
def notifications(request: HttpRequest, current: AccountContext) -> HttpResponse:
    """Shows and saves whether the person wants mail and, for owners, the account's threshold."""
    form = NotificationsForm(request.POST if request.method == "POST" else None, current)
    if form.is_valid():
        if "wants_notices" in form.changes:
            User.objects.filter(pk=current.person.pk).update(wants_notices=form.changes["wants_notices"])
        if "low_balance" in form.changes:
            Account.objects.filter(pk=current.account.pk).update(low_balance=form.changes["low_balance"])
        messages.success(request, "Notifications saved.")
        return redirect(page_address("notifications", current.account.pk))
    return current.page(request, "notifications", {"form": form}, form)
