"""Writes sign-ins, failed ones and sign-outs of a person to the audit logs of their accounts (signals' receivers)."""

from typing import Any

from . import audit
from .actions import Action
from .audit import Subject
from .models import Membership, User


def note_opened(*, user: User, **_signal: Any) -> None:
    """Notes that a person has signed in."""
    with audit.acting_as(audit.of_member(user)):
        _note(Action.SESSION_OPENED, user)


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
        _note(Action.SESSION_FAILED, person)


def _note(action: Action, person: User) -> None:
    for account_id in Membership.objects.filter(user=person).values_list("account_id", flat=True):
        audit.record(account_id, action, Subject.of_member(person.pk))
