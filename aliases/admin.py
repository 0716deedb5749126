"""Aliases in the admin: to look at, not to change; an account moves its own names."""

from typing import ClassVar

from django.contrib import admin

from gateway.admin import RecordAdmin

from .models import Alias, AliasEvent


@admin.register(Alias)
class AliasAdmin(RecordAdmin):
    """What each account calls what."""

    list_display = ("name", "account", "target", "created_at", "updated_at")
    list_select_related = ("account",)
    search_fields = ("name", "account__name", "provider", "canonical_id")


@admin.register(AliasEvent)
class AliasEventAdmin(RecordAdmin):
    """What happened to them, deleted ones included."""

    list_display = ("created_at", "account", "event_type", "old_name", "new_name", "old_target", "new_target")
    list_select_related = ("account",)
    list_filter: ClassVar = ["event_type"]
    search_fields = ("account__name", "old_name", "new_name")
