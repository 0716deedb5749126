"""Defines policies."""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from gateway.ids import uuid7

from .accounts import Account
from .keys import LONGEST_TAG, ApiKey


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
