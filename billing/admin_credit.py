"""Lets staff book credit on an account's page: a form, a confirmation, one ledger entry."""

import logging
from typing import Any

from django import forms
from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse

from accounts.models import Account
from gateway.money import MAX_MONEY, MONEY_PLACES, plain
from gateway.pages.admin import RowPages

from .ledger import credits
from .ledger.credits import BookedCredit
from .models import LedgerEntry, Wallet

logger = logging.getLogger(__name__)


CREDIT_RIGHT = "billing.add_ledgerentry"
LONGEST_REASON = 500
GRANT, CORRECTION = LedgerEntry.Kind.GRANT, LedgerEntry.Kind.CORRECTION


class CreditForm(forms.Form):
    """Reads a grant or a correction on one account."""

    # The reference must be new, except in a confirmed form: one that is sent twice books nothing the second time, and
    # is no error.

    kind = forms.ChoiceField(
        choices=[(GRANT.value, "Grant"), (CORRECTION.value, "Correction")],
        initial=GRANT.value,
        help_text="Grant: adds credit. Correction: fixes a mistake; use a negative amount to remove credit.",
        widget=forms.RadioSelect,
    )
    amount = forms.DecimalField(
        decimal_places=MONEY_PLACES,
        max_digits=19,
        min_value=-MAX_MONEY,
        max_value=MAX_MONEY,
        help_text="In the account's currency.",
        widget=forms.TextInput(attrs={"inputmode": "decimal", "autocomplete": "off"}),
    )
    reference = forms.CharField(
        max_length=credits.MAX_REFERENCE_LENGTH,
        help_text="Where the credit comes from, such as the number of an invoice. The account's members see it. "
        "Each reference is used once per account.",
        widget=forms.TextInput(attrs={"class": "vTextField", "autocomplete": "off"}),
    )
    reason = forms.CharField(
        max_length=LONGEST_REASON,
        help_text="Why it is added. Kept with the entry; staff and the account's management keys see it.",
        widget=forms.Textarea(attrs={"rows": 3, "class": "vLargeTextField"}),
    )

    def __init__(self, *args: Any, account: Account, confirmed: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.account, self.confirmed = account, confirmed

    def clean_reference(self) -> str:
        reference = str(self.cleaned_data["reference"])
        if not reference.isprintable():
            raise forms.ValidationError("Printable characters only.")
        booked = LedgerEntry.objects.filter(account=self.account, reference=reference).first()
        if booked is not None and not self.confirmed:
            raise forms.ValidationError(
                f"Already recorded, as a {booked.kind} of {plain(booked.amount)} {self.account.currency} on "
                f"{booked.created_at:%Y-%m-%d %H:%M} UTC. Each reference is used once per account."
            )
        return reference

    def clean(self) -> dict[str, Any]:
        fields = super().clean() or {}
        amount = fields.get("amount")
        if amount is not None and fields.get("kind") == GRANT and amount <= 0:
            self.add_error("amount", "A grant is an amount above zero.")
        elif amount == 0:
            self.add_error("amount", "A correction is an amount other than zero.")
        return fields


class CreditPages(RowPages):
    """Adds the page that books credit to the admin of accounts."""

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.book_credit)
        return [path("<path:object_id>/credit/", view, name="accounts_account_credit"), *super().get_urls()]

    def book_credit(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """GET shows the form. POST shows the entry and asks for a confirmation; with `confirmed` it books the entry."""
        allowed = self.has_view_permission(request) and request.user.has_perm(CREDIT_RIGHT)
        account: Account = self.row_or_404(request, object_id, allowed=allowed)
        confirmed = "confirmed" in request.POST
        form = CreditForm(request.POST if request.method == "POST" else None, account=account, confirmed=confirmed)
        # `change` is the button of the confirmation that goes back to the form.
        if "change" in request.POST or not form.is_valid():
            return self._page(request, account, form)
        if not confirmed:
            return self._page(request, account, form, is_confirmation=True)
        return self._book(request, account, form)

    def _book(self, request: HttpRequest, account: Account, form: CreditForm) -> HttpResponse:
        fields = form.cleaned_data
        try:
            with transaction.atomic():
                book = credits.grant if fields["kind"] == GRANT else credits.correct
                credit = book(account.pk, fields["amount"], fields["reference"], reason=fields["reason"])
                if not credit.repeated:
                    self.log_change(request, account, _log_line(fields, account.currency))
        except credits.ReferenceConflict as error:
            form.add_error("reference", str(error))
        except credits.InvalidAmount as error:
            form.add_error("amount", str(error))
        if not form.is_valid():
            return self._page(request, account, form)
        self._report(request, account, fields, credit)
        return HttpResponseRedirect(reverse("admin:accounts_account_change", args=[account.pk]))

    def _report(self, request: HttpRequest, account: Account, fields: dict[str, Any], credit: BookedCredit) -> None:
        if credit.repeated:
            message = f"The reference {fields['reference']!r} is already recorded; nothing changed."
            self.message_user(request, message, messages.WARNING)
            return
        amount = f"{plain(fields['amount'])} {account.currency}"
        logger.info("staff %s recorded a %s of %s on account %s", request.user.pk, fields["kind"], amount, account.pk)
        message = f"Recorded a {fields['kind']} of {amount}. The balance is {plain(credit.balance)} {account.currency}."
        self.message_user(request, message, messages.SUCCESS)

    def _page(
        self, request: HttpRequest, account: Account, form: CreditForm, *, is_confirmation: bool = False
    ) -> HttpResponse:
        balance = Wallet.objects.get(pk=account.pk).balance
        return self.row_page(
            request,
            "admin/billing/credit.html",
            account,
            form,
            title="Confirm this credit" if is_confirmation else "Add credit",
            is_confirmation=is_confirmation,
            balance=balance,
            balance_after=balance + form.cleaned_data["amount"] if is_confirmation else None,
        )


def _log_line(fields: dict[str, Any], currency: str) -> str:
    amount = plain(fields["amount"])
    return f"Recorded a {fields['kind']} of {amount} {currency}, reference {fields['reference']!r}: {fields['reason']}"
