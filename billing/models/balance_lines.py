from typing import ClassVar

from django.db import models
from django.db.models import Q

from accounts.models import Account
from gateway.ids import uuid7
from gateway.money import MoneyField


class BalanceLine(models.Model):
    """Holds a low balance that owners want to be told of, and records when the balance last fell to it.

    The entry that takes the balance from above the amount to it or below sets `crossed_at` and `balance` and clears
    `told_at`, in its own transaction. `told_at` is set again once the notices have been written.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="+", db_index=False)
    amount = MoneyField()
    balance = MoneyField(null=True, help_text="After the entry that crossed the line.")
    crossed_at = models.DateTimeField(null=True)
    told_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["account", "amount"], name="one_line_for_an_amount_of_the_balance")
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["crossed_at"], condition=Q(crossed_at__isnull=False, told_at=None), name="untold_balance_lines"
            )
        ]

    def __str__(self) -> str:
        return f"{self.account_id}: {self.amount}"
