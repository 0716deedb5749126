"""Defines an account's own names for routes, and their history."""

from typing import ClassVar

from django.db import models
from django.db.models import Q, Value

from accounts.models import Account, ApiKey, User
from gateway.ids import uuid7


class Alias(models.Model):
    """Gives a pinned route a name of the account's own.

    The target is stored as text, not as a foreign key: each request looks up the route that the text names.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="aliases")
    name = models.CharField(max_length=64)
    provider = models.CharField(max_length=100)
    canonical_id = models.CharField(max_length=255)
    locode = models.CharField(max_length=16)
    # What is tried in this order if the target fails: ids of routes with four segments, and `alias/…` names.
    fallbacks = models.JSONField(default=list, db_default=Value([], models.JSONField()))
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        ordering: ClassVar = ["name"]
        verbose_name_plural = "aliases"
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["account", "name"], name="alias_name_per_account"),
            models.CheckConstraint(condition=Q(name__regex=r"^[a-z0-9][a-z0-9_-]{0,63}$"), name="alias_name_is_valid"),
        ]

    def __str__(self) -> str:
        return self.full_name

    @property
    def full_name(self) -> str:
        return f"alias/{self.name}"

    @property
    def target(self) -> str:
        return f"{self.provider}/{self.canonical_id}/{self.locode}"


class AliasEvent(models.Model):
    """Records one change of an alias, and stays when the alias is deleted. Targets are ids of four segments."""

    class Type(models.TextChoices):
        """Lists the kinds of changes."""

        CREATED = "created", "created"
        RENAMED = "renamed", "renamed"
        REPOINTED = "repointed", "target changed"
        FALLBACKS = "fallbacks", "fallbacks changed"
        DELETED = "deleted", "deleted"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="alias_events")
    alias_id = models.UUIDField()
    event_type = models.CharField(max_length=10, choices=Type)
    old_name = models.CharField(max_length=64, null=True)  # noqa: DJ001  # null means no value, as in the API
    new_name = models.CharField(max_length=64, null=True)  # noqa: DJ001
    old_target = models.CharField(max_length=400, null=True)  # noqa: DJ001
    new_target = models.CharField(max_length=400, null=True)  # noqa: DJ001
    old_fallbacks = models.JSONField(null=True)
    new_fallbacks = models.JSONField(null=True)
    # The author: a person on the pages, or a key of the API. Both are null in old events, which did not record it.
    by = models.ForeignKey(
        User, on_delete=models.SET_NULL, null=True, related_name="+", db_index=False, db_constraint=False
    )
    by_key = models.ForeignKey(
        ApiKey, on_delete=models.SET_NULL, null=True, related_name="+", db_index=False, db_constraint=False
    )
    created_at = models.DateTimeField()

    class Meta:
        ordering: ClassVar = ["-created_at", "-id"]
        indexes: ClassVar = [models.Index(fields=["alias_id", "-created_at", "-id"], name="alias_events_newest")]

    def __str__(self) -> str:
        return f"{self.event_type} {self.new_name or self.old_name}"
