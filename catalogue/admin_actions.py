"""Adds the admin's actions on providers, offers and routes. Each is recorded in the history of every row."""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ActionForm
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils import timezone

from gateway.pages.admin import RowPages

from . import changes
from .models import Model, Provider, Region, State
from .routing import quota


class ReasonForm(ActionForm):
    """Asks for an action and a reason."""

    reason = forms.CharField(required=False, max_length=500)


class _StateActions(admin.ModelAdmin[Any]):
    """Is the base of admins whose actions change the state of rows."""

    action_form = ReasonForm

    def switch(self, request: HttpRequest, rows: QuerySet[Any], done: str, **columns: object) -> None:
        """Writes the columns, lets the workers reload, and records the change in each row's history."""
        reason = _reason(request)
        note = f"{done}: {reason}" if reason else f"{done}."
        with transaction.atomic():
            changes.bump()  # first: every writer of the catalogue locks its row
            touched = list(rows)
            self.model._default_manager.filter(pk__in=[row.pk for row in touched]).update(**columns)
            for row in touched:
                self.log_change(request, row, note)
        self.message_user(request, f"{note} ({', '.join(map(str, touched))})", messages.SUCCESS)

    def has_reason(self, request: HttpRequest) -> bool:
        """Returns whether the action came with a reason, and shows an error if not."""
        if not _reason(request):
            self.message_user(request, "Nothing was changed: give a reason next to the action.", messages.ERROR)
        return bool(_reason(request))


class ServiceForm(forms.Form):
    """Asks why a provider is disabled."""

    reason = forms.CharField(
        max_length=500,
        help_text="Shown to clients in errors, and to staff in the history.",
        widget=forms.TextInput(attrs={"class": "vTextField", "autocomplete": "off"}),
    )


class ProviderActions(_StateActions, RowPages):
    """Lets staff disable providers with all their offers, and serve them again."""

    actions = ("disable", "serve_again")

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.change_service)
        return [path("<path:object_id>/service/", view, name="catalogue_provider_service"), *super().get_urls()]

    def change_service(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Asks for confirmation on GET. On POST, disables the provider with a reason, or serves it again."""
        provider: Provider = self.row_or_404(request, object_id, allowed=self.has_change_permission(request))
        chosen, form = Provider.objects.filter(pk=provider.pk), ServiceForm(request.POST or None)
        if "serve" in request.POST:
            self.serve_again(request, chosen)
        elif "disable" in request.POST and form.is_valid():
            self.disable(request, chosen)
        else:
            title = "Serve again?" if provider.disabled_reason else "Disable provider"
            return self.row_page(request, "admin/catalogue/provider/service.html", provider, form, title=title)
        return HttpResponseRedirect(reverse("admin:catalogue_provider_change", args=[provider.pk]))

    @admin.action(description="Disable provider, with the reason (shown to clients)", permissions=["change"])
    def disable(self, request: HttpRequest, rows: QuerySet[Provider]) -> None:
        if self.has_reason(request):
            self.switch(request, rows, "Disabled", disabled_reason=_reason(request))

    @admin.action(description="Serve again", permissions=["change"])
    def serve_again(self, request: HttpRequest, rows: QuerySet[Provider]) -> None:
        self.switch(request, rows, "Served again", disabled_reason="")


class OfferActions(_StateActions):
    """Lets staff make offers unavailable for now, disable them, or serve them again."""

    actions = ("make_unavailable", "disable", "serve")

    @admin.action(description="Make unavailable for now, with the reason (shown to clients)", permissions=["change"])
    def make_unavailable(self, request: HttpRequest, rows: QuerySet[Model]) -> None:
        if self.has_reason(request):
            self.switch(
                request, rows, "Unavailable for now", state=State.UNAVAILABLE, unavailable_reason=_reason(request)
            )

    @admin.action(description="Disable, with the reason (kept in the history)", permissions=["change"])
    def disable(self, request: HttpRequest, rows: QuerySet[Model]) -> None:
        if self.has_reason(request):
            self.switch(request, rows, "Disabled", state=State.DISABLED)

    @admin.action(description="Serve", permissions=["change"])
    def serve(self, request: HttpRequest, rows: QuerySet[Model]) -> None:
        self.switch(request, rows, "Served", state=State.SERVED, unavailable_reason="")


class RouteActions(_StateActions):
    """Lets staff disable routes or serve them again, and use up or reset today's quota."""

    actions = ("disable", "serve", "hold_today", "reset_today")

    @admin.action(description="Disable, with the reason (kept in the history)", permissions=["change"])
    def disable(self, request: HttpRequest, rows: QuerySet[Region]) -> None:
        if self.has_reason(request):
            self.switch(request, rows, "Disabled", state=Region.State.DISABLED)

    @admin.action(description="Serve", permissions=["change"])
    def serve(self, request: HttpRequest, rows: QuerySet[Region]) -> None:
        self.switch(request, rows, "Served", state=Region.State.SERVED)

    @admin.action(description="Hold until midnight UTC: spend today's quota", permissions=["change"])
    def hold_today(self, request: HttpRequest, rows: QuerySet[Region]) -> None:
        today = quota.day_of(timezone.now())
        for region in rows:
            try:
                with transaction.atomic():
                    spent = quota.spend(region, today)
                    note = f"Held until midnight UTC: the remaining {spent:,} tokens of {today} are spent."
                    self.log_change(request, region, f"{note} {_reason(request)}".rstrip())
            except quota.NoQuota:
                refusal = f"Not held, for it has no daily quota to spend: disable it instead. ({region})"
                self.message_user(request, refusal, messages.WARNING)
            else:
                self.message_user(request, f"{note} ({region})", messages.SUCCESS)

    @admin.action(description="Reset today's quota", permissions=["change"])
    def reset_today(self, request: HttpRequest, rows: QuerySet[Region]) -> None:
        today = quota.day_of(timezone.now())
        for region in rows:
            with transaction.atomic():
                note = f"Quota reset: {quota.reset(region, today):,} tokens of {today} are forgotten."
                self.log_change(request, region, f"{note} {_reason(request)}".rstrip())
            self.message_user(request, f"{note} ({region})", messages.SUCCESS)


def _reason(request: HttpRequest) -> str:
    return request.POST.get("reason", "").strip()
