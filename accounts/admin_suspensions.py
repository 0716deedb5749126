"""Lets staff suspend an account from its page in the admin."""

from typing import Any

from django import forms
from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse

from gateway.pages.admin import RowPages

from . import suspensions
from .models import Account, Suspension


class ReasonForm(forms.Form):
    """Asks why an account is suspended or closed."""

    reason = forms.CharField(
        max_length=Suspension._meta.get_field("reason").max_length,
        help_text="Mailed to the account's owners, and kept in its history.",
        widget=forms.Textarea(attrs={"rows": 3, "class": "vLargeTextField"}),
    )


class SuspensionPages(RowPages):
    """Adds the page that suspends an account to the admin of accounts."""

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.suspend_account)
        return [path("<path:object_id>/suspend/", view, name="accounts_account_suspend"), *super().get_urls()]

    def suspend_account(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Asks for confirmation on GET. On POST, suspends with a `reason`, or with `lift` ends the suspension."""
        account: Account = self.row_or_404(request, object_id, allowed=self.has_change_permission(request))
        if account.closed_at is not None:
            return HttpResponseRedirect(reverse("admin:accounts_account_close", args=[account.pk]))
        lifts = "lift" in request.POST
        form = ReasonForm(request.POST if request.method == "POST" and not lifts else None)
        if lifts or form.is_valid():
            self._switch(request, account, None if lifts else form.cleaned_data["reason"])
            return HttpResponseRedirect(reverse("admin:accounts_account_change", args=[account.pk]))
        suspension = Suspension.objects.filter(account=account, ended_at=None).first()
        title = "Lift the suspension" if suspension else "Suspend the account"
        template = "admin/accounts/account/suspend.html"
        return self.row_page(request, template, account, form, title=title, suspension=suspension)

    def _switch(self, request: Any, account: Account, reason: str | None) -> None:
        """Suspends the account with a reason, or lifts its suspension if `reason` is None."""
        try:
            with transaction.atomic():
                if reason is None:
                    suspensions.lift(account, by=request.user)
                    self.log_change(request, account, "Lifted the suspension.")
                else:
                    suspensions.suspend(account, reason, by=request.user)
                    self.log_change(request, account, f"Suspended: {reason}")
        except suspensions.SuspensionRefused as error:
            self.message_user(request, str(error), messages.WARNING)
            return
        done = "is no longer suspended" if reason is None else "has been suspended"
        self.message_user(request, f"The account {account.name} {done}.", messages.SUCCESS)
