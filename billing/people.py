"""Shows and erases what the database holds about one person (docs/security.md#what-people-may-ask-for)."""

import re
from collections.abc import Iterator
from typing import Any

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from allauth.usersessions.models import UserSession
from django.contrib.admin.models import LogEntry
from django.contrib.auth import SESSION_KEY
from django.contrib.contenttypes.models import ContentType
from django.contrib.sessions.models import Session
from django.db import models, transaction
from django.db.models import Q, QuerySet

from accounts.members import is_last_owner, locked_account
from accounts.models import ApiKey, AuditEvent, Invitation, Membership, User
from catalogue.models import PriceChange

from .models import Notice

# A password's hash, a second factor (also the name of a passkey, which is kept with it), the cookie of a session.
SECRETS = frozenset({"password", "data", "session_key"})


class UnknownPerson(LookupError):
    """No person and no invitation has the address."""


class OnlyOwner(ValueError):
    """The person is the only owner of an open account."""


def export(email: str) -> dict[str, Any]:
    """Returns all that is held about the address and its person, by table. Raises UnknownPerson."""
    email, person = _known(email)
    held: dict[str, Any] = {}
    if person is not None:
        groups, permissions = person.groups.all(), person.user_permissions.all()
        rights = {"groups": [group.name for group in groups], "permissions": [each.codename for each in permissions]}
        held["accounts.user"] = [_row(person) | rights]
        for field in _pointing_at_people():
            rows = field.model._base_manager.filter(**{field.name: person}).order_by("pk")
            held[f"{field.model._meta.label_lower}.{field.name}"] = [_row(row) for row in rows]
        held["accounts.auditevent"] = [_row(event) for event in _audit_events_of(person)]
        held["sessions.session"] = [{"expire_date": session.expire_date} for session in _sessions(person)]
    held["accounts.invitation.email"] = [_row(row) for row in Invitation.objects.filter(email=email).order_by("pk")]
    held["admin.logentry.about"] = [_row(entry) for entry in _history_about(email, person)]
    return held


def forget(email: str) -> str:
    """Erases the address and its person, and returns what became of them. Raises UnknownPerson, OnlyOwner.

    `operations.forgetting.forget` removes the names and people of a closed account.
    """
    with transaction.atomic():
        email, person = _known(email)
        invitations = Q(email=email)
        if person is None:
            _rewrite_history(email, None, "a forgotten person")
        else:
            _require_other_owners(person)
            invitations |= Q(invited_by=person)
        Invitation.objects.filter(invitations).delete()
        if person is None:
            return "no person had the address; invitations to it are erased"
        return _forget(person)


def _forget(person: User) -> str:
    identifier = f"person-{person.pk}"
    Membership.objects.filter(user=person).delete()  # ends the Playground's keys
    playground = ApiKey.objects.filter(created_by=person, is_playground=True)
    playground.update(name=f"Playground ({identifier})")
    Notice.objects.filter(person=person).delete()
    Authenticator.objects.filter(user=person).delete()
    UserSession.objects.filter(user=person).delete()
    SocialAccount.objects.filter(user=person).delete()
    EmailAddress.objects.filter(user=person).delete()
    Session.objects.filter(pk__in=[session.pk for session in _sessions(person)]).delete()
    _rewrite_history(person.email, person, identifier)
    PriceChange.objects.filter(changed_by_name=person.email).update(changed_by_name=identifier)
    if not LogEntry.objects.filter(user=person).exists():
        person.delete()
        return "erased"
    # The row stays, because the history of what the person did as staff would be deleted with it.
    person.email = f"{identifier}@forgotten.invalid"
    person.first_name = person.last_name = ""
    person.is_active = person.is_staff = person.is_superuser = person.wants_notices = False
    person.last_login = None
    person.set_unusable_password()
    person.save()
    person.groups.clear()
    person.user_permissions.clear()
    return f"the history of staff keeps the person, inactive, as {person.email}; all else is erased"


def _known(email: str) -> tuple[str, User | None]:
    email = email.strip().lower()
    person = User.objects.filter(email=email).first()
    if person is None and not Invitation.objects.filter(email=email).exists():
        raise UnknownPerson(f"Nothing is held about {email!r}.")
    return email, person


def _require_other_owners(person: User) -> None:
    """Locks the person's accounts, so that no other owner leaves meanwhile."""
    alone = []
    for membership in Membership.objects.filter(user=person).order_by("account"):
        account = locked_account(membership.account_id)
        if account.closed_at is None and is_last_owner(membership):
            alone.append(account.name)
    if alone:
        raise OnlyOwner(
            f"{person.email} is the only owner of {', '.join(alone)}. Add another owner, or close the account."
        )


def _pointing_at_people() -> list[models.ForeignKey[Any, Any]]:
    """Returns every foreign key to a person, in new tables too, except foreign keys of the tables of rights."""
    relations = User._meta.get_fields(include_hidden=True)
    fields = [relation.field for relation in relations if isinstance(relation, models.ManyToOneRel)]
    mine = [field for field in fields if not field.model._meta.auto_created]
    return sorted(mine, key=lambda field: (field.model._meta.label_lower, field.name))


def _row(row: models.Model) -> dict[str, Any]:
    """Returns a row without secrets and their digests."""
    fields = [each for each in row._meta.concrete_fields if not isinstance(each, models.BinaryField)]
    shown = {each.name: each.value_from_object(row) for each in fields if each.name not in SECRETS}
    account = getattr(row, "account", None)
    return shown if account is None else shown | {"account_name": account.name}


def _audit_events_of(person: User) -> "QuerySet[AuditEvent]":
    """Selects the events of what the person did, and of what was done to their memberships."""
    by_person = Q(actor_kind__in=[AuditEvent.ActorKind.MEMBER, AuditEvent.ActorKind.STAFF], actor_id=str(person.pk))
    return AuditEvent.objects.filter(by_person | Q(object_kind="member", object_id=str(person.pk))).order_by("pk")


def _sessions(person: User) -> Iterator[Session]:
    for session in Session.objects.iterator():
        if session.get_decoded().get(SESSION_KEY) == str(person.pk):
            yield session


def _history_about(email: str, person: User | None) -> list[LogEntry]:
    """Returns the log entries of what staff did to the person, and those that mention the address."""
    mentions_email = Q(object_repr__icontains=email) | Q(change_message__icontains=email)
    if person is not None:
        mentions_email |= Q(content_type=ContentType.objects.get_for_model(User), object_id=str(person.pk))
    return list(LogEntry.objects.filter(mentions_email).order_by("pk"))


def _rewrite_history(email: str, person: User | None, instead: str) -> None:
    """Replaces the address in log entries, but not where it is a part of a longer address."""
    address = re.compile(rf"(?<![\w.+-]){re.escape(email)}(?![\w-]|\.\w)", re.IGNORECASE)
    people = ContentType.objects.get_for_model(User)
    for entry in _history_about(email, person):
        entry.object_repr = address.sub(instead, entry.object_repr)
        entry.change_message = address.sub(instead, entry.change_message)
        if person is not None and (entry.content_type_id, entry.object_id) == (people.pk, str(person.pk)):
            entry.object_repr = instead  # even if a long address was cut there
        entry.save(update_fields=["object_repr", "change_message"])
