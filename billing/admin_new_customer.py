"""Lets staff open an account with its opening credit and its first owner in one form."""

from decimal import Decimal
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse

from accounts import invitations
from accounts.models import INVITING_RIGHT, Account, Invitation, Membership
from gateway.money import MAX_MONEY, MONEY_PLACES, plain
from gateway.pages.admin import RowPages

from .accounts import DEFAULT_CURRENCY, OPENING_REFERENCE, open_account, rate_warning
from .admin_credit import CREDIT_RIGHT, LONGEST_REASON
from .ledger import credits

OF_CREDIT = ("credit", "reference", "reason")
TEXT = {"class": "vTextField", "autocomplete": "off"}


class NewCustomerForm(forms.Form):
    """Asks for an account. The fields of credit and owner are only there for people with these rights."""

    name = forms.CharField(max_length=200, widget=forms.TextInput(attrs=TEXT))
    currency = forms.CharField(
        max_length=3,
        initial=DEFAULT_CURRENCY,
        help_text="ISO 4217. Fixed once credit is booked.",
        widget=forms.TextInput(attrs={"size": 4, "autocapitalize": "characters", "autocomplete": "off"}),
    )
    alias_limit = forms.IntegerField(
        min_value=0, max_value=2**31 - 1, required=False, help_text="Empty: the gateway's default."
    )
    credit = forms.DecimalField(
        label="Opening credit",
        required=False,
        decimal_places=MONEY_PLACES,
        max_digits=19,
        max_value=MAX_MONEY,
        help_text="In the account's currency. Empty: none.",
        widget=forms.TextInput(attrs={"inputmode": "decimal", "autocomplete": "off"}),
    )
    reference = forms.CharField(
        required=False,
        initial=OPENING_REFERENCE,
        max_length=credits.MAX_REFERENCE_LENGTH,
        help_text="Where the credit comes from, such as the number of an invoice. The account's members see it.",
        widget=forms.TextInput(attrs=TEXT),
    )
    reason = forms.CharField(
        required=False,
        max_length=LONGEST_REASON,
        help_text="Why it is added. Kept with the entry; staff and the account's management keys see it.",
        widget=forms.Textarea(attrs={"rows": 3, "class": "vLargeTextField"}),
    )
    owner = forms.EmailField(
        label="Owner's email address",
        required=False,
        max_length=254,
        help_text="Gets an invitation to be the account's owner. Empty: nobody is invited.",
        widget=forms.EmailInput(attrs=TEXT | {"autocapitalize": "none"}),
    )

    def __init__(self, *args: Any, may_credit: bool, may_invite: bool, **options: Any) -> None:
        super().__init__(*args, **options)
        for name in (*(() if may_credit else OF_CREDIT), *(() if may_invite else ("owner",))):
            del self.fields[name]

    def clean_credit(self) -> Decimal | None:
        credit: Decimal | None = self.cleaned_data["credit"]
        if credit is not None and credit <= 0:
            raise forms.ValidationError("The opening credit is an amount above zero.")
        return credit

    def clean(self) -> dict[str, Any]:
        fields = super().clean() or {}
        if fields.get("credit") is not None:
            for name in ("reference", "reason"):
                if name in fields and not fields[name]:
                    self.add_error(name, "Required with an opening credit.")
        return fields


class NewCustomerPages(RowPages):
    """Replaces the page that adds an account in the admin."""

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = NewCustomerForm(
            request.POST if request.method == "POST" else None,
            may_credit=request.user.has_perm(CREDIT_RIGHT),
            may_invite=request.user.has_perm(INVITING_RIGHT),
        )
        if form.is_valid() and (opened := self._open_for_customer(request, form)) is not None:
            self.message_user(request, f"The account {opened.name} has been opened.", messages.SUCCESS)
            if not self.has_view_permission(request):
                return HttpResponseRedirect(reverse("admin:index"))
            return HttpResponseRedirect(reverse("admin:accounts_account_change", args=[opened.pk]))
        context = {"title": "New customer", "opts": self.opts, "form": form, "days": invitations.LIFETIME.days}
        context |= self.admin_site.each_context(request)
        status = 422 if form.errors else 200
        return TemplateResponse(request, "admin/billing/new_customer.html", context, status=status)

    def _open_for_customer(self, request: Any, form: NewCustomerForm) -> Account | None:
        """Opens the account, or adds what is wrong to the form and returns None."""
        fields, invitation = form.cleaned_data, None
        try:
            with transaction.atomic():
                account = self._new_account(request, fields)
                if fields.get("credit") is not None:
                    if (warning := rate_warning(account)) is not None:  # the credit fixes the currency for good
                        raise ValidationError({"currency": warning})
                    self._book_opening(request, account, fields)
                if fields.get("owner"):
                    invitation = self._invite_owner(request, account, fields["owner"])
        except ValidationError as error:
            form.add_error(None, error)
        except credits.InvalidAmount as error:
            form.add_error("credit", str(error))
        except credits.InvalidReference as error:
            form.add_error("reference", str(error))
        except invitations.InvitationRefused as error:
            form.add_error("owner", str(error))
        if form.errors:
            return None
        if invitation is not None:
            invitations.mail(invitation, by=request.user)
        return account

    def _new_account(self, request: HttpRequest, fields: dict[str, Any]) -> Account:
        account = open_account(fields["name"], currency=fields["currency"])
        if fields["alias_limit"] is not None:
            account.alias_limit = fields["alias_limit"]
            account.save(update_fields=["alias_limit"])
        self.log_addition(request, account, [{"added": {}}])
        return account

    def _book_opening(self, request: HttpRequest, account: Account, fields: dict[str, Any]) -> None:
        credits.grant(account.pk, fields["credit"], fields["reference"], reason=fields["reason"])
        amount = f"{plain(fields['credit'])} {account.currency}"
        line = f"Recorded a grant of {amount}, reference {fields['reference']!r}: {fields['reason']}"
        self.log_change(request, account, line)

    def _invite_owner(self, request: Any, account: Account, email: str) -> Invitation:
        invitation = invitations.invite(account.pk, email, Membership.Role.OWNER, by=request.user)
        self.log_change(request, account, f"Invited {invitation.email} as {invitation.role_in_words}.")
        return invitation
