"""Alerts owners who set no amounts when the balance is below what the account spends in seven days at its pace.

The pace is the mean of the last seven UTC days, by the daily rollups. A look every five minutes is enough, so no
settlement has any work with it. An alert that was raised ends once credit was added and the balance is above the line:
the line moves with the pace, so that without the first condition owners could get a mail each day.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F, OuterRef, Q, QuerySet, Subquery, Sum

from accounts import audit
from accounts.actions import Action
from accounts.audit import Subject

from .ledger import balance_lines
from .models import BalanceLine, DailyUsage, PaceAlert, Wallet
from .usage.statistics import Days

PACE_DAYS = 7  # the days whose mean is the pace, and for which the balance should last
MOST_AT_ONCE = 100  # the rest follow at the next look


@dataclass(frozen=True, slots=True)
class Alerts:
    """Holds the alerts of an account: the amounts that owners have set or, without any, seven days of pace."""

    amounts: list[Decimal]
    is_by_pace: bool


def alerts_of(account_id: UUID) -> Alerts:
    """Returns which alerts of the balance an account has."""
    amounts = balance_lines.amounts_of(account_id)
    return Alerts(amounts, not amounts and not is_off(account_id))


def is_off(account_id: UUID) -> bool:
    """Tells whether an owner has switched the alert by pace off."""
    return PaceAlert.objects.filter(account_id=account_id, is_off=True).exists()


@transaction.atomic
def switch(account_id: UUID, *, is_on: bool) -> None:
    """Switches an account's alert by pace on or off."""
    was_on = not is_off(account_id)
    PaceAlert.objects.update_or_create(account_id=account_id, defaults={"is_off": not is_on, "balance": None})
    if was_on != is_on:
        old, new = {"by_pace": was_on}, {"by_pace": is_on}
        audit.record(account_id, Action.ALERTS_CHANGED, Subject("account", str(account_id)), old=old, new=new)


def spent_in_a_week(account_ids: Collection[UUID] | None, now: datetime) -> QuerySet[Any, Any]:
    """Selects what accounts have spent (`spent`) in the last seven days, today included; None selects all accounts."""
    days = Days.until(now, PACE_DAYS)
    used = DailyUsage.objects.filter(day__range=(days.first, days.last)).order_by()
    if account_ids is not None:
        used = used.filter(account__in=account_ids)
    return used.values("account_id").annotate(spent=Sum("cost"))


def raise_due(now: datetime) -> list[UUID]:
    """Ends alerts that are over, notes those that are due, and returns the accounts whose owners are to be told."""
    raised = PaceAlert.objects.exclude(balance=None)
    spent_by_it = spent_in_a_week(None, now).filter(account_id=OuterRef("pk")).values("spent")
    with_line = raised.annotate(line=Subquery(spent_by_it), now_there=F("account__wallet__balance"))
    is_above = Q(line=None) | Q(now_there__gte=F("line"))  # nothing may have been spent
    over = with_line.filter(is_above, now_there__gt=F("balance")).values_list("pk", flat=True)
    PaceAlert.objects.filter(pk__in=list(over)).update(balance=None)
    spent = spent_in_a_week(None, now).annotate(left=F("account__wallet__balance"))
    due = spent.filter(
        Q(account__pace_alert=None) | Q(account__pace_alert__is_off=False, account__pace_alert__balance=None),
        account__suspended_at=None,
        left__gt=0,
        left__lt=F("spent"),
    ).exclude(account__in=BalanceLine.objects.values("account_id"))
    told = []
    for row in due[:MOST_AT_ONCE]:
        with transaction.atomic():
            PaceAlert.objects.bulk_create([PaceAlert(account_id=row["account_id"])], ignore_conflicts=True)
            mine = PaceAlert.objects.filter(account_id=row["account_id"], is_off=False, balance=None)
            if mine.update(balance=Wallet.objects.get(pk=row["account_id"]).balance):
                told.append(row["account_id"])
    return told


def days_left(account_id: UUID, balance: Decimal, now: datetime) -> int | None:
    """Returns for how many whole days the balance lasts at the pace of the last seven; None if nothing was spent."""
    spent = sum((row["spent"] or 0 for row in spent_in_a_week([account_id], now)), Decimal(0))
    return max(0, int(balance * PACE_DAYS / spent)) if spent else None
