"""Defines the three kinds of keys, and the tokens that a rotation has replaced."""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from gateway.ids import uuid7

from .accounts import Account
from .people import User

MOST_TAGS = 8  # of a key
LONGEST_TAG = 65  # characters of `name=value`
TOKEN_PREFIX = "sk-gw-"  # noqa: S105  # every token starts with it


class ApiKey(models.Model):
    """Is a token of an account, stored as a fingerprint to find it and a verifier to prove it.

    An expired key loses the verifier, a deleted key both. The row stays for the history.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="keys")
    name = models.CharField(max_length=200)
    fingerprint = models.BinaryField(max_length=32, null=True, unique=True, editable=False)
    verifier = models.BinaryField(max_length=32, null=True, editable=False)
    last_four = models.CharField(max_length=4, editable=False)
    rpm = models.PositiveIntegerField("requests per minute", null=True, blank=True, help_text="Empty: the default.")
    tpm = models.PositiveIntegerField("tokens per minute", null=True, blank=True, help_text="Empty: the default.")
    # The person who created it on the keys page. Null: a command did, or this was not recorded yet.
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
        return f"{TOKEN_PREFIX}…{self.last_four}"
