"""Defines policies and the history of their changes."""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from gateway.ids import uuid7

from .accounts import Account
from .keys import LONGEST_TAG, ApiKey
from .people import User


class Policy(models.Model):
    """Limits what an account, one of its keys, or all its keys with a tag may use. New keys are given the default.

    `rules` are the fields of docs/policies.md, checked by `catalogue.policy_form`. `accounts.policies` reads them.
    """

    class Level(models.TextChoices):
        """Lists what a policy may be for."""

        KEY = "key", "key"
        TAG = "tag", "tag"
        ACCOUNT = "account", "account"
        DEFAULT = "default", "default of new keys"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="policies")
    level = models.CharField(max_length=10, choices=Level)
    key = models.OneToOneField(ApiKey, on_delete=models.CASCADE, null=True, related_name="policy")
    tag = models.CharField(max_length=LONGEST_TAG, blank=True, default="")
    rules = models.JSONField()
    changed_at = models.DateTimeField()

    class Meta:
        verbose_name_plural = "policies"
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["account", "level", "tag"], condition=~Q(level="key"), name="one_policy_of_a_level_and_tag"
            ),
            models.CheckConstraint(
                condition=Q(level="key", key__isnull=False, tag="")
                | Q(~Q(tag=""), level="tag", key=None)
                | Q(level__in=["account", "default"], key=None, tag=""),
                name="policy_fits_its_level",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.level} {self.tag or self.key_id or ''}".rstrip()


class PolicyEvent(models.Model):
    """Records one change of a policy or of a key's tags, and stays.

    `old` and `new` are the rules, or the tags as a list; null where there was or is no policy. `by` is the person and
    `by_key` the key that made the change; both are null if a command did.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="policy_events")
    level = models.CharField(max_length=10, choices=Policy.Level)
    key = models.ForeignKey(ApiKey, on_delete=models.SET_NULL, null=True, related_name="+")
    tag = models.CharField(max_length=LONGEST_TAG, blank=True, default="")
    old = models.JSONField(null=True)
    new = models.JSONField(null=True)
    by = models.ForeignKey(
        User, on_delete=models.SET_NULL, null=True, related_name="+", db_index=False, db_constraint=False
    )
    by_key = models.ForeignKey(
        ApiKey, on_delete=models.SET_NULL, null=True, related_name="+", db_index=False, db_constraint=False
    )
    created_at = models.DateTimeField()

    class Meta:
        ordering: ClassVar = ["-created_at", "-id"]

    def __str__(self) -> str:
        return f"{self.level} {self.tag or self.key_id or ''}".rstrip()
