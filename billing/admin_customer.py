"""Puts together what one customer pays, uses and fails at, for the account's page in the admin."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Self

from django.db.models import Count, Sum
from django.http import HttpRequest

from accounts.models import Account, ApiKey, Policy
from gateway.money import from_units

from .admin_policies import POLICY_RIGHT
from .funds import WINDOW_DAYS, funds_of, usage_by_day
from .ledger.spending import BudgetState, states_of
from .models import LedgerEntry, RequestFailure
from .usage.statistics import Days, GroupColumn, Row, Scope, Totals, breakdown

MOST_LISTED = 5  # models, keys, credit entries and codes of failures
MOST_POLICIES = 20
FAILURE_HOURS = 24


@dataclass(frozen=True, slots=True)
class UsedMost:
    """Holds what a model or a key cost in the last WINDOW_DAYS."""

    name: str
    key: ApiKey | None
    totals: Totals


@dataclass(frozen=True, slots=True)
class FailureCount:
    """Counts the failures with an error code, and the requests that were like one of them and have no row."""

    status: int
    code: str
    requests: int


@dataclass(frozen=True, slots=True)
class BudgetLine:
    """Holds a budget of a policy, and what is spent of it."""

    amount: Decimal
    period: str
    spent: Decimal

    @classmethod
    def of(cls, state: BudgetState) -> Self:
        return cls(state.budget.amount, state.budget.period, from_units(state.spent))


def customer(request: HttpRequest, account: Account, now: datetime) -> dict[str, Any]:
    """Returns the values of `admin/billing/customer.html`, with a fixed number of SELECTs.

    A part is None if the person may not view what it is made of.
    """
    may = request.user.has_perm
    today = now.astimezone(UTC).date()
    this_month = today.replace(day=1)
    last_month = (this_month - timedelta(days=1)).replace(day=1)
    scope, window = Scope(account.pk), Days.until(now, WINDOW_DAYS)
    by_day = usage_by_day(scope, Days(min(last_month, window.first), today), with_errors=False)
    sees_usage = may("billing.view_generation")
    months = {last_month: Totals(), this_month: Totals()}
    for day, totals in by_day.items():
        if day >= last_month:
            months[day.replace(day=1)] += totals
    return {
        "funds": funds_of(account.pk, by_day, now),
        "months": sorted(months.items(), reverse=True) if sees_usage else None,
        "models": _models(scope, window) if sees_usage else None,
        "keys": _keys(scope, window) if sees_usage and may("accounts.view_apikey") else None,
        "failures": _failures(account, now) if may("billing.view_requestfailure") else None,
        "credits": _credits(account) if may("billing.view_ledgerentry") else None,
        "policies": list(_policies(account, now)) if may(POLICY_RIGHT) else None,
    }


def _models(scope: Scope, days: Days) -> list[UsedMost]:
    rows = breakdown(scope, days, GroupColumn.PROVIDER, GroupColumn.MODEL)
    return [UsedMost(f"{row.provider}/{row.model}", None, row.totals) for row in _dearest(rows)]


def _keys(scope: Scope, days: Days) -> list[UsedMost]:
    rows = _dearest(breakdown(scope, days, GroupColumn.KEY))
    keys = ApiKey.objects.in_bulk([row.key_id for row in rows])
    return [UsedMost(str(keys[row.key_id]), keys[row.key_id], row.totals) for row in rows if row.key_id in keys]


def _dearest(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (-(row.totals.cost or 0), -row.totals.requests))[:MOST_LISTED]


def _failures(account: Account, now: datetime) -> list[FailureCount]:
    newest = RequestFailure.objects.filter(account=account, created_at__gte=now - timedelta(hours=FAILURE_HOURS))
    counts = newest.order_by().values_list("status", "code").annotate(Count("pk"), Sum("repeated"))
    found = [FailureCount(status, code, rows + int(repeated)) for status, code, rows, repeated in counts]
    return sorted(found, key=lambda failure: -failure.requests)[:MOST_LISTED]


def _credits(account: Account) -> list[LedgerEntry]:
    return list(LedgerEntry.objects.filter(account=account).exclude(reference=None).order_by("-seq")[:MOST_LISTED])


def _policies(account: Account, now: datetime) -> Iterator[tuple[Policy, list[BudgetLine]]]:
    """Yields the policies of an account, each with its budgets."""
    policies = Policy.objects.filter(account=account).select_related("key", "spending").order_by("level", "tag", "pk")
    today = now.astimezone(UTC).date()
    for policy in policies[:MOST_POLICIES]:
        states = states_of(policy, today) if policy.level != Policy.Level.DEFAULT else ()
        yield policy, [BudgetLine.of(state) for state in states]
