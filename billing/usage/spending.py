"""Adds up what each account spent in some days, exactly as its records do."""

from datetime import timedelta
from uuid import UUID

from django.db.models import Sum

from ..ledger.record_columns import ROLLED_UP
from ..models import DailyUsage
from .rollups import accounts_behind
from .statistics import Days, Scope, Totals, totals

MONEY = tuple(column.name for column in ROLLED_UP if column.counted_by == "priced")


def spending_by_account(days: Days) -> dict[UUID, Totals]:
    """Returns requests, `priced` and the sums of money of each account with a request.

    One SELECT for what is rolled up, and two more for each account whose newest records are not.
    """
    rows = DailyUsage.objects.filter(day__range=(days.first, days.last)).order_by().values_list("account_id")
    found = rows.annotate(Sum("requests"), Sum("priced"), *map(Sum, MONEY))
    spending = {
        account_id: Totals(
            requests=int(requests), priced=int(priced), **(dict(zip(MONEY, sums, strict=True)) if priced else {})
        )
        for account_id, requests, priced, *sums in found
    }
    for account_id in accounts_behind(timedelta(0)):
        whole = totals(Scope(account_id), days)
        if whole.requests:
            spending[account_id] = whole
    return spending
