from typing import ClassVar

from django.db import models
from django.db.models import Q

from accounts.models import LONGEST_TAG, Account, ApiKey, Policy
from gateway.ids import uuid7
from gateway.money import MoneyField


class Spending(models.Model):
    """Adds up what an account, a key or the keys with a tag have spent, if their policy has a budget.

    Settlements add to it in their own statement, under the wallet's lock. `in_day` is what was spent on `day`, the UTC
    day of the last settlement; `in_week` and `in_month` from the first day of its week or month up to it. On a later
    day, sums of a period that has ended count as zero. `lines` are the amounts at which an alert is due: objects of
    `period`, `percent` and `units`.
    """

    policy = models.OneToOneField(Policy, on_delete=models.CASCADE, primary_key=True, related_name="spending")
    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="+")
    key = models.ForeignKey(ApiKey, on_delete=models.PROTECT, null=True, related_name="+", db_index=False)
    tag = models.CharField(max_length=LONGEST_TAG, blank=True, default="")
    day = models.DateField()
    in_day = MoneyField()
    in_week = MoneyField()
    in_month = MoneyField()
    in_total = MoneyField()
    lines = models.JSONField(default=list)

    def __str__(self) -> str:
        return f"{self.policy_id}: {self.in_total} until {self.day}"


class BudgetAlert(models.Model):
    """Records that what was spent of a budget has crossed a line in a period, for the mail to the account's owners.

    The settlement that crosses the line writes it. `begins` is the first day of the period, null for `total`.
    `told_at` is null until the notices to the owners have been written.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    policy = models.ForeignKey(Policy, on_delete=models.CASCADE, related_name="alerts", db_index=False)
    period = models.CharField(max_length=10)
    begins = models.DateField()
    percent = models.PositiveSmallIntegerField()
    amount = MoneyField(help_text="The budget.")
    spent = MoneyField()
    crossed_at = models.DateTimeField()
    told_at = models.DateTimeField(null=True)

    class Meta:
        ordering: ClassVar = ["-crossed_at"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["policy", "period", "begins", "percent"], name="one_alert_per_line_and_period"
            )
        ]
        indexes: ClassVar = [
            models.Index(fields=["crossed_at"], condition=Q(told_at=None), name="untold_budget_alerts")
        ]

    def __str__(self) -> str:
        return f"{self.percent} % of {self.period} from {self.begins}"

    @property
    def whose(self) -> str:
        """Says whose budget it is, as in "the budget of key hr"."""
        policy = self.policy
        if policy.key is not None:
            return f"key {policy.key.name}"
        return f"tag {policy.tag}" if policy.tag else "the account"
