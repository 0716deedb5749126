"""Finds the money that a request may spend: its account's balance, and what is left of the budgets that apply to it."""

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial

from accounts.in_flight import Purse
from accounts.policies import AppliedPolicy
from billing.ledger.spending import BudgetState, budget_states
from gateway.errors import InsufficientCredits

from .authentication import Payer, balance_of, policies_of

BALANCE_DOES_NOT_COVER = "This account's balance does not cover another request in addition to those in flight."


def purse_of_account(payer: Payer) -> Purse:
    """Returns the purse of the account's balance, which `admit` has found above zero."""
    return Purse(payer.account_id.hex, payer.balance, partial(_read_balance, payer.account_id), BALANCE_DOES_NOT_COVER)


def purses_of_budgets(payer: Payer) -> Iterator[Purse]:
    """Yields a purse for each policy with budgets: the budget that has the least left. Raises BudgetExceeded.

    The purse is named `account:level:holder`. The holder is the policy's tag, a key's id, or empty for the account.
    """
    for policy in payer.policies:
        if policy.rules.budgets:
            state = _tightest(policy, payer.currency)
            holder = policy.tag or (payer.key_id.hex if policy.level == "key" else "")
            words = f"{state.name} does not cover another request in addition to those in flight."
            read = partial(_read_budget, payer.key_id, payer.currency, policy.level, policy.tag)
            yield Purse(f"{payer.account_id.hex}:{policy.level}:{holder}", state.left, read, words)


def _tightest(policy: AppliedPolicy, currency: str) -> BudgetState:
    """Returns the one of a policy's budgets that has the least left. Raises BudgetExceeded if one of them is spent."""
    states = list(budget_states([policy], datetime.now(UTC).date()))
    for state in states:
        if state.left <= 0:
            raise state.exceeded(currency)
    return min(states, key=lambda state: state.left)


def _read_balance(account_id: uuid.UUID) -> int:
    balance = balance_of(account_id)
    if balance <= 0:
        raise InsufficientCredits
    return balance


def _read_budget(key_id: uuid.UUID, currency: str, level: str, tag: str) -> int:
    """Reads again how much is left of the policy's budget that has the least left. Raises BudgetExceeded.

    Returns an amount without limit if the policy has lost its budgets since.
    """
    for policy in policies_of(key_id):
        if (policy.level, policy.tag) == (level, tag) and policy.rules.budgets:
            return _tightest(policy, currency).left
    return 2**63
