"""Defines people, accounts, memberships, invitations, keys, policies and the audit log."""

from .accounts import INVITING_RIGHT, Account, Invitation, Membership, Suspension, currency_code
from .keys import LONGEST_TAG, MOST_TAGS, TOKEN_PREFIX, ApiKey
from .people import User
from .policies import Policy, PolicyEvent

__all__ = [
    "INVITING_RIGHT",
    "LONGEST_TAG",
    "MOST_TAGS",
    "TOKEN_PREFIX",
    "Account",
    "ApiKey",
    "Invitation",
    "Membership",
    "Policy",
    "PolicyEvent",
    "Suspension",
    "User",
    "currency_code",
]
