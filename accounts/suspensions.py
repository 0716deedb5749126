"""Suspends an account: requests and changes by its keys and members are refused, reading is not.

A suspension takes effect with the next request, because every request reads `Account.suspended_at`. The history is in
`Suspension`, which is written in the same transaction.
"""

from django.db import transaction
from django.utils import timezone

from . import audit
from .actions import Action
from .audit import Subject
from .members import locked_account
from .models import Account, Suspension, User


class SuspensionRefused(ValueError):
    """The account is suspended already, has no suspension to lift, or is closed."""


def suspend(account: Account, reason: str, *, by: User | None) -> Suspension:
    """Suspends an account; `by` is None for a command. Raises SuspensionRefused if it is suspended or closed."""
    with transaction.atomic():
        locked = locked_account(account.pk)
        if locked.closed_at is not None:
            raise SuspensionRefused(f"{account.name} is closed: its requests and changes are refused for good.")
        if locked.suspended_at is not None:
            raise SuspensionRefused(f"{account.name} is suspended already.")
        account.suspended_at = timezone.now()
        account.save(update_fields=["suspended_at"])
        audit.record(account.pk, Action.ACCOUNT_SUSPENDED, Subject.of_account(account), new={"reason": reason})
        return Suspension.objects.create(account=account, reason=reason, began_at=account.suspended_at, began_by=by)


def lift(account: Account, *, by: User | None) -> Suspension:
    """Ends an account's suspension and returns it.

    Raises SuspensionRefused if the account is not suspended, or is closed.
    """
    with transaction.atomic():
        locked = locked_account(account.pk)
        if locked.suspended_at is None:
            raise SuspensionRefused(f"{account.name} is not suspended.")
        if locked.closed_at is not None:
            raise SuspensionRefused(f"{account.name} is closed, which cannot be undone. Open a new account.")
        account.suspended_at = None
        account.save(update_fields=["suspended_at"])
        suspension = Suspension.objects.get(account=account, ended_at=None)
        suspension.ended_at, suspension.ended_by = timezone.now(), by
        suspension.save(update_fields=["ended_at", "ended_by"])
        audit.record(account.pk, Action.ACCOUNT_RESUMED, Subject.of_account(account))
        return suspension
