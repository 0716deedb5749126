"""Defines webhooks and what is sent to them."""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from gateway.ids import uuid7

from .accounts import Account

LONGEST_URL = 2000


class Webhook(models.Model):
    """Holds an address of an account's own, to which the gateway posts what happens (docs/webhooks.md).

    `events` are patterns of types, such as `budget.*`. `secret` is encrypted (`gateway.encryption`); it signs what is
    sent. `disabled_reason` is empty if a person or a key disabled the webhook, and says why the gateway did.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="webhooks")
    url = models.CharField(max_length=LONGEST_URL)
    events = models.JSONField()
    secret = models.TextField()
    created_at = models.DateTimeField(auto_now_add=True)
    disabled_at = models.DateTimeField(null=True)
    disabled_reason = models.CharField(max_length=200, blank=True)
    failing_since = models.DateTimeField(null=True)  # the first failure since the last success

    class Meta:
        ordering: ClassVar = ["-id"]

    def __str__(self) -> str:
        return f"{self.account_id}: {self.id}"


class WebhookDelivery(models.Model):
    """Holds one event for one webhook, and the attempts to deliver it.

    `body` is the JSON text that is signed and sent. `attempts` are the newest ones, as objects of `at`, `status` and
    `error`. `failures` counts those since it was last asked for, and chooses the next pause. `next_attempt_at` is null
    once the event has been delivered or given up.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    webhook = models.ForeignKey(Webhook, on_delete=models.CASCADE, related_name="deliveries", db_index=False)
    event_id = models.CharField(max_length=40)
    type = models.CharField(max_length=40)
    body = models.TextField()
    created_at = models.DateTimeField()
    attempts = models.JSONField(default=list)
    failures = models.PositiveSmallIntegerField(default=0)
    next_attempt_at = models.DateTimeField(null=True)
    delivered_at = models.DateTimeField(null=True)
    claimed_at = models.DateTimeField(null=True)  # by the process that sends it

    class Meta:
        ordering: ClassVar = ["-id"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["webhook", "event_id"], name="one_delivery_of_an_event_to_a_webhook")
        ]
        indexes: ClassVar = [
            models.Index(fields=["webhook", "-id"], name="deliveries_by_webhook"),
            models.Index(
                fields=["next_attempt_at"], condition=Q(next_attempt_at__isnull=False), name="due_webhook_deliveries"
            ),
            models.Index(fields=["created_at"], condition=Q(next_attempt_at=None), name="ended_webhook_deliveries"),
        ]

    def __str__(self) -> str:
        return f"{self.type} {self.event_id}"
