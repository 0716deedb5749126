"""Shows people and keys in the admin. billing/admin.py shows accounts."""

from typing import Any, ClassVar

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialToken
from allauth.usersessions.models import UserSession
from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import LogEntry
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.forms import AdminUserCreationForm, UserChangeForm
from django.contrib.auth.models import Group
from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone

from gateway.pages.admin import (
    Admin,
    BoundedAdmin,
    FixedRows,
    NamedChoices,
    RowLockingAdmin,
    StaleFormCheck,
    ValueHistoryAdmin,
)
from gateway.pages.admin_search import Searchable, SearchTerm, dashboard_page

from . import admin_audit, audit, keys  # noqa: F401  # the first registers the audit log
from .actions import Action
from .audit import Subject
from .models import Account, ApiKey, Membership, User

# allauth's rows belong to the people themselves: they see and remove them on their pages.
admin.site.unregister([EmailAddress, Authenticator, SocialAccount, SocialApp, SocialToken, UserSession])

SECRETS = ("fingerprint", "verifier")
LIVE = Q(deleted_at=None)
RIGHTS = ("is_staff", "is_superuser", "groups", "user_permissions")


class _LowercaseEmail(forms.BaseForm):
    # accepts an address in any case
    def clean_email(self) -> str:
        return str(self.cleaned_data["email"]).lower()


class NewUserForm(_LowercaseEmail, AdminUserCreationForm[User]):
    """Asks for the email address and password of a new person."""

    class Meta:
        model = User
        fields = ("email",)


class UserForm(_LowercaseEmail, StaleFormCheck, UserChangeForm[User]):
    """Lets staff change a person."""

    class Meta:
        model = User
        fields = "__all__"


@admin.register(User)
class UserAdmin(Searchable, Admin, DjangoUserAdmin[User]):
    """Shows people, who are identified by their email address."""

    form = UserForm
    add_form = NewUserForm
    ordering = ("email",)
    list_display = ("email", "first_name", "last_name", "is_active", "is_staff", "last_login")
    list_filter = ("is_staff", "is_superuser", "is_active")
    search_fields = ("email", "first_name", "last_name")
    search_help_text = "Part of the email address or of the name."
    fieldsets = (
        (None, {"fields": ("email", "password")}),
        ("Person", {"fields": ("first_name", "last_name", "wants_notices")}),
        ("Rights", {"fields": ("is_active", "is_staff", "is_superuser", "groups", "user_permissions")}),
        ("Dates", {"fields": ("last_login", "date_joined")}),
    )
    readonly_fields = ("last_login", "date_joined")
    add_fieldsets = ((None, {"classes": ("wide",), "fields": ("email", "usable_password", "password1", "password2")}),)

    search_place = 2

    def found(self, rows: QuerySet[User], term: SearchTerm) -> QuerySet[User]:
        text = term.text
        named = Q(email__icontains=text) | Q(first_name__icontains=text) | Q(last_name__icontains=text)
        return rows.filter(named).order_by("email")

    def detail_of(self, row: User) -> str:
        return row.get_full_name()

    def get_readonly_fields(self, request: HttpRequest, obj: User | None = None) -> tuple[str, ...]:
        # A person with the right to change people could otherwise take every other right.
        return self.readonly_fields if _is_superuser(request) else (*self.readonly_fields, *RIGHTS)

    def has_change_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        # Only superusers may change staff: with a new address or password one could act as them.
        return _may_touch(request, obj) and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        # Deleting a person also deletes what they did as staff from the history; make them inactive instead.
        acted = obj is not None and LogEntry.objects.filter(user=obj).exists()
        return _may_touch(request, obj) and not acted and super().has_delete_permission(request, obj)


admin.site.unregister(Group)


@admin.register(Group)
class GroupAdmin(RowLockingAdmin, DjangoGroupAdmin):
    """Shows groups of rights, which only superusers may change."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return _is_superuser(request) and super().has_add_permission(request)

    def has_change_permission(self, request: HttpRequest, obj: Group | None = None) -> bool:
        return _is_superuser(request) and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Group | None = None) -> bool:
        return _is_superuser(request) and super().has_delete_permission(request, obj)


def _is_superuser(request: HttpRequest) -> bool:
    return bool(request.user.is_active and request.user.is_superuser)


def _may_touch(request: HttpRequest, person: User | None) -> bool:
    return person is None or _is_superuser(request) or not (person.is_staff or person.is_superuser)


class MembershipForm(StaleFormCheck, forms.ModelForm[Membership]):
    """Changes a member's role. The person is fixed: keys and invitations belong to this membership."""

    class Meta:
        model = Membership
        fields = ("user", "role")

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        is_member = self.instance.pk is not None
        self.fields["user"].disabled = is_member
        # The columns' headings are no labels of the fields below them.
        self.fields["user"].widget.attrs["aria-label"] = "Member"
        self.fields["role"].widget.attrs["aria-label"] = f"Role of {self.instance.user if is_member else 'the member'}"


class MembershipFormSet(forms.BaseInlineFormSet[Membership, Account, MembershipForm]):
    """Names the box that removes each member."""

    def add_fields(self, form: MembershipForm, index: int | None) -> None:
        super().add_fields(form, index)
        if "DELETE" in form.fields and form.instance.pk is not None:
            form.fields["DELETE"].widget.attrs["aria-label"] = f"Remove {form.instance.user}"


class MembershipInline(admin.TabularInline[Membership, Account]):
    """Shows the members of an account."""

    model = Membership
    form = MembershipForm
    formset = MembershipFormSet  # type: ignore[assignment]  # the stubs want the plain form
    extra = 0
    autocomplete_fields = ("user",)
    verbose_name = "member"
    verbose_name_plural = "members"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Membership]:
        return super().get_queryset(request).select_related("user", "account")  # for the row's title


class KeyStateFilter(NamedChoices):
    """Filters keys by state; by default it leaves out deleted ones."""

    title = parameter_name = "state"
    choices_by_value: ClassVar = {
        "active": ("active", lambda rows: rows.filter(Q(expires_at=None) | Q(expires_at__gt=timezone.now()), LIVE)),
        "expired": ("expired", lambda rows: rows.filter(LIVE, expires_at__lte=timezone.now())),
        "deleted": ("deleted", lambda rows: rows.exclude(LIVE)),
    }

    def queryset(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> QuerySet[ApiKey]:
        narrowed = super().queryset(request, queryset)
        return queryset.filter(LIVE) if narrowed is queryset else narrowed


@admin.register(ApiKey)
class ApiKeyAdmin(Searchable, FixedRows, ValueHistoryAdmin, BoundedAdmin):
    """Shows keys without their secrets."""

    # Keys are not added here, because a token is shown only once, by `create_key`. They are not removed either: a
    # deleted key stops working, and its row keeps the name for the usage history.

    list_display = ("name", "masked", "account", "state", "expires_at", "last_used_at", "rpm", "tpm", "created_at")
    list_select_related = ("account",)
    list_filter = (KeyStateFilter,)
    search_fields = ("name", "account__name", "last_four")
    search_help_text = "Part of the key's name, of the account's name, or of the last four characters."
    readonly_fields = (
        "name",
        "masked",
        "account",
        "state",
        "expires_at",
        "last_used_at",
        "created_at",
        "created_by",
        "deleted_at",
    )
    fields = (*readonly_fields, "rpm", "tpm")
    actions = ["delete_keys"]
    search_place = 3

    def found(self, rows: QuerySet[ApiKey], term: SearchTerm) -> QuerySet[ApiKey]:
        named = Q(name__icontains=term.text) | Q(last_four=term.text.rpartition("…")[2])
        rows = rows.filter(named if term.low is None else named | Q(**term.ids))
        return rows.select_related("account").order_by(F("deleted_at").desc(nulls_first=True), "-pk")

    def detail_of(self, row: ApiKey) -> str:
        return f"{row.account}, {self.state(row)}"

    def dashboard_of(self, row: ApiKey) -> str:
        return f"{dashboard_page('usage', row.account_id)}&key={row.pk}"

    def save_model(self, request: HttpRequest, obj: ApiKey, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        audit.record_form(obj.account_id, Action.KEY_CHANGED, Subject.of_key(obj), form)

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        # Otherwise the address could filter by any column of the table.
        return lookup.partition("__")[0] not in SECRETS and super().lookup_allowed(lookup, value, request)

    @admin.display(description="key")
    def masked(self, key: ApiKey) -> str:
        return key.masked

    @admin.display(description="state")
    def state(self, key: ApiKey) -> str:
        if key.deleted_at is not None:
            return "deleted"
        return "expired" if key.expires_at is not None and key.expires_at <= timezone.now() else "active"

    @admin.action(description="Delete the selected keys: they fail on their next request", permissions=["change"])
    def delete_keys(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> HttpResponse | None:
        # Asks for confirmation first, then deletes as `delete_key` does.
        chosen = list(queryset.filter(deleted_at=None)[: self.list_per_page + 1])
        if len(chosen) > self.list_per_page:
            message = f"Nothing was deleted. Choose at most {self.list_per_page} keys at once."
            self.message_user(request, message, messages.ERROR)
            return None
        if chosen and "confirmed" not in request.POST:
            return self._ask(request, chosen)
        deleted = sum(self._delete(request, key) for key in chosen)
        message, left_alone = f"Keys deleted: {deleted}.", len(request.POST.getlist(ACTION_CHECKBOX_NAME)) - deleted
        if left_alone:
            message += f" Not deleted: {left_alone}, because they were deleted before or are no longer in this list."
        self.message_user(request, message, messages.WARNING if left_alone else messages.SUCCESS)
        return None

    def _ask(self, request: HttpRequest, chosen: list[ApiKey]) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "title": "Delete these keys?",
            "opts": self.opts,
            "keys": chosen,
            "checkbox": ACTION_CHECKBOX_NAME,
        }
        return TemplateResponse(request, "admin/accounts/apikey/delete_keys.html", context)

    def _delete(self, request: HttpRequest, key: ApiKey) -> bool:
        with transaction.atomic():
            is_deleted = keys.delete(key)
            if is_deleted:
                self.log_change(request, key, "Deleted the key.")
        return is_deleted
