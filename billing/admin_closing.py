"""Closes an account from its page in the admin."""

from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils import timezone

from accounts import closing
from accounts.admin_suspensions import ReasonForm
from accounts.models import Account, Suspension
from gateway.pages.admin import RowPages

from .models import Wallet


class ClosingPages(RowPages):
    """Adds the page that closes an account to the admin of accounts."""

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.close_account)
        return [path("<path:object_id>/close/", view, name="accounts_account_close"), *super().get_urls()]

    def close_account(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """GET asks for a reason, or shows why the account is closed. POST closes it for a `reason`."""
        account: Account = self.row_or_404(request, object_id, allowed=self.has_change_permission(request))
        form = ReasonForm(request.POST if request.method == "POST" else None)
        if form.is_valid():
            self._close(request, account, form.cleaned_data["reason"])
            return HttpResponseRedirect(reverse("admin:accounts_account_close", args=[account.pk]))
        is_closed = account.closed_at is not None
        return self.row_page(
            request,
            "admin/billing/close.html",
            account,
            form,
            title="Closing" if is_closed else "Close the account",
            closing=Suspension.objects.get(account=account, ended_at=None) if is_closed else None,
            balance=Wallet.objects.get(pk=account.pk).balance,
            statement=_statement_address(account),
        )

    def _close(self, request: Any, account: Account, reason: str) -> None:
        try:
            with transaction.atomic():
                deleted, revoked = closing.close(account, reason, by=request.user)
                self.log_change(request, account, f"Closed: {reason}")
        except closing.AlreadyClosed as error:
            self.message_user(request, str(error), messages.WARNING)
            return
        done = f"{account.name} has been closed: {deleted} keys deleted, {revoked} invitations revoked."
        self.message_user(request, done, messages.SUCCESS)


def _statement_address(account: Account) -> str:
    """Returns the address of a statement since the account was opened; the template appends the format."""
    period = {"since": f"{account.created_at:%Y-%m-%d}", "until": f"{timezone.now():%Y-%m-%d}"}
    return f"{reverse('statement')}?{urlencode({'account': account.pk, **period})}"
