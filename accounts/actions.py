"""Lists what can happen to an account, as `subject.action`: for the audit log, webhooks, mails and documents."""

from django.db import models


class Action(models.TextChoices):
    """Names each action once. WEBHOOKS lists those that a webhook may be sent for."""

    ACCOUNT_CREATED = "account.created", "account created"
    ACCOUNT_CHANGED = "account.changed", "account changed"
    ACCOUNT_SUSPENDED = "account.suspended", "account suspended"
    ACCOUNT_RESUMED = "account.resumed", "suspension lifted"
    ACCOUNT_CLOSED = "account.closed", "account closed"
    ALERTS_CHANGED = "alerts.changed", "amounts of the balance for alerts changed"
    ALIAS_CREATED = "alias.created", "alias created"
    ALIAS_RENAMED = "alias.renamed", "alias renamed"
    ALIAS_REPOINTED = "alias.repointed", "alias target changed"
    ALIAS_FALLBACKS_CHANGED = "alias.fallbacks_changed", "fallbacks of an alias changed"
    ALIAS_DELETED = "alias.deleted", "alias deleted"
    BALANCE_THRESHOLD = "balance.threshold", "balance at or below an amount"
    BUDGET_THRESHOLD = "budget.threshold", "budget spent in part"
    CREDIT_GRANTED = "credit.granted", "credit granted"
    CREDIT_CORRECTED = "credit.corrected", "balance corrected"
    EXPORT_MADE = "export.made", "data exported"
    INVITATION_SENT = "invitation.sent", "invitation sent"
    INVITATION_REVOKED = "invitation.revoked", "invitation revoked"
    KEY_CREATED = "key.created", "key created"
    KEY_CHANGED = "key.changed", "key changed"
    KEY_ROTATED = "key.rotated", "key rotated"
    KEY_DISABLED = "key.disabled", "key disabled"
    KEY_ENABLED = "key.enabled", "key enabled"
    KEY_EXPIRING = "key.expiring", "key about to expire"
    KEY_DELETED = "key.deleted", "key deleted"
    MEMBER_ADDED = "member.added", "member added"
    MEMBER_ROLE_CHANGED = "member.role_changed", "role changed"
    MEMBER_REMOVED = "member.removed", "member removed"
    PASSWORD_CHANGED = "password.changed", "password changed"
    POLICY_CHANGED = "policy.changed", "policy changed"
    PROVIDER_DOWN = "provider.down", "provider is down"
    PROVIDER_UP = "provider.up", "provider is up"
    SECOND_FACTOR_ADDED = "second_factor.added", "second factor added"
    SECOND_FACTOR_REMOVED = "second_factor.removed", "second factor removed"
    SESSION_OPENED = "session.opened", "signed in"
    SESSION_CLOSED = "session.closed", "signed out"
    SESSION_FAILED = "session.failed", "sign-in failed"
    SINGLE_SIGN_ON_UNLINKED = "single_sign_on.unlinked", "single sign-on unlinked"
    STATEMENT_READY = "statement.ready", "statement ready"
    TAGS_CHANGED = "tags.changed", "tags of a key changed"
    TEST = "test", "test"
    WEBHOOK_CREATED = "webhook.created", "webhook created"
    WEBHOOK_CHANGED = "webhook.changed", "webhook changed"
    WEBHOOK_DELETED = "webhook.deleted", "webhook deleted"


WEBHOOKS = frozenset(
    {
        Action.ALIAS_REPOINTED,
        Action.BALANCE_THRESHOLD,
        Action.BUDGET_THRESHOLD,
        Action.KEY_CREATED,
        Action.KEY_DELETED,
        Action.KEY_EXPIRING,
        Action.KEY_ROTATED,
        Action.MEMBER_ADDED,
        Action.MEMBER_REMOVED,
        Action.PROVIDER_DOWN,
        Action.PROVIDER_UP,
        Action.STATEMENT_READY,
        Action.TEST,
    }
)
