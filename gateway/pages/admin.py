"""Holds the base classes of the apps' admin pages. Their paging never counts a large table."""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar
from uuid import UUID

from django import forms
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.utils import unquote
from django.contrib.admin.views.main import ChangeList
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db import connection
from django.db.models import Model, QuerySet
from django.db.models.signals import post_save
from django.dispatch import receiver
from django.forms import Form
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch
from django.utils.functional import cached_property
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst

from ..ids import parse_generation_id, parse_request_id
from ..server.turns import take_turns

logger = logging.getLogger(__name__)

# Django sends no signal when it writes the history of many rows at once, so `log_to_server` would miss it.
admin.site.disable_action("delete_selected")

COUNT_LIMIT = 1000


class BoundedPaginator(Paginator[Model]):
    """Counts at most COUNT_LIMIT rows."""

    # COUNT(*) of a large table takes minutes, and so does a large OFFSET.

    @cached_property
    def count(self) -> int:
        rows = self.object_list
        return rows[:COUNT_LIMIT].count() if isinstance(rows, QuerySet) else len(rows)


class RowsInTurns(list[Any]):
    """Lets other requests run between its rows."""

    # Django makes the cells of all rows in one go.

    def __iter__(self) -> Iterator[Any]:
        for row in super().__iter__():
            take_turns()
            yield row


class ListInTurns(ChangeList):
    """Is a list with the name of its table as title, which lets other requests run while it is rendered."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if not self.is_popup:
            self.title = str(capfirst(self.opts.verbose_name_plural))

    def get_results(self, request: HttpRequest) -> None:
        """Raises IncorrectLookupParameters if the address filters by an impossible year."""
        try:
            super().get_results(request)
            self.result_list = RowsInTurns(self.result_list)
        except (ValueError, OverflowError) as error:  # Django converts it to a date when it reads the rows
            raise IncorrectLookupParameters from error


class StaleFormCheck(forms.BaseModelForm[Any]):
    """Refuses the form if one of its fields has changed in the row since the page was opened."""

    # Members' forms save only the fields that were changed. Here that is not enough, because fields depend on each
    # other: the price that one person enters is wrong with the currency that another enters.

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        is_sent_by_page = any(self.add_initial_prefix(name) in self.data for name in self.fields)
        if not self.instance._state.adding and (is_sent_by_page or not self.is_bound):
            for field in self.fields.values():
                field.show_hidden_initial = not field.disabled  # a disabled field is not saved, and may be a secret

    def clean(self) -> dict[str, Any] | None:
        values = super().clean()
        changed = [str(self[name].label) for name in self.fields if self._has_changed_meanwhile(name)]
        if changed:
            message = f"Changed since this page was opened: {', '.join(changed)}.{_last_saved(self.instance)}"
            self.add_error(None, f"{message} Nothing was saved. Open the page again and repeat your change.")
        return values

    def _has_changed_meanwhile(self, name: str) -> bool:
        field, sent_as = self.fields[name], self.add_initial_prefix(name)
        if not field.show_hidden_initial or sent_as not in self.data:
            return False
        shown = field.hidden_widget().value_from_datadict(self.data, self.files, sent_as)
        now = self.get_initial_for_field(field, name)
        return field.has_changed(now.strip() if isinstance(now, str) else now, shown)


def _last_saved(row: Model) -> str:
    """Returns a sentence on who last saved the row's form, and when; empty if it was never saved."""
    of_row = LogEntry.objects.filter(content_type=ContentType.objects.get_for_model(row), object_id=str(row.pk))
    saved = of_row.filter(change_message__startswith="[{").select_related("user")  # other entries are plain text
    last = saved.order_by("-action_time", "-pk").first()
    return "" if last is None else f" It was last saved by {last.user} at {last.action_time:%Y-%m-%d %H:%M} UTC."


class RowForm(StaleFormCheck, forms.ModelForm[Any]):
    """Is the form of a table without rules of its own."""


class RowLockingAdmin(admin.ModelAdmin[Any]):
    """Is the admin of a table whose form does not overwrite what was changed since the page was opened."""

    form: type[Any] = RowForm

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        row = super().get_object(request, object_id, from_field)
        if row is None or request.method != "POST" or not connection.in_atomic_block:
            return row
        self.lock_row(row)
        return super().get_object(request, object_id, from_field)

    def lock_row(self, row: Model) -> None:
        """Locks the row, so that it cannot change between the form's check and its saving."""
        # Django writes every column of the row, also columns that are not in the form.
        type(row)._default_manager.select_for_update(no_key=True).filter(pk=row.pk).first()


class Admin(RowLockingAdmin):
    """Is the base of the admin of each of our tables."""

    def get_changelist(self, request: HttpRequest, **_kwargs: Any) -> type[ChangeList]:
        return ListInTurns


class ValueHistoryAdmin(Admin):
    """Is the admin of a table whose history shows each field's new value."""

    def construct_change_message(self, request: HttpRequest, form: Any, formsets: Any, add: bool = False) -> Any:
        parts = super().construct_change_message(request, form, formsets, add)
        for part in parts:
            of_row = part.get("changed", {})
            if "name" not in of_row and "fields" in of_row:  # an entry with a name belongs to an inline row
                shown = (_shown(form.instance, field) for field in form.changed_data)
                of_row["fields"] = [f"{label} to {value}" for label, value in zip(of_row["fields"], shown, strict=True)]
        return parts


def _shown(row: Model, field: str) -> str:
    display = getattr(row, f"get_{field}_display", None)
    value = display() if display else getattr(row, field)
    return "nothing" if value in (None, "") else str(value)


class RowPages(admin.ModelAdmin[Any]):
    """Is the admin of a table with further pages for a row, each with a form."""

    def row_or_404(self, request: HttpRequest, object_id: str, *, allowed: bool) -> Any:
        if not allowed:
            raise PermissionDenied
        row = self.get_object(request, unquote(object_id))
        if row is None:
            raise Http404
        return row

    def row_page(
        self, request: HttpRequest, template: str, row: Model, form: Form, *, title: str, **context: Any
    ) -> HttpResponse:
        # Answers 422 if the form has errors.
        context |= {"title": title, "subtitle": str(row), "opts": self.opts, "row": row, "form": form}
        context |= self.admin_site.each_context(request)
        return TemplateResponse(request, template, context, status=422 if form.errors else 200)


class BoundedAdmin(Admin):
    """Is the admin of a table that may be large. Lists the newest rows first."""

    # Columns cannot be sorted by: without an index that would read the whole table.

    paginator = BoundedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER  # facets would count every choice of every filter
    list_max_show_all = 0
    sortable_by: ClassVar[tuple[str, ...]] = ()
    ordering: ClassVar[tuple[str, ...]] = ("-pk",)


class FixedRows:
    """Is mixed into the admin of a table whose rows are added and removed elsewhere."""

    def has_add_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False


class RecordAdmin(FixedRows, BoundedAdmin):
    """Is the admin of a history, whose rows cannot be added, changed or removed."""

    list_per_page = 50
    plural_name = ""  # in the list's title, instead of the table's

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        name = self.plural_name or self.opts.verbose_name_plural
        title = {"title": f"The newest {COUNT_LIMIT:,} {name}: search for older ones"}
        return super().changelist_view(request, title | (extra_context or {}))


class ExactSearchAdmin(RecordAdmin):
    """Is the admin of records that are searched by whole ids and names."""

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Model], search_term: str
    ) -> tuple[QuerySet[Model], bool]:
        term = search_term.strip()
        return (self.search_exactly(queryset, term) if term else queryset), False

    def search_exactly(self, rows: QuerySet[Any], term: str) -> QuerySet[Any]:
        return rows.filter(pk=searched_id(term))


def short_id(public_id: str) -> SafeString:
    """Returns an id in HTML that is cut to the column's width, with a button that copies it."""
    return format_html(
        '<code class="short-id" id="{0}" title="{0}"><span>{1}</span>{2}</code>'
        ' <button type="button" class="copy" data-copy="{0}" aria-label="Copy {0}" hidden>Copy</button>',
        public_id,
        public_id[:-6],
        public_id[-6:],
    )


def searched_id(term: str) -> UUID | None:
    """Returns the UUID in a search term: a generation's id, a request's id or a UUID. None if it is neither."""
    public = parse_generation_id(term) or parse_request_id(term)
    if public is not None:
        return public
    try:
        return UUID(term)
    except ValueError:
        return None


class NamedChoices(admin.SimpleListFilter):
    """Filters by choices, each with a label and a function that narrows the rows."""

    choices_by_value: ClassVar[Mapping[str, tuple[str, Callable[[Any], QuerySet[Any]]]]] = {}

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(value, label) for value, (label, _) in self.choices_by_value.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        _, narrowed = self.choices_by_value.get(self.value() or "", ("", None))
        return queryset if narrowed is None else narrowed(queryset)


@admin.register(LogEntry)
class LogEntryAdmin(ExactSearchAdmin):
    """Shows the history of staff's changes; `?user=` filters by person."""

    plural_name = "changes by staff"

    list_display = ("action_time", "user", "action_flag", "row", "what")
    list_select_related = ("user", "content_type")
    search_fields = ("object_id",)
    search_help_text = "The id of what was changed, or a person's email address."
    fields = readonly_fields = ("action_time", "user", "action_flag", "row", "object_id", "what")

    def search_exactly(self, rows: QuerySet[Any], term: str) -> QuerySet[Any]:
        if "@" in term:
            return rows.filter(user__email=term.lower())
        return rows.filter(object_id=searched_id(term) or term)

    @admin.display(description="row")
    def row(self, entry: LogEntry) -> str:
        name = f"{entry.content_type.name if entry.content_type else 'row'}: {entry.object_repr}"
        try:
            address = None if entry.is_deletion() else entry.get_admin_url()
        except NoReverseMatch:
            address = None
        return format_html('<a href="{}">{}</a>', address, name) if address else name

    @admin.display(description="what")
    def what(self, entry: LogEntry) -> str:
        return str(entry.get_change_message()) or "no field changed"


@receiver(post_save, sender=LogEntry)
def log_to_server(instance: LogEntry, created: bool, **_signal: Any) -> None:
    """Logs each change by staff: who changed which row."""
    # Names and values are only in the history.
    if created:
        did = instance.get_action_flag_display().lower()
        kind = instance.content_type
        label = f"{kind.app_label}.{kind.model}" if kind is not None else "nothing"
        logger.info("staff %s: %s of %s %s", instance.user_id, did, label, instance.object_id)
