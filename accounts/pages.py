"""What the dashboard's pages share: who looks, at which account, in which role. Anybody else's account is not there."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.db.models.functions import Lower
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from .models import Account, Membership, User

View = Callable[..., HttpResponseBase]


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
        return require_http_methods(methods or ("GET", "HEAD"))(never_cache(login_required(view)))

    return decorate


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


def _memberships(person: User) -> list[Membership]:
    own = Membership.objects.filter(user=person).select_related("account")
    return list(own.order_by(Lower("account__name")))


def _place(person: User, memberships: list[Membership], chosen: Membership) -> Place:
    return Place(person, chosen.account, chosen.role, [membership.account for membership in memberships])


def _chosen(memberships: list[Membership], wanted: str | None) -> Membership:
    if wanted is None:
        return memberships[0]
    try:
        identifier = UUID(wanted)
    except ValueError:
        raise Http404 from None
    for membership in memberships:
        if membership.account_id == identifier:
            return membership
    raise Http404
