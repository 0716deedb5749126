"""Lets staff refund a request from its page in the admin: a correction of exactly its cost, once for each request."""

import logging
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from django import forms
from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse

from accounts import audit
from accounts.actions import Action
from accounts.models import AuditEvent
from gateway.money import plain
from gateway.pages.admin import RowPages

from .admin_credit import CREDIT_RIGHT, LONGEST_REASON
from .ledger import credits
from .models import Generation, LedgerEntry, Wallet

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Refund:
    """Describes the entry that has refunded a request. `by` is empty if nobody is known."""

    entry: LedgerEntry
    by: str

    @property
    def at(self) -> datetime:
        return self.entry.created_at


class RefundForm(forms.Form):
    """Asks why a request is refunded."""

    reason = forms.CharField(
        max_length=LONGEST_REASON,
        help_text="Kept with the entry; staff and the account's management keys see it.",
        widget=forms.Textarea(attrs={"rows": 3, "class": "vLargeTextField"}),
    )


def reference_of(record: Generation) -> str:
    """Returns the reference of a request's refund: an account uses it once, so a request is refunded once."""
    return f"refund {record.public_id}"


def refund_of(record: Generation) -> Refund | None:
    """Returns the refund of a request, or None, with up to three SELECTs by an index."""
    entry = LedgerEntry.objects.filter(account=record.account_id, reference=reference_of(record)).first()
    if entry is None:
        return None
    corrections = AuditEvent.objects.filter(account=record.account_id, action=Action.CREDIT_CORRECTED)
    event = corrections.filter(object_id=str(entry.seq)).first()
    return Refund(entry, "" if event is None else audit.shown([event])[0].actor_name)


class RefundPages(RowPages):
    """Adds the page that refunds a request to the admin of records."""

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.refund_request)
        return [path("<path:object_id>/refund/", view, name="billing_generation_refund"), *super().get_urls()]

    def may_refund(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request) and request.user.has_perm(CREDIT_RIGHT)

    def refund_request(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """GET asks for a reason. POST shows the entry and asks for a confirmation; with `confirmed` it books it."""
        record: Generation = self.row_or_404(request, object_id, allowed=self.may_refund(request))
        form = RefundForm(request.POST if request.method == "POST" else None)
        cost = record.cost
        if not cost:
            return self._back(request, record, "The request cost nothing, so there is nothing to refund.")
        if refund_of(record) is not None:
            return self._back(request, record, "The request was refunded before; nothing changed.")
        if "change" in request.POST or not form.is_valid():
            return self._page(request, record, cost, form)
        if "confirmed" not in request.POST:
            return self._page(request, record, cost, form, is_confirmation=True)
        return self._refund(request, record, cost, form)

    def _refund(self, request: HttpRequest, record: Generation, cost: Decimal, form: RefundForm) -> HttpResponse:
        reason, reference, amount = form.cleaned_data["reason"], reference_of(record), plain(cost)
        try:
            with transaction.atomic():
                credit = credits.correct(record.account_id, cost, reference, reason=reason)
                if not credit.repeated:
                    line = f"Recorded a correction of {amount} {record.currency}, reference {reference!r}: {reason}"
                    self.log_change(request, record.account, line)
        except (credits.ReferenceConflict, credits.InvalidAmount) as error:
            return self._back(request, record, str(error))
        if credit.repeated:
            return self._back(request, record, "The request was refunded before; nothing changed.")
        logger.info("staff %s refunded %s on account %s", request.user.pk, record.public_id, record.account_id)
        done = f"Refunded {amount} {record.currency}. The balance is {plain(credit.balance)} {record.currency}."
        return self._back(request, record, done, messages.SUCCESS)

    def _back(
        self, request: HttpRequest, record: Generation, message: str, level: int = messages.WARNING
    ) -> HttpResponse:
        self.message_user(request, message, level)
        return HttpResponseRedirect(reverse("admin:billing_generation_change", args=[record.pk]))

    def _page(
        self,
        request: HttpRequest,
        record: Generation,
        cost: Decimal,
        form: RefundForm,
        *,
        is_confirmation: bool = False,
    ) -> HttpResponse:
        title = "Confirm this refund" if is_confirmation else "Refund this request"
        balance = Wallet.objects.get(pk=record.account_id).balance
        page: HttpResponse = self.row_page(
            request,
            "admin/billing/refund.html",
            record,
            form,
            title=title,
            is_confirmation=is_confirmation,
            reference=reference_of(record),
            balance=balance,
            balance_after=balance + cost,
        )
        return page
