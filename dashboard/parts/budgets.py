"""Prepares budgets for pages: what is spent and left of each, and its alerts."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

from django.utils import timezone

from accounts.models import Policy
from billing.ledger.spending import BudgetState, begin_of, end_of, states_of
from billing.models import BudgetAlert
from gateway.money import from_units

from .policy_words import PERIODS

FULL = 100  # percent


@dataclass(frozen=True, slots=True)
class BudgetLine:
    """Holds a budget of a page: what is spent and left of it, and its alerts in this period."""

    state: BudgetState
    alerts: list[BudgetAlert]

    @property
    def amount(self) -> Decimal:
        return self.state.budget.amount

    @property
    def per(self) -> str:
        return PERIODS[self.state.budget.period]

    @property
    def spent(self) -> Decimal:
        return from_units(self.state.spent)

    @property
    def left(self) -> Decimal:
        return from_units(max(self.state.left, 0))

    @property
    def percent(self) -> int:
        """Returns the share that is spent, rounded down; 100 for a budget of nothing."""
        return int(self.spent * FULL / self.amount) if self.amount else FULL

    @property
    def shown_percent(self) -> int:
        return min(self.percent, FULL)

    @property
    def renews(self) -> datetime | None:
        return end_of(self.state.budget.period, self.state.today)


def budgets_of(policies: list[Policy]) -> dict[UUID, list[BudgetLine]]:
    """Returns the budgets of each policy, by its id. Nothing is spent of a default: each new key has a copy."""
    today = timezone.now().astimezone(UTC).date()
    begins = {period: begin_of(period, today) for period in PERIODS}
    alerts: dict[tuple[UUID, str], list[BudgetAlert]] = {}
    for alert in BudgetAlert.objects.filter(policy__in=policies, begins__in=begins.values()).order_by("percent"):
        if alert.begins == begins[alert.period]:
            alerts.setdefault((alert.policy_id, alert.period), []).append(alert)
    return {
        policy.pk: [
            BudgetLine(state, alerts.get((policy.pk, state.budget.period), []))
            for state in (states_of(policy, today) if policy.level != Policy.Level.DEFAULT else ())
        ]
        for policy in policies
    }


def budgets_of_keys(key_ids: Collection[UUID]) -> dict[UUID, list[BudgetLine]]:
    """Returns the budgets of the keys' own policies, by the id of the key."""
    found = list(Policy.objects.filter(key__in=key_ids).select_related("spending"))
    budgets = budgets_of(found)
    return {policy.key_id: budgets[policy.pk] for policy in found if policy.key_id is not None}
