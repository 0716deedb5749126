"""Keeps an account's balance lines: once an entry takes the balance down to such an amount, the owners get a mail.

On PostgreSQL a settlement notes the crossing in a part of its statement (`settling_statement.py`). SQLite's
settlements, and corrections on both databases, call `cross`.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from accounts import audit
from accounts.actions import Action
from accounts.audit import Subject
from accounts.members import locked_account
from accounts.models import Account
from gateway.money import plain

from ..models import BalanceLine, Wallet
from . import spending

MOST_LINES = 5  # of an account


def amounts_of(account_id: UUID) -> list[Decimal]:
    """Returns the account's amounts, the highest first."""
    return list(BalanceLine.objects.filter(account_id=account_id).order_by("-amount").values_list("amount", flat=True))


def set_amounts(account_id: UUID, amounts: Collection[Decimal]) -> None:
    """Replaces the account's amounts. The mail about an amount that stays is not repeated.

    The mail about a new amount is due at once if the balance is not above it. The highest amount is also written to
    `Account.low_balance`, which workers of the version before read.
    """
    spending.try_again_if_locked(lambda: _replace(account_id, amounts))


@transaction.atomic
def _replace(account_id: UUID, amounts: Collection[Decimal]) -> None:
    # 1. Lock the account against another change, and the wallet against entries. A settlement that waits for the wallet
    # would not see a new line that is committed meanwhile.
    locked_account(account_id)
    lines = BalanceLine.objects.filter(account_id=account_id)
    before = set(lines.values_list("amount", flat=True))
    new = set(amounts) - before
    if new:
        spending.exclude_settlements()
    balance = Wallet.objects.select_for_update(no_key=True).get(pk=account_id).balance
    # 2. Replace the lines.
    now = timezone.now()
    lines.exclude(amount__in=amounts).delete()
    BalanceLine.objects.bulk_create(
        BalanceLine(account_id=account_id, amount=amount)
        if balance > amount
        else BalanceLine(account_id=account_id, amount=amount, balance=balance, crossed_at=now)
        for amount in new
    )
    Account.objects.filter(pk=account_id).update(low_balance=max(amounts, default=None))
    # 3. Note the change.
    if before != set(amounts):
        both = ([plain(amount) for amount in sorted(each)] for each in (before, set(amounts)))
        old, chosen = ({"amounts": texts} for texts in both)
        audit.record(account_id, Action.ALERTS_CHANGED, Subject("account", str(account_id)), old=old, new=chosen)


def set_highest(account_id: UUID, amount: Decimal | None) -> None:
    """Replaces the highest amount, and drops those that are not below the new one; None drops all."""
    others: Sequence[Decimal] = amounts_of(account_id)[1:]
    set_amounts(account_id, [] if amount is None else [amount, *(other for other in others if other < amount)])


def cross(account_id: UUID, before: Decimal, after: Decimal, now: datetime, using: str) -> None:
    """Notes the lines that an entry has crossed downwards. The caller has locked the wallet."""
    if after < before:
        crossed = BalanceLine.objects.using(using).filter(account_id=account_id, amount__gte=after, amount__lt=before)
        crossed.update(crossed_at=now, balance=after, told_at=None)
