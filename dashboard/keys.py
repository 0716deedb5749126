"""Shows the pages on API keys to every member of their account."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django import forms
from django.conf import settings
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.core.paginator import Page, Paginator
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils import timezone

from accounts import keys
from accounts.models import MOST_TAGS, ApiKey, KeyKind
from accounts.policies import TAG
from accounts.rate_windows import rate_limits_of
from billing import policies
from billing.funds import WINDOW_DAYS
from billing.usage.statistics import Days, GroupColumn, Scope, Totals, breakdown
from catalogue.routing.model_ids import shown
from gateway.errors import ApiKeyExpired, ApiKeyNotRegistered, InvalidRequest

from .parts.access import AccountContext, account_context, account_page, page_address, signed_in_page
from .parts.budgets import BudgetLine, budgets_of_keys
from .parts.changes import ChangesForm
from .parts.routes import model_to_try

PAGE_ROWS = 50
MOST_PER_MINUTE = 2_000_000_000  # the most that the column can hold
EXPIRY_LABELS = {
    "7d": "7 days",
    "30d": "30 days",
    "90d": "90 days",
    "180d": "180 days",
    "1y": "1 year",
    "never": "Never",
}
RELOADED = (
    "If you just created it and reloaded the page: a key is shown only once. If you did not copy it, delete it and "
    "create another."
)


MOST_WORDS = 100  # characters of a search
SORTS = {"name": "Name", "requests": "Requests", "cost": "Cost", "used": "Last used"}
KINDS = [(KeyKind.INFERENCE.value, "Inference"), (KeyKind.MANAGEMENT.value, "Management")]
OVERLAPS = [("0", "at once"), ("1", "1 hour"), ("24", "1 day"), ("72", "3 days"), ("168", "7 days")]


@dataclass(frozen=True, slots=True)
class KeyLine:
    """Holds the line of a key in the list: what it used within WINDOW_DAYS, and its own budgets."""

    key: ApiKey
    has_expired: bool
    may_change: bool
    used: Totals
    budgets: list[BudgetLine]

    @property
    def may_rotate(self) -> bool:
        return self.may_change and not self.has_expired and not self.key.is_playground

    @property
    def limits(self) -> str:
        """Describes the key's limits per minute, its own or the gateway's; empty if there are none."""
        limits = rate_limits_of(self.key.rpm, self.key.tpm)
        both = ((limits.requests, self.key.rpm, "requests"), (limits.tokens, self.key.tpm, "tokens"))
        return ", ".join(
            f"{limit:,} {what}" if limit else f"any {what}" for limit, own, what in both if limit or own is not None
        )


def _name_field() -> forms.CharField:
    return forms.CharField(
        label="Name",
        help_text="Where the key is used, such as an app or a server.",
        error_messages={"required": keys.NAME_RULE},
        widget=forms.TextInput(attrs={"autocomplete": "off", "maxlength": keys.MAX_NAME_LENGTH, "spellcheck": "false"}),
    )


class TagsField(forms.CharField):
    """Reads a key's tags, separated by spaces or commas."""

    def __init__(self) -> None:
        super().__init__(
            label="Tags",
            required=False,
            help_text=f"Such as team=search env=prod; at most {MOST_TAGS}. Policies and budgets of these tags apply.",
            widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}),
        )

    def clean(self, value: Any) -> list[str]:
        tags = str(super().clean(value)).replace(",", " ").split()
        try:
            return policies.checked_tags(tags)
        except InvalidRequest as error:
            wrong = next((tag for tag in tags if not TAG.fullmatch(tag)), None)
            rule = error.rule or error.message
            text = f"{rule[:1].upper()}{rule[1:]}" if wrong is None else f"{shown(wrong)!r} {rule}"
            raise forms.ValidationError(text) from None


class CreateForm(forms.Form):
    """Asks for the name and the lifetime of a new key, and owners for its kind and its tags."""

    name = _name_field()
    expiry = forms.ChoiceField(
        label="Expiry",
        help_text="The key stops working after this time.",
        choices=list(EXPIRY_LABELS.items()),
        initial=keys.DEFAULT_LIFETIME,
    )
    kind = forms.ChoiceField(
        label="Kind",
        required=False,
        help_text="A management key runs the account over HTTP and serves no inference.",
        choices=KINDS,
        initial=KeyKind.INFERENCE.value,
    )
    tags = TagsField()

    def __init__(self, data: Any, current: AccountContext) -> None:
        super().__init__(data, auto_id="create-%s", label_suffix="")
        if not current.is_owner:  # a management key may do what owners may; a tag's budget is spent by all its keys
            del self.fields["kind"], self.fields["tags"]

    def issue(self, current: AccountContext) -> tuple[ApiKey, str] | None:
        """Creates the key and returns it with its token; None if the form has errors, which it then shows."""
        if not self.is_valid():
            return None
        try:
            name, lifetime = self.cleaned_data["name"], self.cleaned_data["expiry"]
            kind = KeyKind(self.cleaned_data.get("kind") or KeyKind.INFERENCE)
            with transaction.atomic():
                key, token = keys.issue(
                    current.account, name=name, kind=kind, lifetime=lifetime, created_by=current.person
                )
                policies.set_tags(key, self.cleaned_data.get("tags", ()))
            return key, token
        except keys.InvalidKeyName as error:
            self.add_error("name", str(error))
        except keys.KeyNameTaken as error:
            self.add_error("name", f"{error} {RELOADED}")
        return None


class SearchForm(forms.Form):
    """Asks for words in a key's name, last four characters, tags or maker, and for an order."""

    q = forms.CharField(
        label="Search",
        required=False,
        max_length=MOST_WORDS,
        widget=forms.TextInput(attrs={"type": "search", "autocomplete": "off", "spellcheck": "false"}),
    )
    sort = forms.ChoiceField(label="Sort by", required=False, choices=[("", "Newest"), *SORTS.items()])

    def __init__(self, data: Any) -> None:
        super().__init__(data, auto_id="search-%s", label_suffix="")

    def finds(self, row: dict[str, Any]) -> bool:
        text = f"{row['name']} {row['last_four']} {row['tags']} {row['created_by__email'] or ''}".casefold()
        return all(word in text for word in self.cleaned_data["q"].casefold().split())


@account_page("GET", "HEAD", "POST")
def key_list(request: HttpRequest, current: AccountContext) -> HttpResponse:
    """Lists an account's keys in pages, and creates keys. The answer to the form shows the new key's token."""
    # A redirect or a message cannot show the token, because both would store it.
    form = CreateForm(request.POST if request.method == "POST" else None, current)
    issued = form.issue(current) if form.is_bound else None
    if issued is not None:
        return _shown_once(request, current, *issued)
    search = SearchForm(request.GET)
    if not search.is_valid():
        return current.page(request, "keys", {"form": form, "search": search, "days": WINDOW_DAYS}, search)
    page, lines = _listed(current, search, timezone.now(), request.GET.get("page"))
    context = {"form": form, "search": search, "page": page, "lines": lines, "days": WINDOW_DAYS}
    return current.page(request, "keys", context, form)


class RenameForm(forms.Form):
    """Asks for a key's new name."""

    name = _name_field()

    def __init__(self, data: Any, key: ApiKey) -> None:
        super().__init__(data, auto_id="rename-%s", label_suffix="", initial={"name": key.name})
        self._key = key

    def save(self) -> bool:
        if self.is_valid():
            try:
                keys.rename(self._key, self.cleaned_data["name"])
            except (keys.InvalidKeyName, keys.KeyNameTaken) as error:
                self.add_error("name", str(error))
        return not self.errors


class LimitsForm(ChangesForm):
    """Asks for a key's limits in any minute."""

    rpm = forms.IntegerField(label="Requests per minute", required=False, min_value=0, max_value=MOST_PER_MINUTE)
    tpm = forms.IntegerField(label="Tokens per minute", required=False, min_value=0, max_value=MOST_PER_MINUTE)

    def __init__(self, data: Any, key: ApiKey) -> None:
        super().__init__(data, {"rpm": key.rpm, "tpm": key.tpm}, auto_id="limits-%s")
        self._key = key

    def save(self) -> bool:
        if self.is_valid() and self.changes:
            keys.change(self._key, **self.changes)
        return not self.errors


class TagsForm(ChangesForm):
    """Asks for a key's tags."""

    tags = TagsField()

    def __init__(self, data: Any, key: ApiKey) -> None:
        super().__init__(data, {"tags": key.tags}, auto_id="tags-%s")
        self._key = key

    def save(self) -> bool:
        if self.is_valid():
            policies.set_tags(self._key, self.cleaned_data["tags"])
        return not self.errors


@signed_in_page("GET", "HEAD", "POST")
def key_detail(request: HttpRequest, key_id: UUID) -> HttpResponse:
    """Shows a key. Its maker and owners can rename and disable it; owners can enable it and set its limits and tags."""
    key, current = find_key(request, key_id)
    if not may_change(current, key):
        raise PermissionDenied
    if key.deleted_at is not None:
        messages.info(request, f"{key.name} has already been deleted.")
        return redirect(page_address("keys", key.account_id))
    sent = request.POST if request.method == "POST" else None
    action = request.POST.get("action")
    if action in ("limits", "tags"):
        current.require_owner()
    if action in ("disable", "enable"):
        if action == "enable":
            current.require_owner()  # else a member would undo what an owner has stopped
        keys.set_disabled(key, action == "disable")
        done = "disabled. Requests with it are refused" if action == "disable" else "enabled again"
        messages.success(request, f"{key.name} has been {done}.")
        return redirect(page_address("keys", key.account_id))
    rename = RenameForm(sent if action == "rename" else None, key)
    limits = LimitsForm(sent if action == "limits" else None, key)
    tags = TagsForm(sent if action == "tags" else None, key)
    changes: dict[str | None, LimitsForm | TagsForm] = {"limits": limits, "tags": tags}
    form: RenameForm | LimitsForm | TagsForm = changes.get(action, rename)
    if form.is_bound and form.save():
        messages.success(request, f"{key.name} has been saved.")
        return redirect(page_address("keys", key.account_id))
    may_rotate = not key.is_playground and not _has_expired(key, timezone.now())
    context = {"key": key, "may_rotate": may_rotate, "rename": rename, "limits": limits, "tags": tags}
    return current.page(request, "key", context, form)


@signed_in_page("GET", "HEAD", "POST")
def delete_key(request: HttpRequest, key_id: UUID) -> HttpResponse:
    """Asks for a confirmation on GET, and deletes the key on POST."""
    key, current = find_key(request, key_id)
    if key.deleted_at is None and not may_change(current, key):
        raise PermissionDenied
    if key.deleted_at is None and request.method != "POST":
        return current.page(request, "delete_key", {"key": key})
    if key.deleted_at is None and keys.delete(key):
        messages.success(request, f"{key.name} has been deleted. Requests with it are refused.")
    else:
        messages.info(request, f"{key.name} has already been deleted.")
    return redirect(page_address("keys", key.account_id))


class RotateForm(forms.Form):
    """Asks how long the old token still works."""

    overlap = forms.ChoiceField(
        label="The old token stops working",
        choices=OVERLAPS,
        initial="24",
        help_text="Until then both tokens work, so that you can change it everywhere.",
    )

    def __init__(self, data: Any) -> None:
        super().__init__(data, auto_id="rotate-%s", label_suffix="")


@signed_in_page("GET", "HEAD", "POST")
def rotate_key(request: HttpRequest, key_id: UUID) -> HttpResponse:
    """Asks how long the old token still works, and gives the key a new one. The answer shows it."""
    key, current = find_key(request, key_id)
    if not may_change(current, key):
        raise PermissionDenied
    if key.is_playground:  # the Playground gives its key new tokens by itself
        raise Http404
    form = RotateForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        try:
            token = keys.rotate(key, timedelta(hours=int(form.cleaned_data["overlap"])))
        except (ApiKeyExpired, ApiKeyNotRegistered) as error:
            form.add_error(None, error.message)
        else:
            return _shown_once(request, current, key, token)
    return current.page(request, "rotate_key", {"key": key, "form": form}, form)


def _shown_once(request: HttpRequest, current: AccountContext, key: ApiKey, token: str) -> HttpResponse:
    """Shows a new token, and how to use it."""
    context = {
        "key": key,
        "token": token,
        "public_url": settings.PUBLIC_URL,
        "example_model": model_to_try(timezone.now(), current.account, key.pk),
    }
    return current.page(request, "new_key", context)


def may_change(current: AccountContext, key: ApiKey) -> bool:
    """Tells whether a person may change and delete a key: owners may every key, members inference keys they made."""
    return current.is_owner or (key.created_by_id == current.person.pk and key.kind == KeyKind.INFERENCE)


def find_key(request: HttpRequest, key_id: UUID) -> tuple[ApiKey, AccountContext]:
    """Returns a key of an account that the person may see, and that account. Raises Http404."""
    key = get_object_or_404(ApiKey.objects.select_related("created_by"), pk=key_id)
    return key, account_context(request, key.account_id)


def _listed(
    current: AccountContext, search: SearchForm, now: datetime, number: str | None
) -> tuple[Page[Any], list[KeyLine]]:
    """Returns a page of the keys that a search finds, and their lines.

    All keys are sorted here, because what they cost is in other tables; only those of the page are read whole.
    """
    days = Days.until(now, WINDOW_DAYS)
    rows = breakdown(Scope(current.account.pk), days, GroupColumn.KEY, with_errors=True)
    used = {row.key_id: row.totals for row in rows}
    columns = ("pk", "name", "last_four", "tags", "created_by__email", "last_used_at")
    live = ApiKey.objects.filter(account=current.account, deleted_at=None).order_by("-pk")  # ids grow with time
    found = [row for row in live.values(*columns) if search.finds(row)]
    sort = search.cleaned_data["sort"]
    if sort:
        found.sort(key=lambda row: _rank(sort, row, used.get(row["pk"], Totals())))
    page = Paginator(found, PAGE_ROWS).get_page(number)
    own = ApiKey.objects.select_related("created_by").in_bulk([row["pk"] for row in page])
    budgets = budgets_of_keys(list(own))
    return page, [
        KeyLine(
            key=key,
            has_expired=_has_expired(key, now),
            may_change=may_change(current, key),
            used=used.get(key.pk, Totals()),
            budgets=budgets.get(key.pk, []),
        )
        for row in page
        if (key := own.get(row["pk"])) is not None  # it may have been deleted just now
    ]


def _has_expired(key: ApiKey, now: datetime) -> bool:
    return key.expires_at is not None and key.expires_at <= now


def _rank(sort: str, row: dict[str, Any], used: Totals) -> Any:
    """Returns what a key is sorted by: names from A, everything else from the largest and the latest."""
    match sort:
        case "name":
            return row["name"].casefold()
        case "requests":
            return -used.asked
        case "cost":
            return -(used.cost or 0)
        case _:
            return -(row["last_used_at"].timestamp() if row["last_used_at"] else 0)
