"""Writes sign-ins, sign-outs and changes of passwords and factors to the audit logs of the person's accounts.

Its functions receive signals.
"""

from typing import Any

from allauth.account.internal.flows.login import get_authentication_records
from allauth.mfa.models import Authenticator
from django.http import HttpRequest

from . import audit
from .actions import Action
from .audit import Subject
from .models import Membership, User
from .second_factors import KINDS

METHODS = {"password": "password", "socialaccount": "oidc", "mfa": "passkey"}  # by allauth's names


def note_opened(*, user: User, request: HttpRequest, **_signal: Any) -> None:
    """Notes that a person has signed in, and how."""
    with audit.acting_as(audit.of_member(user)):
        method = _method(request, user)
        _note(Action.SESSION_OPENED, user, new=None if method is None else {"method": method})


def note_closed(*, user: User | None, **_signal: Any) -> None:
    """Notes that a person has signed out, unless the session had ended before."""
    if user is not None:
        with audit.acting_as(audit.of_member(user)):
            _note(Action.SESSION_CLOSED, user)


def note_failed(*, credentials: dict[str, Any], **_signal: Any) -> None:
    """Notes a failed sign-in if the address belongs to a person. Nobody knows who it was, so the actor has no id."""
    address = str(credentials.get("email") or credentials.get("username") or "").strip().lower()
    person = User.objects.filter(email=address).first() if address else None
    if person is not None:
        note_refused(person)


def note_refused(person: User) -> None:
    """Notes that somebody could not sign in as this person."""
    _note(Action.SESSION_FAILED, person)


def note_unlinked(person: User) -> None:
    """Notes that the next user of the identity provider with this person's address is linked with them."""
    _note(Action.SINGLE_SIGN_ON_UNLINKED, person)


def note_password(*, instance: User, created: bool, **_signal: Any) -> None:
    """Notes a new password, wherever it was chosen. A hash that Django only renews does not count."""
    if not created and instance._password is not None:  # type: ignore[attr-defined]  # Django's, until it is saved
        _note(Action.PASSWORD_CHANGED, instance)


def note_factor_added(*, instance: Authenticator, created: bool, **_signal: Any) -> None:
    """Notes a new second factor, in its transaction; allauth's own signal is sent only afterwards."""
    if created:
        _note(Action.SECOND_FACTOR_ADDED, instance.user, new={"kind": KINDS[instance.type]})


def note_factor_removed(*, user: User, authenticator: Authenticator, **_signal: Any) -> None:
    """Notes that a second factor was removed."""
    note_removed_kind(user, KINDS[authenticator.type])


def note_removed_kind(person: User, kind: str) -> None:
    """Notes that a second factor of this kind was removed."""
    _note(Action.SECOND_FACTOR_REMOVED, person, old={"kind": kind})


def _method(request: HttpRequest, person: User) -> str | None:
    """Returns how the person began this sign-in; a factor that follows a password does not count."""
    records = get_authentication_records(request, person) if hasattr(request, "session") else []
    begun = [each for each in records if each["method"] != "mfa" or each.get("passwordless")]
    begun = [each for each in begun if not each.get("reauthenticated")]
    return METHODS.get(begun[-1]["method"]) if begun else None


def _note(action: Action, person: User, *, old: Any = None, new: Any = None) -> None:
    for account_id in Membership.objects.filter(user=person).values_list("account_id", flat=True):
        audit.record(account_id, action, Subject.of_member(person.pk), old=old, new=new)
