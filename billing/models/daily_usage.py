"""Defines the sums of the records by day.

An account's DailyUsage always sums up exactly its records with `created_at <= rolled_until` of its UsageWatermark.
docs/growth.md explains why.
"""

from typing import ClassVar
from uuid import UUID

from django.db import models
from django.db.models import Q

from accounts.models import LONGEST_TAG, MOST_TAGS, Account, ApiKey
from catalogue.pricing import FOOTPRINT_PLACES
from gateway.money import ExactDecimalField, MoneyField

_OF_A_DAY = ["account", "day", "key", "alias_id", "provider", "model", "region", "endpoint", "energy_source", "tags"]
NO_ALIAS = UUID(int=0)  # instead of null, since a unique constraint allows any number of nulls


class UsageWatermark(models.Model):
    """Records how far an account's records are rolled up. A process that rolls them up locks this row."""

    account = models.OneToOneField(Account, on_delete=models.PROTECT, primary_key=True, related_name="usage_watermark")
    rolled_until = models.DateTimeField()
    # How far they are counted in RouteHour. It stays when `rolled_until` is set back, so that nothing is counted twice.
    routes_until = models.DateTimeField(null=True)
    # Ledger entries known to be rolled up: the wallet's seq less this is roughly the length of the tail.
    entries = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.account_id}: {self.rolled_until:%Y-%m-%d %H:%M:%S}"


class DailyUsage(models.Model):
    """Sums up one UTC day of one account, key, alias, route, endpoint, source of energy and set of tags.

    Sums cover the requests that have the figure, whose number is in another column: `priced` requests have `cost`, in
    the account's currency, and `cost_eur`. A sum of zero with a count of zero means that the figure is unknown.
    """

    day = models.DateField()
    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="+", db_index=False)
    key = models.ForeignKey(ApiKey, on_delete=models.PROTECT, related_name="+", db_index=False)
    alias_id = models.UUIDField(default=NO_ALIAS)
    provider = models.CharField(max_length=100)
    model = models.CharField(max_length=255)
    region = models.CharField(max_length=16)
    endpoint = models.CharField(max_length=12)
    energy_source = models.CharField(max_length=10, blank=True, default="", db_default="")  # empty: unknown
    # The tags of the records, as they have them; empty: none.
    tags = models.CharField(max_length=MOST_TAGS * (LONGEST_TAG + 1), blank=True, default="", db_default="")

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
    # These columns and all below are zero in days that were rolled up before they existed.
    duration_known = models.BigIntegerField(default=0, db_default=0)
    duration_ms = models.BigIntegerField(default=0, db_default=0)
    first_token_known = models.BigIntegerField(default=0, db_default=0)
    first_token_ms = models.BigIntegerField(default=0, db_default=0)
    # `measured` counts the requests whose provider measured their energy; `energy_wh_bounded` sums the energy of those
    # that have bounds.
    measured = models.BigIntegerField(default=0, db_default=0)
    bounds_known = models.BigIntegerField(default=0, db_default=0)
    energy_wh_low = ExactDecimalField(places=FOOTPRINT_PLACES, default=0, db_default=0)
    energy_wh_bounded = ExactDecimalField(places=FOOTPRINT_PLACES, default=0, db_default=0)
    energy_wh_high = ExactDecimalField(places=FOOTPRINT_PLACES, default=0, db_default=0)
    embodied_known = models.BigIntegerField(default=0, db_default=0)
    embodied_gco2e = ExactDecimalField(places=FOOTPRINT_PLACES, default=0, db_default=0)
    cache_read_known = models.BigIntegerField(default=0, db_default=0)
    cache_read_tokens = models.BigIntegerField(default=0, db_default=0)
    # Histograms (`billing.usage.times`). They are null in rows that are older than these columns. In a row that a
    # version without them has added to, there are fewer latencies than requests.
    latency = models.BinaryField(null=True)
    first_token = models.BinaryField(null=True)
    per_thousand_tokens = models.BinaryField(null=True)

    class Meta:
        constraints: ClassVar = [
            # The first columns are those that an account's statistics filter by, so this is their index too.
            models.UniqueConstraint(fields=_OF_A_DAY, name="one_row_of_usage_per_day_group_source_and_tags"),
            models.CheckConstraint(
                condition=Q(requests__gt=0, priced__gte=0, energy_known__gte=0, carbon_known__gte=0),
                name="daily_usage_counts_something",
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["key", "day"], name="daily_usage_by_key"),
            models.Index(fields=["alias_id", "day"], name="daily_usage_by_alias", condition=~Q(alias_id=NO_ALIAS)),
            models.Index(fields=["day"], name="daily_usage_by_day"),  # for all accounts, on the admin's first page
        ]

    def __str__(self) -> str:
        return f"{self.day} {self.provider}/{self.model}/{self.region}: {self.requests}"
