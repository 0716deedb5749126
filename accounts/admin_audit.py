"""Shows the audit logs of all accounts in the admin."""

from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest

from gateway.pages.admin import ExactSearchAdmin, searched_id

from . import audit
from .models import AuditEvent


@admin.register(AuditEvent)
class AuditEventAdmin(ExactSearchAdmin):
    """Shows who did what to which account. Nothing can be changed."""

    list_display = ("created_at", "account", "action", "who", "what", "old", "new", "address")
    fields = (*list_display, "request_id")
    list_filter = ("action", "actor_kind")
    list_select_related = ("account",)
    search_fields = ("account__name",)
    search_help_text = "An account's exact name or id, the id of a key or alias, a tag, or a request's id."

    def search_exactly(self, rows: QuerySet[AuditEvent], term: str) -> QuerySet[AuditEvent]:
        wanted = searched_id(term)
        if wanted is None:
            return rows.filter(Q(account__name=term) | Q(object_id=term) | Q(request_id=term))
        return rows.filter(Q(account_id=wanted) | Q(object_id=str(wanted)) | Q(actor_id=str(wanted)))

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        found = super().get_changelist_instance(request)
        for shown in audit.shown(found.result_list):
            vars(shown.event)["shown"] = shown  # looked up for all rows at once
        return found

    @admin.display(description="by")
    def who(self, event: AuditEvent) -> str:
        shown = _shown(event)
        return f"{event.get_actor_kind_display()} {shown.actor_name or event.actor_id}".rstrip()

    @admin.display(description="object")
    def what(self, event: AuditEvent) -> str:
        return f"{event.object_kind} {_shown(event).object_name or event.object_id}"

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm("accounts.change_apikey") or super().has_view_permission(request, obj)


def _shown(event: AuditEvent) -> audit.ShownEvent:
    found: audit.ShownEvent | None = getattr(event, "shown", None)
    return audit.shown([event])[0] if found is None else found
