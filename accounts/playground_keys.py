"""Issues the keys of the Playground. A person has one row in each account, which gets a new token each time."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from . import keys
from .models import Account, ApiKey, Membership, User

LIFETIME = timedelta(minutes=15)
RPM = 30  # requests per minute, unless an owner changes it


def issue(person: User, account: Account) -> tuple[ApiKey, str]:
    """Returns the person's key and its new token, which works for LIFETIME.

    Raises Membership.DoesNotExist, KeyNameTaken.
    """
    token, now = keys.new_token(), timezone.now()
    with transaction.atomic():
        # A change that ends the session waits for this lock: the end of the membership, an inactive person, a new
        # password. If the change came first, nothing is found here. Other pages of the person wait too.
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
    """Deletes the person's Playground keys, in one account or in all."""
    # Filters by account, because `created_by` has no index.
    where = {"account__membership__user": person_id} if account_id is None else {"account": account_id}
    own = ApiKey.objects.filter(created_by=person_id, is_playground=True, deleted_at=None, **where)
    own.update(deleted_at=timezone.now(), fingerprint=None, verifier=None)


def delete_expired(now: datetime) -> int:
    """Deletes expired Playground keys; returns how many."""
    expired = ApiKey.objects.filter(is_playground=True, deleted_at=None, expires_at__lte=now)
    return expired.update(deleted_at=now, fingerprint=None, verifier=None)


def on_sign_out(*, user: User | None, **_signal: Any) -> None:
    """Deletes the person's keys when they sign out. Pages in other browsers request new ones."""
    if user is not None:
        end(user.pk)


def on_change_of_person(*, instance: User, created: bool, update_fields: frozenset[str] | None, **_signal: Any) -> None:
    """Deletes the person's keys when a change may end their sessions, such as a new password."""
    if not created and update_fields != frozenset({"last_login"}):
        end(instance.pk)


def on_removal_of_person(*, instance: User, **_signal: Any) -> None:
    """Deletes the person's keys before the person is deleted; afterwards `created_by` is null."""
    end(instance.pk)


def on_end_of_membership(*, instance: Membership, **_signal: Any) -> None:
    """Deletes the person's keys in the account after the membership, so that no new one can be made in between."""
    end(instance.user_id, instance.account_id)


def _name(person: User) -> str:
    return f"Playground ({person.email[: keys.MAX_NAME_LENGTH - len('Playground ()')]})"
