"""The dashboard's pages on aliases: for members of their account; anybody else finds nothing."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.forms import Form
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone

from accounts.models import Account
from accounts.pages import Place, account_page, member_page, person_of, place_in
from billing.usage_statistics import By, Days, Scope, Totals, breakdown
from catalogue import snapshot
from gateway.errors import AliasNotFound, ApiError

from . import changes, stats, targets
from .forms import CreateForm, RenameForm, RepointForm
from .models import Alias, AliasEvent

WINDOW_DAYS = 30  # UTC's, today's included
NEWEST_EVENTS = 50


@dataclass(frozen=True, slots=True)
class Line:
    """An alias in the list. `trouble` is why it could not be served now."""

    alias: Alias
    totals: Totals
    trouble: str | None


@account_page("GET", "HEAD", "POST")
def aliases(request: HttpRequest, place: Place) -> HttpResponse:
    """An account's aliases, and a form for one more."""
    account = place.account
    form = CreateForm(request.POST if request.method == "POST" else None, account, snapshot.current(), _today())
    if form.is_valid() and _done(form, lambda fields: changes.create(account.pk, **fields)):
        messages.success(request, f"alias/{form.cleaned_data['name']} is ready to be used.")
        return redirect(f"{reverse('aliases')}?account={account.pk}")
    lines, limit = _lines(account), changes.limit_of(account)
    context = {"lines": lines, "limit": limit, "is_full": len(lines) >= limit, "form": form}
    return render(request, "aliases/aliases.html", place.context | context, status=_status(form))


@member_page("GET", "HEAD", "POST")
def alias(request: HttpRequest, alias_id: UUID) -> HttpResponse:
    """One alias: its use, its history, and forms that rename and repoint it."""
    found = _own(request, alias_id)
    if found is None:
        return _gone(request, alias_id)
    sent = request.POST if request.method == "POST" else None
    wants = request.POST.get("action")
    rename = RenameForm(sent if wants == "rename" else None, found)
    repoint = RepointForm(sent if wants == "repoint" else None, found, snapshot.current(), _today())
    form = rename if wants == "rename" else repoint
    if form.is_valid() and _done(form, lambda fields: _change(found, fields)):
        messages.success(request, _renamed(found, form) if form is rename else _repointed(found, form))
        return redirect("alias", alias_id=found.pk)
    context = _context(request, found) | {
        "rename": rename,
        "repoint": repoint,
        "trouble": _trouble(found),
        "rows": (rows := stats.rows_of(found, days=WINDOW_DAYS, today=_today())),
        "totals": sum((row.totals for row in rows), Totals()),
        "events": AliasEvent.objects.filter(alias_id=found.pk)[:NEWEST_EVENTS],
    }
    return render(request, "aliases/alias.html", context, status=_status(form))


@member_page("GET", "HEAD", "POST")
def delete(request: HttpRequest, alias_id: UUID) -> HttpResponse:
    """Asks first; a form sent from there deletes."""
    found = _own(request, alias_id)
    if found is None:
        return _gone(request, alias_id)
    if request.method != "POST":
        return render(request, "aliases/delete.html", _context(request, found))
    try:
        changes.delete(found.account_id, found.name, only=found.pk)
    except AliasNotFound:
        return _gone(request, alias_id)
    messages.success(request, f"{found.full_name} is deleted. Its name is free.")
    return redirect(f"{reverse('aliases')}?account={found.account_id}")


def _today() -> date:
    return timezone.now().date()


def _own(request: HttpRequest, alias_id: UUID) -> Alias | None:
    """The alias, where it is of an account that the person is a member of."""
    own = Alias.objects.select_related("account").filter(account__membership__user=person_of(request))
    return own.filter(pk=alias_id).first()


def _gone(request: HttpRequest, alias_id: UUID) -> HttpResponse:
    """For a page that is out of date: the list says that the alias is deleted. Raises Http404 for anybody else's."""
    own = AliasEvent.objects.filter(account__membership__user=person_of(request))
    last = own.filter(alias_id=alias_id, event_type=AliasEvent.Type.DELETED).first()
    if last is None:
        raise Http404
    messages.info(request, f"alias/{last.old_name} was deleted already.")
    return redirect(f"{reverse('aliases')}?account={last.account_id}")


def _context(request: HttpRequest, found: Alias) -> dict[str, Any]:
    return {"alias": found} | place_in(request, found.account_id).context


def _change(found: Alias, fields: dict[str, Any]) -> Alias:
    try:
        return changes.change(found.account_id, found.name, **fields, only=found.pk)
    except AliasNotFound:
        raise Http404 from None


def _done(form: Form, act: Callable[[dict[str, Any]], Alias]) -> bool:
    """Whether it could be done with the form's fields; if not, the form says why."""
    try:
        act(form.cleaned_data)
    except ApiError as error:
        form.add_error(next(iter(form.fields)), error.message)
        return False
    return True


def _renamed(found: Alias, form: Form) -> str:
    name = form.cleaned_data["name"]
    if name == found.name:
        return f"Nothing has changed: the name is {found.full_name} already."
    return f"{found.full_name} is now called alias/{name}."


def _repointed(found: Alias, form: Form) -> str:
    target = str(form.cleaned_data["target"])
    if target == found.target:
        return f"Nothing has changed: {found.full_name} leads to {target} already."
    return f"{found.full_name} leads to {target} from the next request on."


def _status(form: Form) -> int:
    return 422 if form.errors else 200


def _lines(account: Account) -> list[Line]:
    days = Days.until(timezone.now(), WINDOW_DAYS)
    used = {row.alias_id: row.totals for row in breakdown(Scope(account.pk), days, By.ALIAS)}
    own = Alias.objects.filter(account=account).select_related("account")
    return [Line(found, used.get(found.pk, Totals()), _trouble(found)) for found in own]


def _trouble(found: Alias) -> str | None:
    """Why a request of it would be refused now, in the router's words."""
    target = targets.Target(found.provider, found.canonical_id, found.locode)
    try:
        targets.require_served(target, snapshot.current(), _today(), found.account.currency)
    except ApiError as error:
        return error.message
    return None
