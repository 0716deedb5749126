"""Defines people, accounts, memberships, invitations, keys, policies, webhooks and the audit log."""

from .accounts import INVITING_RIGHT, Account, Invitation, Membership, Suspension, currency_code
from .audit import AuditEvent
from .keys import LONGEST_TAG, MOST_TAGS, PREFIXES, ApiKey, FormerToken, KeyKind, OperatorKey, OperatorRequest
from .people import User
from .policies import Policy
from .webhooks import LONGEST_URL, Webhook, WebhookDelivery

__all__ = [
    "INVITING_RIGHT",
    "LONGEST_TAG",
    "LONGEST_URL",
    "MOST_TAGS",
    "PREFIXES",
    "Account",
    "ApiKey",
    "AuditEvent",
    "FormerToken",
    "Invitation",
    "KeyKind",
    "Membership",
    "OperatorKey",
    "OperatorRequest",
    "Policy",
    "Suspension",
    "User",
    "Webhook",
    "WebhookDelivery",
    "currency_code",
]
