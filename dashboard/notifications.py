"""Shows the page on notifications by mail."""

import re
from decimal import Decimal
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.html import format_html

from accounts.models import User
from billing import pace_alerts
from billing.ledger import balance_lines
from gateway.money import MAX_MONEY, ExactDecimalFormField, plain

from .parts.access import AccountContext, account_page, page_address
from .parts.changes import ChangesForm

AMBIGUOUS_COMMA = re.compile(r"\d,\d")


class AmountsField(forms.Field):
    """Takes amounts of money, one per line or separated by commas, and returns them once each, the highest first."""

    amount = ExactDecimalFormField(min_value=Decimal(0), max_value=MAX_MONEY, max_digits=18, decimal_places=2)

    def to_python(self, value: Any) -> list[Decimal]:
        if isinstance(value, list):
            return value
        text = value or ""
        # A comma inside "12,50" may be meant as a decimal point, so a comma separates only with a space after it.
        if AMBIGUOUS_COMMA.search(text):
            raise forms.ValidationError("Use a point for cents. After a comma between two amounts, add a space.")
        amounts = set()
        for part in filter(None, re.split(r"[\s,]+", text)):
            try:
                amounts.add(self.amount.clean(part))
            except forms.ValidationError as error:
                raise forms.ValidationError([f"{part}: {message}" for message in error.messages]) from None
        if len(amounts) > balance_lines.MOST_LINES:
            raise forms.ValidationError(f"Enter at most {balance_lines.MOST_LINES} amounts.")
        return sorted(amounts, reverse=True)

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(map(plain, value)) if isinstance(value, list) else value

    def has_changed(self, initial: Any, data: Any) -> bool:
        try:
            return self.to_python(initial) != self.to_python(data)
        except forms.ValidationError:
            return True


class NotificationsForm(ChangesForm):
    """Asks whether the person wants mail, and for the account's thresholds."""

    wants_notices = forms.BooleanField(
        label="Email me about accounts I own",
        required=False,
        help_text="Low balance, no credit left, budgets that reach an alert, and API keys that expire within seven "
        "days: one email for each event.",
    )
    low_balance = AmountsField(
        label="Low balance",
        required=False,
        widget=forms.Textarea({"rows": balance_lines.MOST_LINES, "inputmode": "decimal"}),
        help_text=f"Owners get an email when the balance falls to one of these amounts or below: one per line, at most "
        f"{balance_lines.MOST_LINES}. Leave empty to be notified only when credit runs out.",
    )

    by_pace = forms.BooleanField(
        label=f"Without thresholds, email owners when the balance would last less than {pace_alerts.PACE_DAYS} days",
        required=False,
        help_text="At the pace of the last seven days; once until credit has been added.",
    )

    def __init__(self, data: Any, current: AccountContext) -> None:
        account = current.account
        amounts = balance_lines.amounts_of(account.pk) if current.is_owner else []
        initial = {"wants_notices": current.person.wants_notices, "low_balance": amounts}
        initial["by_pace"] = current.is_owner and not pace_alerts.is_off(account.pk)
        super().__init__(data, initial)
        label = format_html("Low-balance thresholds of <bdi>{}</bdi> ({})", account.name, account.currency)
        self.fields["low_balance"].label = label
        if not current.is_owner:
            del self.fields["low_balance"], self.fields["by_pace"]


@account_page("GET", "HEAD", "POST")
def notifications(request: HttpRequest, current: AccountContext) -> HttpResponse:
    """Shows and saves whether the person wants mail and, for owners, the account's thresholds."""
    form = NotificationsForm(request.POST if request.method == "POST" else None, current)
    if form.is_valid():
        if "wants_notices" in form.changes:
            User.objects.filter(pk=current.person.pk).update(wants_notices=form.changes["wants_notices"])
        if "low_balance" in form.changes:
            balance_lines.set_amounts(current.account.pk, form.changes["low_balance"])
        if "by_pace" in form.changes:
            pace_alerts.switch(current.account.pk, is_on=form.changes["by_pace"])
        messages.success(request, "Notifications saved.")
        return redirect(page_address("notifications", current.account.pk))
    return current.page(request, "notifications", {"form": form}, form)
