"""Changes members of an account and their roles, under a lock on the account's row."""

import logging
import uuid

from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from .models import Account, Invitation, Membership, User

logger = logging.getLogger(__name__)


class LastOwner(Exception):
    """The change would leave the account without an owner."""


class NotAMember(LookupError):
    """The membership has ended."""


def members_of(account: Account) -> list[Membership]:
    """Returns all members, owners first."""
    return list(account.membership_set.select_related("user").order_by("-role", "user__email"))


def is_last_owner(membership: Membership) -> bool:
    """Tells whether this member is the only owner of the account."""
    owners = Membership.objects.filter(account=membership.account_id, role=Membership.Role.OWNER)
    return membership.role == Membership.Role.OWNER and not owners.exclude(pk=membership.pk).exists()


def change_role(membership: Membership, role: str, *, by: User) -> None:
    """Gives a member a role; invitations sent by a former owner are revoked.

    Raises PermissionDenied, NotAMember, LastOwner.
    """
    with transaction.atomic():
        locked_for_owner(membership.account_id, by)
        found = _still_there(membership)
        if found.role == role:
            return
        if role != Membership.Role.OWNER:
            _give_up_ownership(found)
        found.role = role
        found.save(update_fields=["role"])
    logger.info("account %s: person %s made person %s %s", found.account_id, by.pk, found.user_id, role)


def remove(membership: Membership, *, by: User) -> None:
    """Ends a membership. Owners may end any, other members their own.

    Raises PermissionDenied, NotAMember, LastOwner.
    """
    with transaction.atomic():
        if membership.user_id == by.pk:
            locked(membership.account_id)
        else:
            locked_for_owner(membership.account_id, by)
        found = _still_there(membership)
        _give_up_ownership(found)
        found.delete()
    logger.info("account %s: person %s removed person %s", membership.account_id, by.pk, membership.user_id)


def locked(account_id: uuid.UUID) -> Account:
    """Returns the account with its row locked. The lock also guards its members and invitations."""
    return Account.objects.select_for_update(no_key=True).get(pk=account_id)


def locked_for_owner(account_id: uuid.UUID, person: User) -> Account:
    """Returns the account with its row locked. Raises PermissionDenied if the person does not own it."""
    account = locked(account_id)
    if not Membership.objects.filter(account=account, user=person, role=Membership.Role.OWNER).exists():
        raise PermissionDenied
    return account


def _still_there(membership: Membership) -> Membership:
    found = Membership.objects.select_related("user").filter(pk=membership.pk).first()
    if found is None:
        raise NotAMember
    return found


def _give_up_ownership(membership: Membership) -> None:
    if is_last_owner(membership):
        raise LastOwner
    sent = Q(account=membership.account_id, invited_by=membership.user_id)
    Invitation.objects.pending().filter(sent).update(revoked_at=timezone.now())
