"""Gathers every table of billing, because Django finds an app's models in this package alone."""

from .balance_lines import BalanceLine
from .checkpoint import Checkpoint
from .daily_usage import NO_ALIAS, DailyUsage, UsageWatermark
from .generation import FLAGS, IMPLAUSIBLE_USAGE, MALFORMED_EVENT, ZERO_USAGE, Generation
from .idempotent_request import IdempotentRequest
from .ledger import ImmutableRow, LedgerEntry, OverdraftAlert, Wallet
from .notices import Notice
from .pace_alert import PaceAlert
from .request_failures import LONGEST_ASKED, LONGEST_MESSAGE, NOBODY, FailureDay, RequestFailure
from .spending import BudgetAlert, Spending
from .terms import FROZEN, FrozenColumns, FrozenTerms, content_id

__all__ = [
    "FLAGS",
    "FROZEN",
    "IMPLAUSIBLE_USAGE",
    "LONGEST_ASKED",
    "LONGEST_MESSAGE",
    "MALFORMED_EVENT",
    "NOBODY",
    "NO_ALIAS",
    "ZERO_USAGE",
    "BalanceLine",
    "BudgetAlert",
    "Checkpoint",
    "DailyUsage",
    "FailureDay",
    "FrozenColumns",
    "FrozenTerms",
    "Generation",
    "IdempotentRequest",
    "ImmutableRow",
    "LedgerEntry",
    "Notice",
    "OverdraftAlert",
    "PaceAlert",
    "RequestFailure",
    "Spending",
    "UsageWatermark",
    "Wallet",
    "content_id",
]
