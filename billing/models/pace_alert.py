from django.db import models

from accounts.models import Account
from gateway.money import MoneyField


class PaceAlert(models.Model):
    """Holds an account's choice about the alert at seven days of its pace, and the balance that it was raised at.

    Accounts without a row have not switched the alert off, and none is raised.
    """

    account = models.OneToOneField(Account, on_delete=models.CASCADE, primary_key=True, related_name="pace_alert")
    is_off = models.BooleanField(default=False, db_default=False)
    balance = MoneyField(null=True, help_text="When the alert was raised; empty if none is.")

    def __str__(self) -> str:
        return f"{self.account_id}: {'off' if self.is_off else self.balance}"
