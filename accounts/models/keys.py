"""Defines the three kinds of keys, and the tokens that a rotation has replaced."""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from gateway.ids import uuid7

from .accounts import Account
from .people import User

MOST_TAGS = 8  # of a key
LONGEST_TAG = 65  # characters of `name=value`


class KeyKind(models.TextChoices):
    """Lists the kinds of keys. Each kind has its own endpoints (docs/management.md#keys-of-three-kinds)."""

    INFERENCE = "inference", "inference"
    MANAGEMENT = "management", "management"
    OPERATOR = "operator", "operator"


PREFIXES = {  # of the tokens of each kind
    KeyKind.INFERENCE: "sk-gw-",
    KeyKind.MANAGEMENT: "sk-gm-",
    KeyKind.OPERATOR: "sk-go-",
}


class ApiKey(models.Model):
    """Is a token of an account, stored as a fingerprint to find it and a verifier to prove it.

    An expired key loses the verifier, a deleted key both. The row stays for the history. While a key is disabled, its
    requests are refused.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="keys")
    kind = models.CharField(
        max_length=10,
        choices=[(kind.value, kind.label) for kind in (KeyKind.INFERENCE, KeyKind.MANAGEMENT)],
        default=KeyKind.INFERENCE,
        db_default=KeyKind.INFERENCE.value,
        editable=False,
    )
    name = models.CharField(max_length=200)
    fingerprint = models.BinaryField(max_length=32, null=True, unique=True, editable=False)
    verifier = models.BinaryField(max_length=32, null=True, editable=False)
    last_four = models.CharField(max_length=4, editable=False)
    rpm = models.PositiveIntegerField("requests per minute", null=True, blank=True, help_text="Empty: the default.")
    tpm = models.PositiveIntegerField("tokens per minute", null=True, blank=True, help_text="Empty: the default.")
    # The person who created it on the keys page, or uses it in the Playground. Null if a command or a management key
    # created it, if the person was deleted, or if the key is older than this column.
    created_by = models.ForeignKey(
        User,
        on_delete=models.SET_NULL,
        null=True,
        related_name="+",
        db_index=False,
        db_constraint=False,
        editable=False,
    )
    # Sorted and separated by spaces, as in "env=prod team=search"; empty: none. Records copy it.
    tags = models.CharField(max_length=MOST_TAGS * (LONGEST_TAG + 1), blank=True, default="", db_default="")
    # True for the key with which `created_by` uses the dashboard's Playground (accounts.playground_keys).
    is_playground = models.BooleanField("of the Playground", default=False, db_default=False, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    disabled_at = models.DateTimeField(null=True, blank=True, editable=False)
    deleted_at = models.DateTimeField(null=True, blank=True, editable=False)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        verbose_name = "API key"
        ordering: ClassVar = ["-created_at"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["account", "name"], condition=Q(deleted_at=None), name="key_name_unique_among_live"
            ),
            models.CheckConstraint(
                condition=Q(deleted_at=None, fingerprint__isnull=False)
                | Q(deleted_at__isnull=False, fingerprint=None, verifier=None),
                name="deleted_key_keeps_no_secret",
            ),
            models.CheckConstraint(condition=~Q(name=""), name="key_has_a_name"),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.masked})"

    @property
    def masked(self) -> str:
        return f"{PREFIXES[KeyKind(self.kind)]}…{self.last_four}"


class FormerToken(models.Model):
    """Is a token that a rotation of its key has replaced. It works until `works_until`, if the key does."""

    key = models.ForeignKey(ApiKey, on_delete=models.CASCADE, related_name="former_tokens")
    fingerprint = models.BinaryField(max_length=32, unique=True, editable=False)
    verifier = models.BinaryField(max_length=32, editable=False)
    works_until = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return f"{self.key_id} until {self.works_until:%Y-%m-%d %H:%M} UTC"


class OperatorKey(models.Model):
    """Is a token with which the operator's own systems open accounts and book credit. It belongs to no account."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.CharField(max_length=200)
    fingerprint = models.BinaryField(max_length=32, null=True, unique=True, editable=False)
    verifier = models.BinaryField(max_length=32, null=True, editable=False)
    last_four = models.CharField(max_length=4, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    deleted_at = models.DateTimeField(null=True, blank=True, editable=False)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        ordering: ClassVar = ["-created_at"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["name"], condition=Q(deleted_at=None), name="operator_key_name_unique_among_live"
            ),
            models.CheckConstraint(
                condition=Q(deleted_at=None, fingerprint__isnull=False)
                | Q(deleted_at__isnull=False, fingerprint=None, verifier=None),
                name="deleted_operator_key_keeps_no_secret",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.masked})"

    @property
    def masked(self) -> str:
        return f"{PREFIXES[KeyKind.OPERATOR]}…{self.last_four}"


class OperatorRequest(models.Model):
    """Remembers for a day which account an operator key's request with an `Idempotency-Key` has opened."""

    key = models.ForeignKey(OperatorKey, on_delete=models.CASCADE, related_name="+")
    name_digest = models.BinaryField(max_length=32)  # of the header's value
    body_digest = models.BinaryField(max_length=32)
    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="+")
    issued_key = models.ForeignKey(ApiKey, on_delete=models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True, db_index=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["key", "name_digest"], name="one_operator_request_per_idempotency_key")
        ]

    def __str__(self) -> str:
        return f"{self.key_id} opened {self.account_id}"
