"""Shows aliases in the admin, without changing them."""

from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import QuerySet

from accounts.models import Account
from gateway.pages.admin import ExactSearchAdmin, RecordAdmin, searched_id

from .models import Alias, AliasEvent


@admin.register(Alias)
class AliasAdmin(RecordAdmin):
    """Shows the aliases of all accounts."""

    list_display = ("name", "account", "target", "created_at", "updated_at")
    list_select_related = ("account",)
    search_fields = ("name", "account__name", "provider", "canonical_id")
    search_help_text = "Part of the alias, of the account's name, or of the target."
    readonly_fields = ("id",)


@admin.register(AliasEvent)
class AliasEventAdmin(ExactSearchAdmin):
    """Shows the history of all aliases, including deleted ones."""

    list_display = (
        "created_at",
        "account",
        "event_type",
        "old_name",
        "new_name",
        "old_target",
        "new_target",
        "by",
        "by_key",
    )
    list_select_related = ("account", "by", "by_key")
    list_filter: ClassVar = ["event_type"]
    search_fields = ("alias_id",)
    search_help_text = "An account's exact name or id, or an alias's id."

    def search_exactly(self, rows: QuerySet[Any], term: str) -> QuerySet[Any]:
        try:
            return rows.filter(account=Account.objects.named(term))
        except Account.DoesNotExist:
            return rows.filter(alias_id=searched_id(term))
