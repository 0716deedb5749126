"""What the dashboard's pages share: who looks, at which account, in which role. Anybody else's account is not there."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.db.models.functions import Lower
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from .models import Account, Membership, User

View = Callable[..., HttpResponseBase]
NOT_SENT = "You were signed out: what you had filled in was not sent."


@dataclass(frozen=True, slots=True)
class Place:
    """Where a person is: one account of theirs, their role in it, and all of their accounts by name."""

    person: User
    account: Account
    role: str
    accounts: list[Account]

    @property
    def is_owner(self) -> bool:
        """Whether the person may invite and remove members."""
        return self.role == Membership.Role.OWNER

    @property
    def context(self) -> dict[str, Any]:
        """What `base.html` needs: the bar's links and the switcher."""
        return {"place": self, "account": self.account, "accounts": self.accounts}

    def require_owner(self) -> None:
        """Raises PermissionDenied for a member who is not an owner."""
        if not self.is_owner:
            raise PermissionDenied


def account_page(*methods: str) -> Callable[[View], View]:
    """A page of one account, `view(request, place)`: the form's `account`, `?account=`, or else the first by name.

    GET and HEAD by default. Strangers are sent to the login, people without an account to a page that says what to do;
    the account of somebody else is 404, like one that does not exist.
    """

    def decorate(view: View) -> View:
        @member_page(*methods)
        @functools.wraps(view)
        def page(request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
            person = person_of(request)
            wanted = request.POST.get("account", "") if request.method == "POST" else request.GET.get("account")
            memberships = _memberships(person)
            if wanted is None and not memberships:
                return render(request, "accounts/no_account.html")
            return view(request, _place(person, memberships, _chosen(memberships, wanted)), **kwargs)

        return page

    return decorate


def member_page(*methods: str) -> Callable[[View], View]:
    """A page for whoever is signed in, kept by no cache. GET and HEAD by default."""

    def decorate(view: View) -> View:
        return require_http_methods(methods or ("GET", "HEAD"))(never_cache(for_the_signed_in(view)))

    return decorate


def for_the_signed_in(view: View) -> View:
    """Sends strangers to the login, which leads back, and tells whoever sent a form that it did not arrive."""

    @functools.wraps(view)
    def page(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if request.user.is_authenticated:
            return view(request, *args, **kwargs)
        if request.method == "POST":
            messages.warning(request, NOT_SENT)
        return redirect_to_login(_wanted(request))

    return page


def person_of(request: HttpRequest) -> User:
    """Who is signed in."""
    return cast(User, request.user)


def place_in(request: HttpRequest, account_id: UUID) -> Place:
    """The place in the account that a key, an alias or a record belongs to. Raises Http404 where there is none."""
    memberships = _memberships(person_of(request))
    return _place(person_of(request), memberships, _chosen(memberships, str(account_id)))


def named_place(request: HttpRequest) -> dict[str, Any]:
    """What `base.html` needs on a page of no account: the one that `?account=` names, so that the bar keeps it, if any.

    Raises Http404 for anybody else's.
    """
    named = request.GET.get("account")
    if named is None:
        return {}
    memberships = _memberships(person_of(request))
    return _place(person_of(request), memberships, _chosen(memberships, named)).context


def _wanted(request: HttpRequest) -> str:
    """The page that a stranger asked for: of the account that their form names, which stands in no address."""
    account_id = _uuid(request.POST.get("account", ""))
    return request.get_full_path() if account_id is None else f"{request.path}?account={account_id}"


def _memberships(person: User) -> list[Membership]:
    own = Membership.objects.filter(user=person).select_related("account")
    return list(own.order_by(Lower("account__name")))


def _place(person: User, memberships: list[Membership], chosen: Membership) -> Place:
    return Place(person, chosen.account, chosen.role, [membership.account for membership in memberships])


def _chosen(memberships: list[Membership], wanted: str | None) -> Membership:
    if wanted is None:
        return memberships[0]
    identifier = _uuid(wanted)
    for membership in memberships:
        if membership.account_id == identifier:
            return membership
    raise Http404


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
