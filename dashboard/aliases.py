"""Shows the pages on aliases, which refuse the same names and targets as the API."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone

from accounts.models import Account
from aliases import changes, stats, targets
from aliases.models import Alias, AliasEvent
from aliases.serializers import alias_name
from aliases.targets import Target
from billing.funds import WINDOW_DAYS, usage_by_day
from billing.usage.percentiles import read_times
from billing.usage.statistics import Days, GroupColumn, Scope, Totals, breakdown
from catalogue.listing import View, listed
from catalogue.models import WITH_ENDPOINT
from catalogue.routing import health, pinning, quota, snapshot
from catalogue.routing.model_ids import ALIAS_RULE, GLOBAL, ExplicitId, shown
from catalogue.routing.policy_check import PolicyCheck
from catalogue.routing.routes import Offer, Route, Snapshot
from gateway.errors import AliasNotFound, ApiError, InvalidAliasName

from .parts.access import AccountContext, account_context, account_page, page_address, signed_in_page
from .parts.changes import ChangesForm
from .parts.charts import total_of
from .parts.comparison import differing_facts
from .parts.routes import lines_of, view_of
from .parts.scales import Scales
from .parts.speed import speed_of_periods

NEWEST_EVENTS = 50
LONGEST_TARGET = 300  # characters of `?target=`
LONGEST_NAME = 64
AS_TYPED = {"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}
NAME_RULE = f"{ALIAS_RULE[0].upper()}{ALIAS_RULE[1:]}."


@dataclass(frozen=True, slots=True)
class HistoryLine:
    """Holds a line of an alias's history, and the value that "Restore" would give back: empty if it is in force."""

    event: AliasEvent
    target: str = ""
    name: str = ""
    fallbacks: str | None = None


@dataclass(frozen=True, slots=True)
class AliasLine:
    """Holds an alias's line in the list. `problem` says why it could not be served now."""

    alias: Alias
    totals: Totals
    problem: str | None


class NameField(forms.CharField):
    """Reads a name without its prefix, in upper or lower case."""

    def __init__(self) -> None:
        super().__init__(label="Name", help_text=NAME_RULE, widget=forms.TextInput(attrs=AS_TYPED))

    def clean(self, value: Any) -> str:
        name = str(super().clean(value))
        try:
            return alias_name(name)
        except InvalidAliasName:
            raise forms.ValidationError(_fault(name)) from None


class TargetField(forms.CharField):
    """Reads a route's id, typed or picked from `routes`, and checks it as the API checks a target."""

    def __init__(self, account: Account, catalogue: Snapshot, today: date) -> None:
        super().__init__(
            label="Target",
            help_text="The id of a route. Type a part of its model, provider or region to find it.",
            widget=forms.TextInput(attrs=AS_TYPED),
        )
        self.routes = _routes(catalogue, today, account.currency)
        self._account, self._catalogue, self._today = account, catalogue, today

    def get_bound_field(self, form: forms.BaseForm, field_name: str) -> forms.BoundField:
        # The page has a datalist of routes for the field (templates/dashboard/target_field.html).
        bound = super().get_bound_field(form, field_name)
        self.widget.attrs["list"] = f"{bound.auto_id}-routes"
        return bound

    def clean(self, value: Any) -> Target:
        text = str(super().clean(value))
        try:
            target = targets.from_id(text)
        except ApiError:
            example = f", such as {self.routes[0][0]}" if self.routes else ""
            raise forms.ValidationError(f"{shown(text)!r} is not the id of a route{example}.") from None
        try:
            targets.require_routable(target, self._catalogue, self._today, self._account.currency)
        except ApiError as error:
            raise forms.ValidationError(error.message) from None
        return target


class CreateForm(forms.Form):
    """Asks for a new alias's name and target."""

    name = NameField()

    def __init__(self, data: Any, account: Account, catalogue: Snapshot, today: date, target: str) -> None:
        super().__init__(data, auto_id="create-%s", label_suffix="", initial={"target": target})
        self.fields["target"] = TargetField(account, catalogue, today)


class RenameForm(forms.Form):
    """Asks for an alias's new name."""

    name = NameField()

    def __init__(self, data: Any, alias: Alias) -> None:
        super().__init__(data, auto_id="rename-%s", label_suffix="", initial={"name": alias.name})


class FallbacksForm(forms.Form):
    """Asks for an alias's fallbacks, one on each line."""

    fallbacks = forms.CharField(
        label="Fallbacks",
        required=False,
        help_text="At most four ids of routes or aliases, one on each line, tried in this order if the target fails.",
        widget=forms.Textarea(attrs=AS_TYPED | {"rows": 4}),
    )

    def __init__(self, data: Any, alias: Alias, catalogue: Snapshot, today: date) -> None:
        super().__init__(data, auto_id="fallbacks-%s", label_suffix="")
        self.initial = {"fallbacks": "\n".join(alias.fallbacks)}
        self._alias, self._catalogue, self._today = alias, catalogue, today

    def clean_fallbacks(self) -> list[str]:
        texts, account = self.cleaned_data["fallbacks"].split(), self._alias.account
        try:
            return targets.checked_fallbacks(
                texts, self._catalogue, self._today, account.pk, account.currency, of=self._alias.name
            )
        except ApiError as error:
            raise forms.ValidationError(error.message) from None


class OwnersOnlyForm(ChangesForm):
    """Asks whether only owners may change aliases."""

    is_reserved = forms.BooleanField(
        label="Only owners change aliases",
        required=False,
        help_text="Members can still use and view them. Over the API, only management keys can change them.",
    )


class RepointForm(forms.Form):
    """Asks for an alias's new target."""

    def __init__(self, data: Any, alias: Alias, catalogue: Snapshot, today: date) -> None:
        super().__init__(data, auto_id="repoint-%s", label_suffix="")
        self.fields["target"] = TargetField(alias.account, catalogue, today)


@account_page("GET", "HEAD", "POST")
def alias_list(request: HttpRequest, current: AccountContext) -> HttpResponse:
    """Lists an account's aliases, creates aliases, and lets owners keep changes to themselves."""
    account, now = current.account, timezone.now()
    sent = request.POST if request.method == "POST" else None
    is_about_owners = request.POST.get("action") == "owners"
    owners = OwnersOnlyForm(sent if is_about_owners else None, {"is_reserved": account.aliases_reserved_at is not None})
    if is_about_owners and owners.is_valid():
        changes.reserve_for_owners(account.pk, owners.cleaned_data["is_reserved"], current.person)
        messages.success(request, "Saved.")
        return redirect(page_address("aliases", account.pk))
    wanted = request.GET.get("target", "")[:LONGEST_TARGET]
    form = CreateForm(None if is_about_owners else sent, account, snapshot.current(), now.date(), wanted)
    if form.is_valid():
        try:
            changes.create(account.pk, **form.cleaned_data, by=current.person)
        except ApiError as error:
            form.add_error("name", error.message)
        else:
            messages.success(request, f"alias/{form.cleaned_data['name']} has been created.")
            return redirect(page_address("aliases", account.pk))
    rows = breakdown(Scope(account.pk), Days.until(now, WINDOW_DAYS), GroupColumn.ALIAS, with_errors=True)
    used = {row.alias_id: row.totals for row in rows}
    own = Alias.objects.filter(account=account).select_related("account")
    lines = [AliasLine(alias, used.get(alias.pk, Totals()), _problem(alias)) for alias in own]
    limit = changes.limit_of(account)
    context = {"lines": lines, "limit": limit, "is_full": len(lines) >= limit, "form": form, "owners": owners}
    return current.page(request, "aliases", context | {"may_change": _may_change(current)}, form)


@signed_in_page("GET", "HEAD", "POST")
def alias_detail(request: HttpRequest, alias_id: UUID) -> HttpResponse:
    """Shows an alias's usage and history, renames or repoints it, and sets its fallbacks.

    With `?target=`, shows what that target would change, for a confirmation.
    """
    alias = Alias.objects.select_related("account").filter(pk=alias_id).first()
    if alias is None:
        return _gone(request, alias_id)
    current = account_context(request, alias.account_id)
    now = timezone.now()
    today = now.date()
    sent = request.POST if request.method == "POST" else None
    action = request.POST.get("action")
    rename = RenameForm(sent if action == "rename" else None, alias)
    asked = request.GET if sent is None and "target" in request.GET else None
    repoint = RepointForm(sent if action == "repoint" else asked, alias, snapshot.current(), today)
    fallbacks = FallbacksForm(sent if action == "fallbacks" else None, alias, snapshot.current(), today)
    form: forms.Form = {"rename": rename, "fallbacks": fallbacks}.get(str(action), repoint)
    if asked is not None and repoint.is_valid():
        if str(repoint.cleaned_data["target"]) != alias.target:
            _refuse_members_if_reserved(current)
            return _what_changes(request, current, alias, repoint.cleaned_data["target"])
        repoint.add_error("target", f"{alias.full_name} has this target already.")
    if sent is not None and form.is_valid():
        try:
            changes.change(alias.account_id, alias.name, **form.cleaned_data, expected_id=alias.pk, by=current.person)
        except AliasNotFound:
            raise Http404 from None
        except ApiError as error:
            form.add_error(next(iter(form.fields)), error.message)
        else:
            messages.success(request, _changed(alias, form.cleaned_data))
            return redirect("alias", alias_id=alias.pk)
    scope, days = Scope(alias.account_id, alias_id=alias.pk), Days.until(now, WINDOW_DAYS)
    events = AliasEvent.objects.filter(alias_id=alias.pk).select_related("by", "by_key")[:NEWEST_EVENTS]
    rows = stats.rows_of(alias, days=WINDOW_DAYS, today=today)
    context = {
        "alias": alias,
        "rename": rename,
        "repoint": repoint,
        "fallbacks": fallbacks,
        "problem": _problem(alias),
        "rows": rows,
        "scales": Scales.of(row.totals for row in rows),
        "totals": total_of(usage_by_day(scope, days).values()),
        "speed": speed_of_periods(read_times(scope, days), days),
        "history": [_history_line(event, alias) for event in events],
        "may_change": _may_change(current),
    }
    return current.page(request, "alias", context, form)


@signed_in_page("GET", "HEAD", "POST")
def delete_alias(request: HttpRequest, alias_id: UUID) -> HttpResponse:
    """Asks for a confirmation on GET, and deletes the alias on POST."""
    alias = Alias.objects.select_related("account").filter(pk=alias_id).first()
    if alias is None:
        return _gone(request, alias_id)
    current = account_context(request, alias.account_id)
    if request.method != "POST":
        _refuse_members_if_reserved(current)
        return current.page(request, "delete_alias", {"alias": alias})
    try:
        changes.delete(alias.account_id, alias.name, expected_id=alias.pk, by=current.person)
    except AliasNotFound:
        return _gone(request, alias_id)
    messages.success(request, f"{alias.full_name} has been deleted.")
    return redirect(page_address("aliases", alias.account_id))


def _may_change(current: AccountContext) -> bool:
    return not current.is_seen_by_staff and (current.is_owner or current.account.aliases_reserved_at is None)


def _refuse_members_if_reserved(current: AccountContext) -> None:
    """Raises PermissionDenied before a member is asked to confirm what only owners may do."""
    if not current.is_seen_by_staff and not _may_change(current):
        raise PermissionDenied


def _what_changes(request: HttpRequest, current: AccountContext, alias: Alias, target: Target) -> HttpResponse:
    """Shows the present target beside the new one, and asks for a confirmation."""
    catalogue, now = snapshot.current(), timezone.now()
    view = view_of(catalogue, now, current.account)
    wanted = [Target(alias.provider, alias.canonical_id, alias.locode), target]
    found = [_route_of(catalogue, each, now.date()) for each in wanted]
    known = [each for each in found if each is not None]
    lines = list(lines_of(known, catalogue, view, current.account.currency, health.recent_calls(now)))
    check = PolicyCheck(view.policies, catalogue.units_per_eur, view.currency, alias.full_name)
    denial = check.denial(found[1][1]) if found[1] else None
    context = {
        "alias": alias,
        "target": target,
        "denied": denial and denial.error().message,
        "before": found[0],
        "columns": [*zip(["Now", "New"][-len(lines) :], lines, strict=True)],
        "differing": differing_facts(lines) if found[0] else frozenset(),
        "currency": current.account.currency,
    }
    return current.page(request, "alias_move", context)


def _route_of(catalogue: Snapshot, target: Target, today: date) -> tuple[Offer, Route] | None:
    wanted = ExplicitId(target.provider, target.canonical_id, target.locode)
    try:
        route = pinning.pin(catalogue, wanted, today, even_unavailable=True)
    except ApiError:
        return None
    return catalogue.offers[target.provider, target.canonical_id], route


def _history_line(event: AliasEvent, alias: Alias) -> HistoryLine:
    if event.new_target and event.new_target != alias.target:
        return HistoryLine(event, target=event.new_target)
    if event.event_type == AliasEvent.Type.RENAMED and event.new_name != alias.name:
        return HistoryLine(event, name=event.new_name or "")
    if event.event_type == AliasEvent.Type.FALLBACKS and event.new_fallbacks != alias.fallbacks:
        return HistoryLine(event, fallbacks="\n".join(event.new_fallbacks or []))
    return HistoryLine(event)


def _fault(name: str) -> str:
    if len(name) > LONGEST_NAME:
        return f"This name has {len(name)} characters, the most is {LONGEST_NAME}."
    foreign = "".join(dict.fromkeys(re.sub(r"[a-zA-Z0-9_-]", "", name)))
    return f"Not allowed in a name: {foreign!r}." if foreign else "The name starts with a letter or a digit."


def _gone(request: HttpRequest, alias_id: UUID) -> HttpResponse:
    """Redirects from the page of a deleted alias to the list. Raises Http404 for an unknown or another's alias."""
    own = AliasEvent.objects.filter(account__membership__user=request.user.pk)
    last = own.filter(alias_id=alias_id, event_type=AliasEvent.Type.DELETED).first()
    if last is None:
        raise Http404
    messages.info(request, f"alias/{last.old_name} has already been deleted.")
    return redirect(page_address("aliases", last.account_id))


def _changed(before: Alias, fields: Mapping[str, Any]) -> str:
    if "name" in fields:
        if fields["name"] == before.name:
            return f"No change: the name is already {before.full_name}."
        return f"{before.full_name} has been renamed to alias/{fields['name']}."
    if "fallbacks" in fields:
        return f"The fallbacks of {before.full_name} have been saved."
    if str(fields["target"]) == before.target:
        return f"No change: the target of {before.full_name} is already {before.target}."
    return f"The target of {before.full_name} is now {fields['target']}."


def _problem(alias: Alias) -> str | None:
    target = Target(alias.provider, alias.canonical_id, alias.locode)
    try:
        targets.require_served(target, snapshot.current(), timezone.now().date(), alias.account.currency)
    except ApiError as error:
        return error.message
    return None


def _routes(catalogue: Snapshot, today: date, currency: str) -> list[tuple[str, str]]:
    """Returns the ids and places of the routes that could serve now, provider by provider."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for _, routes in listed(catalogue, View(today, held=quota.held(catalogue.with_quota, today))):
        for route in routes:
            if _serves(catalogue, route, currency):
                place = "worldwide" if route.locode == GLOBAL else route.place.name if route.place else route.locode
                groups.setdefault(route.upstream.slug, []).append((route.id, place))
    return [route for routes in groups.values() for route in routes]


def _serves(catalogue: Snapshot, route: Route, currency: str) -> bool:
    try:
        pinning.require_modality(route, WITH_ENDPOINT, "this gateway")
        pinning.require_price(catalogue, route, currency)
    except ApiError:
        return False
    return True
