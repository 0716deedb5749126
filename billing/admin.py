"""Shows accounts, the ledger and the records in the admin."""

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any, ClassVar
from uuid import UUID

from django.contrib import admin, messages
from django.db import models
from django.db.models import Count, OuterRef, Q, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse
from django.template.defaultfilters import truncatechars
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from accounts import audit
from accounts.actions import Action
from accounts.admin import MembershipInline
from accounts.admin_invitations import InvitationPages
from accounts.admin_suspensions import SuspensionPages
from accounts.audit import Subject
from accounts.models import INVITING_RIGHT, Account, Membership
from gateway.ids import generation_id
from gateway.money import ExactDecimalField, plain
from gateway.pages.admin import BoundedAdmin, ExactSearchAdmin, ValueHistoryAdmin, searched_id, short_id
from gateway.pages.admin_search import Searchable, SearchTerm, dashboard_page
from gateway.templatetags import figures

from . import admin_filters as filters
from . import admin_policies  # noqa: F401  # registers them
from .accounts import has_entries, rate_warning
from .admin_closing import ClosingPages
from .admin_credit import CREDIT_RIGHT, CreditPages
from .admin_customer import customer
from .admin_new_customer import NewCustomerPages
from .admin_refunds import RefundPages, refund_of
from .ledger import balance_lines
from .ledger.record_columns import RECORD_COLUMNS, RecordColumn, Section
from .models import Generation, LedgerEntry, RequestFailure

# Links on a new account's page: the permission that is required, the name of the view, and the label.
FIRST_STEPS = ((CREDIT_RIGHT, "credit", "Add credit"), (INVITING_RIGHT, "invite", "Invite a member"))
# Links in the same form that stop an account.
LAST_STEPS = (
    ("accounts.change_account", "suspend", "Suspension"),
    ("accounts.change_account", "close", "Close account"),
)
# Replaces LAST_STEPS on the page of a closed account: it shows why the account was closed.
CLOSING = ("accounts.change_account", "close", "Closing")


@admin.register(Account)
class AccountAdmin(
    NewCustomerPages,
    InvitationPages,
    SuspensionPages,
    ClosingPages,
    CreditPages,
    Searchable,
    ValueHistoryAdmin,
    BoundedAdmin,
):
    """Shows accounts, which cannot be removed, because wallets, keys and history refer to them."""

    list_display = ("name", "balance", "far_below_zero", "suspended_at", "member_count", "created_at")
    list_filter = (filters.BalanceFilter, filters.SuspensionFilter, "currency")
    list_select_related = ("wallet", "overdraft_alert")
    search_fields = ("name", "membership__user__email", "=id")
    search_help_text = "Part of the name or of a member's email address, or the account's id."
    ordering = ("name",)
    sortable_by = ("name",)
    fields = (
        "name",
        "currency",
        "far_below_zero",
        "suspended_at",
        "closed_at",
        "low_balance",
        "alias_limit",
        "id",
        "created_at",
    )
    readonly_fields = ("far_below_zero", "suspended_at", "closed_at", "id", "created_at")
    inlines = (MembershipInline,)
    search_place = 1

    def found(self, rows: QuerySet[Account], term: SearchTerm) -> QuerySet[Account]:
        named = Q(name__icontains=term.text)
        return rows.filter(named if term.low is None else named | Q(**term.ids)).order_by("name")

    def detail_of(self, row: Account) -> str:
        return "closed" if row.closed_at else "suspended" if row.suspended_at else row.currency

    def dashboard_of(self, row: Account) -> str:
        return dashboard_page("overview", row.pk)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Account]:
        members = Membership.objects.filter(account=OuterRef("pk")).order_by().values("account")
        count = Subquery(members.annotate(all=Count("pk")).values("all"))
        accounts: QuerySet[Account] = super().get_queryset(request).annotate(members_in=count)
        return accounts

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        account: Account | None = kwargs["obj"]
        self._warn(request, account)
        if account is not None:
            last_steps = LAST_STEPS if account.closed_at is None else (CLOSING,)
            context |= customer(request, account, timezone.now())
            context["next_steps"] = _permitted(request, str(account.pk), *FIRST_STEPS, *last_steps)
        return super().render_change_form(request, context, *args, **kwargs)

    def save_model(self, request: HttpRequest, obj: Account, form: Any, change: bool) -> None:
        # Saves only what staff changed, so that a suspension that began meanwhile stays.
        obj.save(update_fields=form.changed_data)
        audit.record_form(obj.pk, Action.ACCOUNT_CHANGED, Subject.of_account(obj), form)
        if "low_balance" in form.changed_data:
            balance_lines.set_highest(obj.pk, obj.low_balance)
        if "_continue" not in request.POST:
            self._warn(request, obj)

    def _warn(self, request: HttpRequest, account: Account | None) -> None:
        if account is not None and (warning := rate_warning(account)):
            self.message_user(request, warning, messages.WARNING)

    def has_delete_permission(self, request: HttpRequest, obj: Account | None = None) -> bool:
        return False

    def get_readonly_fields(self, request: HttpRequest, obj: Account | None = None) -> tuple[str, ...]:
        """Makes the currency read-only once there is a ledger entry."""
        fixed = obj is not None and has_entries(obj)
        return (*self.readonly_fields, "currency") if fixed else self.readonly_fields

    @admin.display(description="balance")
    def balance(self, account: Account) -> SafeString:
        return _balance(account.wallet.balance, account.currency)

    @admin.display(description="overdrawn")
    def far_below_zero(self, account: Account) -> str:
        """Shows since when the account has been far below zero (billing.ledger.overdraft)."""
        if not hasattr(account, "overdraft_alert"):
            return "no"
        return f"since {account.overdraft_alert.raised_at:%Y-%m-%d %H:%M} UTC"

    @admin.display(description="members")
    def member_count(self, account: Any) -> int:
        return account.members_in or 0


def _balance(amount: Decimal, currency: str) -> SafeString:
    """Returns a balance in whole cents with its currency; the title has all digits."""
    return format_html("{}\N{NO-BREAK SPACE}{}", figures.balance(amount), currency)


def _permitted(request: HttpRequest, account_id: str, *steps: tuple[str, str, str]) -> list[tuple[str, str]]:
    """Returns the addresses and names of the steps that this person may take for an account."""
    return [
        (reverse(f"admin:accounts_account_{view}", args=[account_id]), name)
        for right, view, name in steps
        if request.user.has_perm(right)
    ]


def _account_id_named(name_or_id: str) -> UUID | None:
    try:
        return Account.objects.named(name_or_id).pk
    except Account.DoesNotExist:
        return None


@admin.register(LedgerEntry)
class LedgerEntryAdmin(ExactSearchAdmin):
    """Shows every change of a balance."""

    list_display = ("created_at", "account", "kind", "amount_and_currency", "balance", "source", "reason")
    fields = ("created_at", "account", "seq", "kind", "amount_and_currency", "balance", "source", "reason")
    list_filter = (filters.KindOfEntry, filters.EntryDay)
    list_select_related = ("account",)
    search_fields = ("account__name",)
    search_help_text = "An account's exact name or id, or a generation id."

    @admin.display(description="amount")
    def amount_and_currency(self, entry: LedgerEntry) -> str:
        return f"{plain(entry.amount)}\N{NO-BREAK SPACE}{entry.account.currency}"

    @admin.display(description="balance after")
    def balance(self, entry: LedgerEntry) -> SafeString:
        return _balance(entry.balance_after, entry.account.currency)

    @admin.display(description="reference or generation")
    def source(self, entry: LedgerEntry) -> str | None:
        # The link is made from the id alone, without reading the record.
        if entry.generation_id is None:
            return entry.reference
        address = reverse("admin:billing_generation_change", args=[entry.generation_id])
        return format_html('<a href="{}">{}</a>', address, generation_id(entry.generation_id))

    def search_exactly(self, rows: QuerySet[Any], term: str) -> QuerySet[Any]:
        account_id = _account_id_named(term)
        if account_id is not None:
            return rows.filter(account_id=account_id).order_by("-seq")
        return rows.filter(generation_id=searched_id(term)).exclude(generation=None)


class RequestAdmin(Searchable, ExactSearchAdmin):
    """Searches rows of single requests by their id, their account or their key."""

    def found(self, rows: QuerySet[Any], term: SearchTerm) -> QuerySet[Any]:
        return rows.none() if term.low is None else rows.filter(**term.ids).select_related("account").order_by("-pk")

    def search_exactly(self, rows: QuerySet[Any], term: str) -> QuerySet[Any]:
        account_id, wanted = _account_id_named(term), searched_id(term)
        if account_id is None and (wanted is None or rows.model._default_manager.filter(pk=wanted).exists()):
            return rows.filter(pk=wanted)
        # Filter by account or by key, never by both with OR: each has an index of its own, in the order of time.
        owner = {"key_id": wanted} if account_id is None else {"account_id": account_id}
        return rows.filter(**owner).order_by("-created_at", "-id")


NONE = "-"  # as Django shows an empty column
FEW_LINES = 6  # of JSON, which are shown at once
# Columns that the admin shows by a link or by a method of `GenerationAdmin`.
SHOWN_BY = {
    "account_id": "account",
    "key_id": "key",
    "flags": "flagged_with",
    "cost": "billed",
    "upstream_usage": "usage_of_provider",
}


def _field(column: RecordColumn) -> str | Callable[[Generation], str]:
    """Returns what to put in `fieldsets` for a column.

    That is its own name, the name of its method in SHOWN_BY, or a function that writes the exact figure with its unit.
    """
    if column.name in SHOWN_BY:
        return SHOWN_BY[column.name]
    if column.is_computed:
        return column.name
    numbers = (ExactDecimalField, models.IntegerField, models.BooleanField, models.JSONField)
    if not column.is_frozen and not isinstance(Generation._meta.get_field(column.name), numbers):
        return column.name

    @admin.display(description=column.label)
    def shown(record: Generation) -> str:
        return _text(column.read(record), column.unit_of(record))

    return shown


def _text(value: Any, unit: str) -> str:
    """Writes a figure exactly with its unit, booleans as yes or no, and JSON folded."""
    match value:
        case None:
            return NONE
        case bool():  # Django's red cross for False would make good news look bad
            return "yes" if value else "no"
        case dict() | list():
            return _folded(value)
        case Decimal():
            number = plain(value)
        case _:
            number = f"{value:,}"
    return f"{number}\N{NO-BREAK SPACE}{unit}".strip()


def _folded(value: Any) -> str:
    """Writes JSON over several lines, which are folded if they are many."""
    if not value:
        return NONE
    text = json.dumps(value, indent=2, ensure_ascii=False)
    is_open = SafeString("" if text.count("\n") > FEW_LINES else " open")
    return format_html("<details{}><summary>JSON</summary><pre>{}</pre></details>", is_open, text)


def _fieldsets() -> list[tuple[str | None, Any]]:
    """Returns the sections of a record's page, each with its columns in the order of RECORD_COLUMNS."""
    shown = {
        section.value: [_field(column) for column in RECORD_COLUMNS if column.section is section] for section in Section
    }
    return [(title, {"fields": fields}) for title, fields in shown.items()]


@admin.register(Generation)
class GenerationAdmin(RefundPages, RequestAdmin):
    """Shows every request that was served, with the terms of its bill."""

    fieldsets: ClassVar[Any] = _fieldsets()  # Any, because some columns are functions, which Django's type lacks
    list_display = (
        "created_at",
        "short_id",
        "account",
        "route_id",
        "billed",
        "prompt_tokens",
        "completion_tokens",
        "ending",
        "flagged_with",
    )
    list_filter = (filters.RecordDay, filters.PriceFilter, filters.FlagFilter)
    list_select_related = ("account",)
    search_fields = ("id",)
    search_help_text = "An account's exact name or id, a key's id, or a generation or request id."
    search_place = 4

    def detail_of(self, row: Generation) -> str:
        return f"{row.account}, {row.route_id}, {row.created_at:%Y-%m-%d %H:%M} UTC"

    def dashboard_of(self, row: Generation) -> str:
        return dashboard_page("usage-record", row.account_id, row.public_id)

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        record: Generation = kwargs["obj"]
        context |= {"may_refund": self.may_refund(request), "refund": refund_of(record)}
        return super().render_change_form(request, context, *args, **kwargs)

    @admin.display(description="id")
    def public_id(self, generation: Generation) -> str:
        return generation.public_id

    @admin.display(description="id")
    def short_id(self, generation: Generation) -> str:
        return short_id(generation.public_id)

    @admin.display(description="route")
    def route_id(self, generation: Generation) -> str:
        return generation.route_id

    @admin.display(description="cost")
    def billed(self, generation: Generation) -> str:
        return NONE if generation.cost is None else f"{plain(generation.cost)}\N{NO-BREAK SPACE}{generation.currency}"

    @admin.display(description="provider's usage")
    def usage_of_provider(self, record: Generation) -> str:
        try:
            return _folded(json.loads(record.upstream_usage or "null"))
        except ValueError:
            return record.upstream_usage or NONE

    @admin.display(description="flags")
    def flagged_with(self, record: Generation) -> str:
        return " ".join(record.flagged) or NONE


@admin.register(RequestFailure)
class RequestFailureAdmin(RequestAdmin):
    """Shows every request that was refused or failed."""

    list_display = ("created_at", "short_id", "account", "asked_for", "answer", "words")
    list_filter = (filters.DayFilter, filters.FailureOutcome, filters.FailureProvider)
    fields = (
        "public_id",
        "created_at",
        "account",
        "key",
        "endpoint",
        "asked",
        "route",
        "outcome",
        "answer",
        "message",
        "duration",
        "record",
    )
    list_select_related = ("account",)
    ordering = ("-created_at", "-id")
    search_fields = ("id",)
    search_help_text = "A request id, an account's exact name or id, or a key's id."
    search_place = 5

    def found(self, rows: QuerySet[RequestFailure], term: SearchTerm) -> QuerySet[RequestFailure]:
        return rows.none() if term.is_of_generation else super().found(rows, term)

    def detail_of(self, row: RequestFailure) -> str:
        return f"{row.account or 'no account'}, {row.status} {row.code}, {row.created_at:%Y-%m-%d %H:%M} UTC"

    def dashboard_of(self, row: RequestFailure) -> str | None:
        return None if row.account_id is None else dashboard_page("usage-failure", row.account_id, row.request_id)

    @admin.display(description="request")
    def public_id(self, failure: RequestFailure) -> str:
        return failure.request_id

    @admin.display(description="route")
    def route(self, failure: RequestFailure) -> str:
        return failure.route_id or NONE

    @admin.display(description="duration")
    def duration(self, failure: RequestFailure) -> str:
        return f"{failure.duration_ms:,} ms"

    @admin.display(description="billed as")
    def record(self, failure: RequestFailure) -> str:
        if failure.generation_id is None:
            return "not billed"
        address = reverse("admin:billing_generation_change", args=[failure.pk])
        return format_html('<a href="{}">{}</a>', address, failure.generation_id)

    @admin.display(description="request")
    def short_id(self, failure: RequestFailure) -> str:
        return short_id(failure.request_id)

    @admin.display(description="route or model asked for")
    def asked_for(self, failure: RequestFailure) -> str:
        return failure.route_id or failure.asked or failure.endpoint

    @admin.display(description="answer")
    def answer(self, failure: RequestFailure) -> str:
        provider = f", provider {failure.upstream_status}" if failure.upstream_status else ""
        more = f", and {failure.repeated:,} more" if failure.repeated else ""
        return f"{failure.status} {failure.code}{provider}{more}"

    @admin.display(description="message")
    def words(self, failure: RequestFailure) -> str:
        return truncatechars(failure.message, 100)
