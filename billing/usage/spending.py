"""Adds up what each account spent in some days, exactly as its records do."""

from datetime import timedelta
from uuid import UUID

from django.db.models import Sum

from ..models import DailyUsage
from .rollups import accounts_behind
from .statistics import Days, Scope, Totals, totals


def spending_by_account(days: Days) -> dict[UUID, Totals]:
    """Returns requests, `priced`, `cost` in the account's currency and `cost_eur` of each account with a request.

    One SELECT for what is rolled up, and two more for each account whose newest records are not.
    """
    rows = DailyUsage.objects.filter(day__range=(days.first, days.last)).order_by().values_list("account_id")
    found = rows.annotate(Sum("requests"), Sum("priced"), Sum("cost"), Sum("cost_eur"))
    spending = {
        account_id: Totals(
            requests=int(requests), priced=int(priced), cost=cost if priced else None, cost_eur=eur if priced else None
        )
        for account_id, requests, priced, cost, eur in found
    }
    for account_id in accounts_behind(timedelta(0)):
        whole = totals(Scope(account_id), days)
        if whole.requests:
            spending[account_id] = whole
    return spending
