"""Keys of the Playground: a person's row in an account, with another token each time."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from . import keys
from .models import Account, ApiKey, Membership, User

LIFETIME = timedelta(minutes=15)
RPM = 30  # requests in any minute, unless an owner changes it


def issue(person: User, account: Account) -> tuple[ApiKey, str]:
    """The person's key with a new token. Raises Membership.DoesNotExist, KeyNameTaken."""
    token, now = keys.new_token(), timezone.now()
    with transaction.atomic():
        # Whoever ends the membership, makes the person inactive or changes the password waits, or has done it: the
        # session that asked is over then. Another page of the same person waits as well.
        is_as_signed_in = {"user__is_active": True, "user__password": person.password}
        memberships = Membership.objects.select_for_update().filter(user=person, **is_as_signed_in).order_by("pk")
        if account.pk not in [membership.account_id for membership in memberships]:
            raise Membership.DoesNotExist
        end(person.pk)
        key = ApiKey.objects.filter(account=account, created_by=person, is_playground=True).first() or ApiKey(
            account=account, created_by=person, is_playground=True, name=_name(person), rpm=RPM
        )
        key.fingerprint, key.verifier, key.last_four = keys.fingerprint(token), keys.verifier(token), token[-4:]
        key.expires_at, key.deleted_at = now + LIFETIME, None
        with keys.unique_name(account, key.name), transaction.atomic():
            key.save()
    return key, token


def end(person_id: int, account_id: UUID | None = None) -> None:
    """Ends the person's keys at once, in one account or all."""
    # By an index of accounts: keys have none by who made them.
    where = {"account__membership__user": person_id} if account_id is None else {"account": account_id}
    own = ApiKey.objects.filter(created_by=person_id, is_playground=True, deleted_at=None, **where)
    own.update(deleted_at=timezone.now(), fingerprint=None, verifier=None)


def delete_expired(now: datetime) -> int:
    """Removes expired tokens, and returns how many."""
    expired = ApiKey.objects.filter(is_playground=True, deleted_at=None, expires_at__lte=now)
    return expired.update(deleted_at=now, fingerprint=None, verifier=None)


def on_sign_out(*, user: User | None, **_signal: Any) -> None:
    """Ends other browsers' keys too; their pages make new ones."""
    if user is not None:
        end(user.pk)


def on_change_of_person(*, instance: User, created: bool, update_fields: frozenset[str] | None, **_signal: Any) -> None:
    """Ends keys with the sessions: a new password, or an inactive person."""
    if not created and update_fields != frozenset({"last_login"}):
        end(instance.pk)


def on_removal_of_person(*, instance: User, **_signal: Any) -> None:
    """Ends keys, before it: afterwards nobody knows whose they are."""
    end(instance.pk)


def on_end_of_membership(*, instance: Membership, **_signal: Any) -> None:
    """Ends keys, after it: none can be made in between."""
    end(instance.user_id, instance.account_id)


def _name(person: User) -> str:
    return f"Playground ({person.email[: keys.MAX_NAME_LENGTH - len('Playground ()')]})"
