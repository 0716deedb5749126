"""Writes keys, their budgets and what they have used, as the API shows them (docs/management.md)."""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db.models import Q

from accounts.models import Account, ApiKey, Policy
from gateway.edge.rfc3339 import to_text
from gateway.money import from_units, plain

from .ledger.spending import PERIODS, BudgetState, begin_of, end_of, states_of
from .models import Wallet
from .usage.statistics import Days, GroupColumn, Scope, breakdown

Json = dict[str, Any]
EARLIEST = date(1970, 1, 1)
RESETS = {"day": "daily", "week": "weekly", "month": "monthly", "total": None}  # OpenRouter's words


def key_of(key: ApiKey, usage: Json, today: date) -> Json:
    """Returns a key as the list of keys shows it. The caller has read its policy, its spending and its maker."""
    policy = getattr(key, "policy", None)
    budgets = [] if policy is None else [budget_of(state) for state in states_of(policy, today)]
    return {
        "object": "key",
        "id": str(key.pk),
        "kind": key.kind,
        "name": key.name,
        "masked": key.masked,
        "tags": key.tags.split(),
        "created_at": to_text(key.created_at),
        "created_by": None if key.created_by is None else key.created_by.email,
        "last_used_at": text_or_none(key.last_used_at),
        "expires_at": text_or_none(key.expires_at),
        "disabled": key.disabled_at is not None,
        "policy": {} if policy is None else policy.rules,
        "budget": tightest(budgets),
        "budgets": budgets,
        "usage": usage,
    }


def budget_of(state: BudgetState) -> Json:
    """Returns a budget with what is spent and left of it, in the account's currency."""
    renews_at = end_of(state.budget.period, state.today)
    return {
        "level": state.policy.level,
        "tag": state.policy.tag or None,
        "amount": plain(state.budget.amount),
        "period": state.budget.period,
        "spent": plain(from_units(state.spent)),
        "remaining": plain(max(Decimal(0), from_units(state.left))),
        "renews_at": text_or_none(renews_at),
    }


def tightest(budgets: Sequence[Json]) -> Json | None:
    """Returns the budget with the least left."""
    return min(budgets, key=lambda budget: Decimal(budget["remaining"]), default=None)


def budgets_of_key(key: ApiKey, today: date) -> list[Json]:
    """Returns the budgets of every policy that applies to a key: its own policy, its tags' and its account's."""
    applies = Q(key=key) | Q(level=Policy.Level.TAG, tag__in=key.tags.split()) | Q(level=Policy.Level.ACCOUNT)
    found = Policy.objects.filter(applies, account_id=key.account_id).select_related("spending")
    return [budget_of(state) for policy in found for state in states_of(policy, today)]


def account_of(account: Account) -> Json:
    """Returns the account as answers about a key show it."""
    balance = Wallet.objects.get(pk=account.pk).balance
    return {
        "id": str(account.pk),
        "name": account.name,
        "currency": account.currency,
        "balance": plain(balance),
        "suspended": account.suspended_at is not None,
    }


def usage_of_keys(account_id: UUID, today: date, key_id: UUID | None = None) -> dict[UUID, Json]:
    """Returns what each key has cost in the current day, week and month and in total, in the account's currency.

    A key that has cost nothing is left out.
    """
    used: dict[UUID, Json] = {}
    for period in PERIODS:
        days = Days(max(EARLIEST, begin_of(period, today)), today)
        for row in breakdown(Scope(account_id, key_id=key_id), days, GroupColumn.KEY):
            if row.key_id is not None:
                used.setdefault(row.key_id, no_usage())[period] = plain(row.totals.cost or Decimal(0))
    return used


def no_usage() -> Json:
    """Returns the usage of a key that has cost nothing."""
    return dict.fromkeys(PERIODS, "0.00")


def of_openrouter(key: ApiKey, budget: Json | None, usage: Json) -> Json:
    """Returns what OpenRouter's clients read, whose figures are numbers."""
    return {
        "label": key.masked,
        "limit": None if budget is None else float(budget["amount"]),
        "limit_remaining": None if budget is None else float(budget["remaining"]),
        "limit_reset": None if budget is None else RESETS[budget["period"]],
        "usage": float(usage["total"]),
        "usage_daily": float(usage["day"]),
        "usage_weekly": float(usage["week"]),
        "usage_monthly": float(usage["month"]),
        "is_free_tier": False,
    }


def text_or_none(moment: datetime | None) -> str | None:
    """Returns a moment as the API writes it, or None."""
    return None if moment is None else to_text(moment)


def today() -> date:
    """Returns the present UTC day."""
    return datetime.now(UTC).date()
