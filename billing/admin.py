"""Accounts with their balance, and the ledger and the records of use, which staff may read and nobody may change."""

from typing import TYPE_CHECKING
from uuid import UUID

from django.contrib import admin
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest

from accounts.admin import MembershipInline
from accounts.lookup import AccountNotFound, find_account
from accounts.models import Account
from gateway.admin import BoundedPaginator, RecordAdmin, searched_id

from .accounts import has_entries
from .models import Generation, LedgerEntry

if TYPE_CHECKING:
    _AccountAdmin = admin.ModelAdmin[Account]
else:
    _AccountAdmin = admin.ModelAdmin  # takes no type parameters when the program runs


@admin.register(Account)
class AccountAdmin(_AccountAdmin):
    """Who pays. Accounts are renamed, never removed: their wallet, keys and history hold on to them."""

    paginator = BoundedPaginator
    show_full_result_count = False
    list_display = ("name", "balance", "currency", "created_at")
    list_select_related = ("wallet",)
    search_fields = ("name", "membership__user__email")
    ordering = ("name",)
    sortable_by = ("name",)
    fields = ("name", "currency", "balance", "alias_limit", "id", "created_at")
    readonly_fields = ("balance", "id", "created_at")
    inlines = (MembershipInline,)

    def has_delete_permission(self, request: HttpRequest, obj: Account | None = None) -> bool:
        """Nobody: see above."""
        return False

    def get_readonly_fields(self, request: HttpRequest, obj: Account | None = None) -> tuple[str, ...]:
        """The first ledger entry fixes the currency."""
        fixed = obj is not None and has_entries(obj)
        return (*self.readonly_fields, "currency") if fixed else self.readonly_fields

    @admin.display(description="balance")
    def balance(self, account: Account) -> str:
        """The wallet's balance, exactly. Credit is booked by `grant_credit`."""
        return f"{account.wallet.balance:,f}" if hasattr(account, "wallet") else "0"


def _in_account(name_or_id: str) -> UUID | None:
    try:
        return find_account(name_or_id).pk
    except AccountNotFound:
        return None


@admin.register(LedgerEntry)
class LedgerEntryAdmin(RecordAdmin):
    """Every movement of money. A mistake is undone by a second entry (`grant_credit --correction`)."""

    list_display = ("created_at", "account", "seq", "kind", "amount", "balance_after", "reference", "generation")
    list_select_related = ("account", "generation")
    search_fields = ("account__name",)
    search_help_text = "An account's exact name or id, or a generation id."

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


@admin.register(Generation)
class GenerationAdmin(RecordAdmin):
    """Every request that was served, with what its bill was made of."""

    list_display = (
        "created_at",
        "public_id",
        "account",
        "route_id",
        "cost",
        "currency",
        "prompt_tokens",
        "completion_tokens",
        "ending",
    )
    list_select_related = ("account",)
    search_fields = ("id",)
    search_help_text = "An account's exact name or id, a key's id, or a generation id."

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Model], search_term: str
    ) -> tuple[QuerySet[Model], bool]:
        """Exact look-ups only, each by an index."""
        if not (term := search_term.strip()):
            return queryset, False
        account_id, wanted = _in_account(term), searched_id(term)
        if account_id is not None:
            return queryset.filter(account_id=account_id).order_by("-created_at", "-id"), False
        return queryset.filter(Q(pk=wanted) | Q(key_id=wanted)) if wanted else queryset.none(), False
