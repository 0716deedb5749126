from typing import ClassVar

from django.db import models

from accounts.models import Account, User
from gateway.ids import uuid7


class Notice(models.Model):
    """Records a mail to a person about an event, sent or due. `subject` is the id of what it is about.

    That is the account (EMPTY, PACE), a BalanceLine (LOW), a BudgetAlert (BUDGET), a key, a suspension or a webhook.
    """

    class Kind(models.TextChoices):
        """Lists the events."""

        LOW = "low", "balance is low"
        PACE = "pace", "balance lasts a week"
        EMPTY = "empty", "no credit left"
        BUDGET = "budget", "budget is spent in part"
        EXPIRY = "expiry", "key expires"
        SUSPENDED = "suspended", "account is suspended"
        LIFTED = "lifted", "suspension is lifted"
        WEBHOOK = "webhook", "webhook is disabled"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    kind = models.CharField(max_length=10, choices=Kind)
    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="+")
    person = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    subject = models.UUIDField()
    raised_at = models.DateTimeField()
    claimed_at = models.DateTimeField(null=True)  # by the worker that sends it
    sent_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["kind", "subject", "person"], name="one_notice_of_an_event_to_a_person")
        ]

    def __str__(self) -> str:
        return f"{self.account_id}: {self.kind}"
