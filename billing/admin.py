"""Accounts with their balance, and the ledger and the records of use, which staff may read and nobody may change."""

from typing import Any
from uuid import UUID

from django.contrib import admin, messages
from django.db.models import Count, Model, OuterRef, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse
from django.template.defaultfilters import truncatechars
from django.urls import reverse
from django.utils.html import format_html

from accounts.admin import MembershipInline
from accounts.models import Account, Membership
from gateway.admin import BoundedPaginator, RecordAdmin, SaysValues, searched_id
from gateway.ids import generation_id
from gateway.money import plain

from . import admin_filters as filters
from .accounts import has_entries, rate_warning
from .admin_credit import RIGHT, CreditBooking
from .models import Generation, LedgerEntry
from .request_failures import RequestFailure


@admin.register(Account)
class AccountAdmin(CreditBooking, SaysValues, admin.ModelAdmin[Account]):
    """Who pays. Accounts are renamed, never removed: their wallet, keys and history hold on to them."""

    paginator = BoundedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    list_max_show_all = 0
    list_display = ("name", "balance", "currency", "far_below_zero", "member_count", "created_at")
    list_filter = (filters.Balance, "currency")
    list_select_related = ("wallet", "overdraft_alert")
    search_fields = ("name", "membership__user__email", "=id")
    search_help_text = "A part of the name or of a member's e-mail address, or the account's id."
    ordering = ("name",)
    sortable_by = ("name",)
    fields = ("name", "currency", "balance", "far_below_zero", "low_balance", "alias_limit", "id", "created_at")
    readonly_fields = ("balance", "far_below_zero", "id", "created_at")
    inlines = (MembershipInline,)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Account]:
        """With the number of members of each."""
        members = Membership.objects.filter(account=OuterRef("pk")).order_by().values("account")
        count = Subquery(members.annotate(all=Count("pk")).values("all"))
        return super().get_queryset(request).annotate(members_in=count)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """With the button that books credit, for those who may."""
        context = {"may_book_credit": request.user.has_perm(RIGHT), **(extra_context or {})}
        return super().change_view(request, object_id, form_url, context)

    def render_change_form(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """With what is amiss about the currency."""
        self._warn(request, kwargs["obj"])
        return super().render_change_form(request, *args, **kwargs)

    def save_model(self, request: HttpRequest, obj: Account, form: Any, change: bool) -> None:
        """Says so too where another page follows."""
        super().save_model(request, obj, form, change)
        if "_continue" not in request.POST:
            self._warn(request, obj)

    def _warn(self, request: HttpRequest, account: Account | None) -> None:
        if account is not None and (warning := rate_warning(account)):
            self.message_user(request, warning, messages.WARNING)

    def has_delete_permission(self, request: HttpRequest, obj: Account | None = None) -> bool:
        """Nobody: see above."""
        return False

    def get_readonly_fields(self, request: HttpRequest, obj: Account | None = None) -> tuple[str, ...]:
        """The first ledger entry fixes the currency."""
        fixed = obj is not None and has_entries(obj)
        return (*self.readonly_fields, "currency") if fixed else self.readonly_fields

    @admin.display(description="balance")
    def balance(self, account: Account) -> str:
        """The wallet's balance, exactly."""
        return plain(account.wallet.balance) if hasattr(account, "wallet") else "0"

    @admin.display(description="far below zero")
    def far_below_zero(self, account: Account) -> str:
        """Since when staff have been alerted (billing.overdraft)."""
        if not hasattr(account, "overdraft_alert"):
            return "no"
        return f"since {account.overdraft_alert.raised_at:%Y-%m-%d %H:%M} UTC"

    @admin.display(description="members")
    def member_count(self, account: Any) -> int:
        """How many people are in it."""
        return account.members_in or 0


def _in_account(name_or_id: str) -> UUID | None:
    try:
        return Account.objects.named(name_or_id).pk
    except Account.DoesNotExist:
        return None


@admin.register(LedgerEntry)
class LedgerEntryAdmin(RecordAdmin):
    """Every movement of money. A mistake is undone by a second entry: a correction, booked on the account's page."""

    list_display = ("created_at", "account", "kind", "moved", "balance", "source", "reason")
    list_filter = (filters.KindOfEntry, filters.EntryDay)
    list_select_related = ("account",)
    search_fields = ("account__name",)
    search_help_text = "An account's exact name or id, or a generation id."

    @admin.display(description="amount")
    def moved(self, entry: LedgerEntry) -> str:
        """The amount, exactly, in the account's currency."""
        return f"{plain(entry.amount)}\N{NO-BREAK SPACE}{entry.account.currency}"

    @admin.display(description="balance after")
    def balance(self, entry: LedgerEntry) -> str:
        """The balance after it, exactly."""
        return plain(entry.balance_after)

    @admin.display(description="reference or generation")
    def source(self, entry: LedgerEntry) -> str | None:
        """Where it comes from: for usage a link to the record, which is not read for it."""
        if entry.generation_id is None:
            return entry.reference
        address = reverse("admin:billing_generation_change", args=[entry.generation_id])
        return format_html('<a href="{}">{}</a>', address, generation_id(entry.generation_id))

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Model], search_term: str
    ) -> tuple[QuerySet[Model], bool]:
        """Exact look-ups only, each by an index."""
        if not (term := search_term.strip()):
            return queryset, False
        account_id = _in_account(term)
        if account_id is not None:
            return queryset.filter(account_id=account_id).order_by("-seq"), False
        return queryset.filter(generation_id=searched_id(term)).exclude(generation=None), False


class RequestAdmin(RecordAdmin):
    """Records of single requests, found by their id, their account or their key."""

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Model], search_term: str
    ) -> tuple[QuerySet[Model], bool]:
        """Exact look-ups only, each by an index."""
        if not (term := search_term.strip()):
            return queryset, False
        account_id, wanted = _in_account(term), searched_id(term)
        if account_id is None and (wanted is None or queryset.model._default_manager.filter(pk=wanted).exists()):
            return queryset.filter(pk=wanted), False
        # One or the other, never both in one statement: each has an index that begins with it and is in order of time.
        owner = {"key_id": wanted} if account_id is None else {"account_id": account_id}
        return queryset.filter(**owner).order_by("-created_at", "-id"), False


@admin.register(Generation)
class GenerationAdmin(RequestAdmin):
    """Every request that was served, with what its bill was made of."""

    list_display = (
        "created_at",
        "public_id",
        "account",
        "route_id",
        "billed",
        "prompt_tokens",
        "completion_tokens",
        "ending",
        "flagged_with",
    )
    list_filter = (filters.RecordDay, filters.Priced, filters.Flagged)
    list_select_related = ("account",)
    search_fields = ("id",)
    search_help_text = "An account's exact name or id, a key's id, or a generation or request id."

    @admin.display(description="cost")
    def billed(self, generation: Generation) -> str | None:
        """What was debited, exactly, in the account's currency."""
        return None if generation.cost is None else f"{plain(generation.cost)}\N{NO-BREAK SPACE}{generation.currency}"

    @admin.display(description="flags")
    def flagged_with(self, record: Generation) -> str | None:
        """What is odd about it."""
        return " ".join(record.flagged) or None


@admin.register(RequestFailure)
class RequestFailureAdmin(RequestAdmin):
    """Every request that was refused or failed, and what its client was told."""

    list_display = ("created_at", "request_id", "account", "asked_for", "answer", "words")
    list_filter = (filters.FailureDayFilter, filters.FailureOutcome, filters.FailureProvider)
    list_select_related = ("account",)
    ordering = ("-created_at", "-id")
    search_fields = ("id",)
    search_help_text = "A request id, an account's exact name or id, or a key's id."

    @admin.display(description="route or model asked for")
    def asked_for(self, failure: RequestFailure) -> str:
        """What it was about, as far as that is known."""
        return failure.route_id or failure.asked or failure.endpoint

    @admin.display(description="answer")
    def answer(self, failure: RequestFailure) -> str:
        """Its status and code, the provider's status, and how many more were like it."""
        provider = f", provider {failure.upstream_status}" if failure.upstream_status else ""
        more = f", and {failure.repeated:,} more" if failure.repeated else ""
        return f"{failure.status} {failure.code}{provider}{more}"

    @admin.display(description="message")
    def words(self, failure: RequestFailure) -> str:
        """The beginning of what the client was told."""
        return truncatechars(failure.message, 100)
