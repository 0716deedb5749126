"""Aliases in the admin: to look at, not to change; an account moves its own names."""

from typing import ClassVar

from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest

from accounts.models import Account
from gateway.admin import RecordAdmin, searched_id

from .models import Alias, AliasEvent


@admin.register(Alias)
class AliasAdmin(RecordAdmin):
    """What each account calls what."""

    list_display = ("name", "account", "target", "created_at", "updated_at")
    list_select_related = ("account",)
    search_fields = ("name", "account__name", "provider", "canonical_id")
    search_help_text = "Part of the alias, of the account's name, or of the target."
    readonly_fields = ("id",)


@admin.register(AliasEvent)
class AliasEventAdmin(RecordAdmin):
    """What happened to them, deleted ones included."""

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

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Model], search_term: str
    ) -> tuple[QuerySet[Model], bool]:
        """Exact look-ups only, each by an index."""
        if not (term := search_term.strip()):
            return queryset, False
        try:
            return queryset.filter(account=Account.objects.named(term)), False
        except Account.DoesNotExist:
            return queryset.filter(alias_id=searched_id(term)), False
