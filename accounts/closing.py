"""Closes an account for good: its keys, invitations and webhooks stop working, its members may only read.

A closed account is also suspended, and the suspension cannot be lifted. So code that checks `suspended_at` refuses it.
"""

from django.db import transaction
from django.utils import timezone

from . import audit
from .actions import Action
from .audit import Subject
from .members import locked_account
from .models import Account, ApiKey, FormerToken, Invitation, Suspension, User, Webhook


class AlreadyClosed(ValueError):
    """The account is closed already."""


def close(account: Account, reason: str, *, by: User | None) -> tuple[int, int]:
    """Closes an account, and returns how many keys were deleted and invitations revoked. Raises AlreadyClosed.

    `by` is None for a command.
    """
    now = timezone.now()
    with transaction.atomic():
        if locked_account(account.pk).closed_at is not None:
            raise AlreadyClosed(f"{account.name} is closed already.")
        # An open suspension ends, so that the owners get the reason for the closing and not the older one.
        Suspension.objects.filter(account=account, ended_at=None).update(ended_at=now)
        Suspension.objects.create(account=account, reason=reason, began_at=now, began_by=by)
        account.closed_at = account.suspended_at = now
        account.save(update_fields=["closed_at", "suspended_at"])
        live = ApiKey.objects.filter(account=account, deleted_at=None)
        deleted = live.update(deleted_at=now, fingerprint=None, verifier=None)
        FormerToken.objects.filter(key__account=account).delete()
        revoked = Invitation.objects.pending().filter(account=account).update(revoked_at=now)
        for webhook in Webhook.objects.select_for_update().filter(account=account).order_by("pk"):
            webhook.delete()
        audit.record(account.pk, Action.ACCOUNT_CLOSED, Subject.of_account(account), new={"reason": reason})
    return deleted, revoked
