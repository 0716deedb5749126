"""Changes members of an account and their roles, under a lock on the account's row."""

import logging
import uuid
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from . import audit
from .actions import Action
from .audit import Subject
from .models import Account, ApiKey, Invitation, Membership, User

logger = logging.getLogger(__name__)


class LastOwner(Exception):
    """The change would leave the account without an owner."""


class NotAMember(LookupError):
    """The membership has ended."""


def members_of(account: Account) -> list[Membership]:
    """Returns all members, owners first."""
    # In the alphabet "owner" comes after "member", so the descending order of roles begins with owners.
    return list(account.membership_set.select_related("user").order_by("-role", "user__email"))


def is_last_owner(membership: Membership) -> bool:
    """Tells whether this member is the only owner of the account."""
    owners = Membership.objects.filter(account=membership.account_id, role=Membership.Role.OWNER)
    return membership.role == Membership.Role.OWNER and not owners.exclude(pk=membership.pk).exists()


def change_role(membership: Membership, role: str, *, by: User) -> None:
    """Gives a member a role. If an owner becomes a member, the pending invitations that they sent are revoked.

    Raises PermissionDenied, NotAMember, LastOwner.
    """
    with transaction.atomic():
        account_locked_by_owner(membership.account_id, by)
        found = _reread(membership)
        if found.role == role:
            return
        set_role(found, role)
    logger.info("account %s: person %s made person %s %s", found.account_id, by.pk, found.user_id, role)


def set_role(found: Membership, role: str) -> None:
    """Writes another role of a member whose account is locked. Raises LastOwner."""
    if role != Membership.Role.OWNER:
        _require_other_owner(found)
        _revoke_invitations_of(found)
    old, found.role = found.role, role
    found.save(update_fields=["role"])
    subject = Subject.of_member(found.user_id)
    audit.record(found.account_id, Action.MEMBER_ROLE_CHANGED, subject, old={"role": old}, new={"role": role})


def remove(membership: Membership, *, by: User | ApiKey) -> None:
    """Ends a membership, and revokes the pending invitations that the person sent.

    Owners and management keys may end any membership, other members only their own.

    Raises PermissionDenied, NotAMember, LastOwner.
    """
    with transaction.atomic():
        if isinstance(by, ApiKey) or membership.user_id == by.pk:
            locked_account(membership.account_id)
        else:
            account_locked_by_owner(membership.account_id, by)
        end(_reread(membership))
    logger.info("account %s: %s removed person %s", membership.account_id, by.pk, membership.user_id)


def end(found: Membership) -> None:
    """Deletes a membership whose account is locked. Raises LastOwner."""
    _require_other_owner(found)
    _revoke_invitations_of(found)
    found.delete()


def note_added(*, instance: Membership, created: bool, **_signal: Any) -> None:
    """Writes the audit event of a new member, however they were added (a signal's receiver)."""
    if created:
        subject, new = Subject.of_member(instance.user_id), {"role": instance.role}
        audit.record(instance.account_id, Action.MEMBER_ADDED, subject, new=new)


def note_removed(*, instance: Membership, **_signal: Any) -> None:
    """Writes the audit event of a member who was removed in any way (a signal's receiver)."""
    subject, old = Subject.of_member(instance.user_id), {"role": instance.role}
    audit.record(instance.account_id, Action.MEMBER_REMOVED, subject, old=old)


def locked_account(account_id: uuid.UUID) -> Account:
    """Returns the account with its row locked. The lock also guards its members, invitations and suspensions."""
    return Account.objects.select_for_update(no_key=True).get(pk=account_id)


def account_locked_by_owner(account_id: uuid.UUID, person: User) -> Account:
    """Returns the account with its row locked. Raises PermissionDenied if the person does not own it."""
    account = locked_account(account_id)
    if not Membership.objects.filter(account=account, user=person, role=Membership.Role.OWNER).exists():
        raise PermissionDenied
    return account


def _reread(membership: Membership) -> Membership:
    found = Membership.objects.select_related("user").filter(pk=membership.pk).first()
    if found is None:
        raise NotAMember
    return found


def _require_other_owner(membership: Membership) -> None:
    if is_last_owner(membership):
        raise LastOwner


def _revoke_invitations_of(membership: Membership) -> None:
    sent = Q(account=membership.account_id, invited_by=membership.user_id)
    Invitation.objects.pending().filter(sent).update(revoked_at=timezone.now())
