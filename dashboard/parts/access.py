"""Controls access to pages: finds the person, one of their accounts, and their role in it."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.db.models.functions import Lower
from django.forms import BaseForm
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from accounts.models import Account, Membership, User

View = Callable[..., HttpResponseBase]
SUSPENDED = "This account is suspended: nothing in it can be changed. Ask the operator of this gateway."
CLOSED = "This account is closed: you can read its pages, but nothing in it can be changed."
NOT_SENT = "You were signed out: what you had filled in was not sent."


class NoAccount(Http404):
    """The person is not a member of any account."""


@dataclass(frozen=True, slots=True)
class AccountContext:
    """Holds a page's account, its reader, their role (empty for staff who are not members), and all their accounts."""

    person: User
    account: Account
    role: str
    accounts: list[Account]

    @property
    def is_owner(self) -> bool:
        return self.role == Membership.Role.OWNER

    @property
    def is_seen_by_staff(self) -> bool:
        return not self.role

    @property
    def template_context(self) -> dict[str, Any]:
        """Returns the values that `base.html` needs."""
        shown = {"account": self.account, "accounts": self.accounts, "suspended_at": self.account.suspended_at}
        return {"is_owner": self.is_owner, "is_seen_by_staff": self.is_seen_by_staff, **shown}

    def page(
        self, request: HttpRequest, name: str, context: dict[str, Any], form: BaseForm | None = None
    ) -> HttpResponse:
        """Renders a page of the account, with status 422 if its form has errors."""
        status = 422 if form is not None and form.errors else 200
        return render(request, f"dashboard/{name}.html", self.template_context | context, status=status)

    def require_not_suspended(self) -> None:
        """Raises PermissionDenied, with a message for the page, if the account is suspended or closed."""
        if self.account.suspended_at is not None:
            raise PermissionDenied(SUSPENDED if self.account.closed_at is None else CLOSED)

    def require_owner(self) -> None:
        """Raises PermissionDenied if the person is not an owner."""
        if not self.is_owner:
            raise PermissionDenied


def account_context(
    request: HttpRequest, account_id: UUID | str | None, *, is_personal: bool = False
) -> AccountContext:
    """Returns the account with that id, or without an id the person's first account by name.

    Raises Http404, NoAccount if the person has no account, and PermissionDenied for a form sent for a suspended or
    closed account, unless the form changes the person only (`is_personal`).
    """
    person = cast(User, request.user)
    own = Membership.objects.filter(user=person).select_related("account")
    memberships = list(own.order_by(Lower("account__name")))
    if account_id is None:
        if not memberships:
            raise NoAccount
        chosen = memberships[0]
    else:
        uuid = _uuid(str(account_id))
        named = [membership for membership in memberships if membership.account_id == uuid]
        if not named:
            return _seen_by_staff(request, uuid, [membership.account for membership in memberships])
        chosen = named[0]
    current = AccountContext(person, chosen.account, chosen.role, [membership.account for membership in memberships])
    if request.method == "POST" and not is_personal:
        current.require_not_suspended()
    return current


def _seen_by_staff(request: HttpRequest, account_id: UUID | None, own: list[Account]) -> AccountContext:
    """Returns another's account for staff who may view it, read-only, and logs that they did. Else raises Http404."""
    person = cast(User, request.user)
    has_right = person.has_perm("accounts.view_account") or person.has_perm("accounts.change_account")
    may_look = person.is_staff and has_right and request.method in ("GET", "HEAD")
    account = Account.objects.filter(pk=account_id).first() if may_look and account_id else None
    if account is None:
        raise Http404
    seen = request.session.setdefault("accounts_seen", [])
    if str(account.pk) not in seen:
        request.session["accounts_seen"] = [*seen, str(account.pk)]
        LogEntry.objects.log_actions(person.pk, [account], CHANGE, "Looked at its dashboard.", single_object=True)
    return AccountContext(person, account, "", [*own, account])


def context_of_named_account(request: HttpRequest) -> dict[str, Any]:
    """Returns the template context of a page that belongs to no account, so that its links keep `?account=`.

    Raises Http404.
    """
    account_id = request.GET.get("account")
    return {} if account_id is None else account_context(request, account_id, is_personal=True).template_context


def account_context_if_any(request: HttpRequest) -> AccountContext | None:
    """Returns the account of `?account=`, else the person's first; None for people without one. Raises Http404."""
    try:
        return account_context(request, request.GET.get("account"))
    except NoAccount:
        return None


def page_address(name: str, account_id: UUID) -> str:
    """Returns the address of a page for an account."""
    return f"{reverse(name)}?account={account_id}"


def account_page(*methods: str) -> Callable[[View], View]:
    """Decorates `view(request, current)`, a page of one account; GET and HEAD by default.

    Visitors are sent to the login. An account that they are not a member of is answered with 404, as if it did not
    exist; only staff with permission to view accounts see it, read-only.
    """

    def decorate(view: View) -> View:
        @signed_in_page(*methods)
        @functools.wraps(view)
        def page(request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
            account_id = request.POST.get("account", "") if request.method == "POST" else request.GET.get("account")
            try:
                current = account_context(request, account_id)
            except NoAccount:
                match = request.resolver_match
                if request.user.is_staff and match is not None and match.url_name == settings.LOGIN_REDIRECT_URL:
                    return redirect("admin:index")
                return render(request, "dashboard/no_account.html", {"has_no_account": True})
            return view(request, current, **kwargs)

        return page

    return decorate


def signed_in_page(*methods: str) -> Callable[[View], View]:
    """Decorates a page for signed-in people that must not be cached; GET and HEAD by default."""

    def decorate(view: View) -> View:
        return require_http_methods(methods or ("GET", "HEAD"))(never_cache(login_required(view)))

    return decorate


def login_required(view: View) -> View:
    """Decorates a view as Django's `login_required` does, and warns people whose form was not sent."""
    # After the login, return to the account in the form's data: the URL of a POST does not contain it.

    @functools.wraps(view)
    def page(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if request.user.is_authenticated:
            return view(request, *args, **kwargs)
        if request.method == "POST":
            messages.warning(request, NOT_SENT)
        account_id = _uuid(request.POST.get("account", ""))
        return redirect_to_login(
            request.get_full_path() if account_id is None else f"{request.path}?account={account_id}"
        )

    return page


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
