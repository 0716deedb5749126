"""Usage added up by day (DailyUsage), and how far each account's records are in it (UsageWatermark).

The invariant: an account's rows are the sums of exactly its records with `created_at <= rolled_until`.
`billing.rollups` writes both in one transaction; `billing.usage_statistics` adds the records behind the watermark, the
raw tail. docs/growth.md says why.
"""

from typing import ClassVar
from uuid import UUID

from django.db import models
from django.db.models import Q

from accounts.models import Account, ApiKey
from catalogue.carbon import FOOTPRINT_PLACES
from gateway.money import ExactDecimalField, MoneyField

NO_ALIAS = UUID(int=0)  # in place of null, which a unique constraint would let in many times


class UsageWatermark(models.Model):
    """How far an account's records are rolled up. The row that whoever rolls them up locks."""

    account = models.OneToOneField(Account, on_delete=models.PROTECT, primary_key=True, related_name="+")
    rolled_until = models.DateTimeField()
    # Ledger entries known to lie behind: the wallet's seq less this is about what the raw tail holds, without counting.
    entries = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.account_id}: {self.rolled_until:%Y-%m-%d %H:%M:%S}"


class DailyUsage(models.Model):
    """One UTC day of one account, key, alias, route and endpoint. A sum covers the requests that know its figure.

    `cost` is in the account's currency; `priced` requests have it, and `cost_eur`. Absent is not zero: a figure that no
    request knew is a sum of zero beside a count of zero.
    """

    day = models.DateField()
    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="+", db_index=False)
    key = models.ForeignKey(ApiKey, on_delete=models.PROTECT, related_name="+", db_index=False)
    alias_id = models.UUIDField(default=NO_ALIAS)
    provider = models.CharField(max_length=100)
    model = models.CharField(max_length=255)
    region = models.CharField(max_length=16)
    endpoint = models.CharField(max_length=12)

    requests = models.BigIntegerField()
    prompt_tokens = models.BigIntegerField()
    completion_tokens = models.BigIntegerField()
    interrupted = models.BigIntegerField()
    estimated = models.BigIntegerField()
    priced = models.BigIntegerField()
    cost = MoneyField()
    cost_eur = MoneyField()
    energy_known = models.BigIntegerField()
    energy_wh = ExactDecimalField(places=FOOTPRINT_PLACES)
    carbon_known = models.BigIntegerField()
    carbon_gco2e = ExactDecimalField(places=FOOTPRINT_PLACES)

    class Meta:
        constraints: ClassVar = [
            # Begins with what an account's statistics ask for, and so is their index too.
            models.UniqueConstraint(
                fields=["account", "day", "key", "alias_id", "provider", "model", "region", "endpoint"],
                name="one_row_of_usage_per_day_and_group",
            ),
            models.CheckConstraint(
                condition=Q(requests__gt=0, priced__gte=0, energy_known__gte=0, carbon_known__gte=0),
                name="daily_usage_counts_something",
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["key", "day"], name="daily_usage_by_key"),
            models.Index(fields=["alias_id", "day"], name="daily_usage_by_alias", condition=~Q(alias_id=NO_ALIAS)),
        ]

    def __str__(self) -> str:
        return f"{self.day} {self.provider}/{self.model}/{self.region}: {self.requests}"
