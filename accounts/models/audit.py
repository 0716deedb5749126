"""Defines the audit log."""

from typing import ClassVar

from django.db import models

from gateway.ids import uuid7

from ..actions import Action
from .accounts import Account


class AuditEvent(models.Model):
    """Records one action on an account (docs/management.md#audit-log).

    The database refuses to change it, and to remove it before its account is closed.

    People are stored by their ids only, so that a person can be forgotten; their addresses are looked up when an event
    is shown. `old` and `new` are what the action replaced and what it set, as JSON; null if that does not apply.
    """

    class ActorKind(models.TextChoices):
        """Lists who may act. `system` is a command or the gateway itself."""

        MEMBER = "member", "member"
        STAFF = "staff", "staff"
        KEY = "key", "key"
        OPERATOR_KEY = "operator_key", "operator key"
        SYSTEM = "system", "system"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="audit_events", db_index=False)
    created_at = models.DateTimeField()
    action = models.CharField(max_length=40, choices=Action)
    actor_kind = models.CharField(max_length=12, choices=ActorKind)
    actor_id = models.CharField(max_length=36, blank=True)
    actor_name = models.CharField(max_length=200, blank=True)
    object_kind = models.CharField(max_length=20)
    object_id = models.CharField(max_length=65)
    object_name = models.CharField(max_length=200, blank=True)
    old = models.JSONField(null=True)
    new = models.JSONField(null=True)
    address = models.GenericIPAddressField(null=True)
    request_id = models.CharField(max_length=36, blank=True)

    class Meta:
        ordering: ClassVar = ["-id"]
        indexes: ClassVar = [
            models.Index(fields=["account", "-id"], name="audit_by_account"),
            models.Index(fields=["account", "action", "-id"], name="audit_by_action"),
        ]

    def __str__(self) -> str:
        return f"{self.action} {self.object_kind} {self.object_name or self.object_id}"
