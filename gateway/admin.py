"""What the apps' admins share: tables that are only looked at, and paging that never counts a large one."""

from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.contrib import admin
from django.core.paginator import Paginator
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.functional import cached_property

from .ids import parse_generation_id

admin.site.site_header = admin.site.site_title = "Inference Gateway"
admin.site.index_title = "Administration"

COUNT_LIMIT = 1000

if TYPE_CHECKING:
    _Paginator = Paginator[Model]
    _ModelAdmin = admin.ModelAdmin[Model]
else:
    _Paginator, _ModelAdmin = Paginator, admin.ModelAdmin  # Django's own take no type parameters when the program runs


class BoundedPaginator(_Paginator):
    """Counts no further than COUNT_LIMIT rows: a COUNT(*) of a large table takes minutes, and so does a deep OFFSET."""

    @cached_property
    def count(self) -> int:
        """The number of rows, or COUNT_LIMIT where there are more."""
        rows = self.object_list
        return rows[:COUNT_LIMIT].count() if isinstance(rows, QuerySet) else len(rows)


class RecordAdmin(_ModelAdmin):
    """Rows that history is made of: looked at, searched for exactly, never added, changed or removed.

    Newest first by primary key; no column can be sorted by, since sorting by one without an index reads everything.
    """

    paginator = BoundedPaginator
    show_full_result_count = False
    list_per_page = 50
    list_max_show_all = 0
    sortable_by = ()
    ordering = ("-pk",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nobody."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Nobody; looking needs the view permission only."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Nobody."""
        return False

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """The list, whose title says that it ends: a search finds what is older."""
        name = self.opts.verbose_name_plural
        title = {"title": f"The newest {COUNT_LIMIT:,} {name}: search for older ones"}
        return super().changelist_view(request, title | (extra_context or {}))


def searched_id(term: str) -> UUID | None:
    """The id that staff searched for: a public generation id, or a UUID in any notation."""
    public = parse_generation_id(term)
    if public is not None:
        return public
    try:
        return UUID(term)
    except ValueError:
        return None
