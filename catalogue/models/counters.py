"""Defines tables that count what the catalogue's use leaves: tokens of routes, outcomes and troubles of providers."""

from typing import ClassVar

from django.db import models
from django.db.models import Q

SHARDS = 16


class RouteDay(models.Model):
    """Counts a route's tokens of a UTC day, spread over shards.

    Without a foreign key, so that a settlement does not wait for a seeding.
    """

    region = models.ForeignKey("catalogue.Region", on_delete=models.DO_NOTHING, db_constraint=False, db_index=False)
    day = models.DateField()
    shard = models.PositiveSmallIntegerField()
    tokens = models.BigIntegerField()

    class Meta:
        constraints: ClassVar = [
            # The index serves reads of some routes on one day, and maintenance of everything before a day.
            models.UniqueConstraint(fields=["day", "region", "shard"], name="one_counter_per_route_day_and_shard"),
            models.CheckConstraint(condition=Q(shard__lt=SHARDS), name="route_day_shard_is_known"),
        ]

    def __str__(self) -> str:
        return f"{self.region_id} {self.day} #{self.shard}: {self.tokens}"


class ProviderMinute(models.Model):
    """Counts the calls to a provider in a minute, and the failed ones."""

    minute = models.DateTimeField()
    provider = models.CharField(max_length=100)  # the slug, not a foreign key: the provider may have been removed
    attempts = models.BigIntegerField()
    failures = models.BigIntegerField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["minute", "provider"], name="one_row_per_provider_and_minute")
        ]

    def __str__(self) -> str:
        return f"{self.provider} {self.minute:%H:%M}: {self.failures} of {self.attempts} failed"


class RouteHour(models.Model):
    """Sums up the requests of all accounts to a route in a UTC hour (docs/api.md#speed-and-success-of-a-route)."""

    # Without foreign keys, as RouteDay. The last two are histograms (`billing.usage.histograms`), in milliseconds.
    hour = models.DateTimeField(db_index=True)
    provider = models.CharField(max_length=100)
    model = models.CharField(max_length=255)
    region = models.CharField(max_length=16)
    served = models.BigIntegerField(default=0, db_default=0)
    failed = models.BigIntegerField(default=0, db_default=0)
    first_token = models.JSONField(default=dict)
    per_thousand_tokens = models.JSONField(default=dict)  # the time from the first to the last, for 1,000 output tokens

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["model", "provider", "region", "hour"], name="one_row_per_route_and_hour")
        ]

    def __str__(self) -> str:
        return f"{self.provider}/{self.model}/{self.region} {self.hour:%Y-%m-%d %H:%M}"


class ProviderFailure(models.Model):
    """Records a provider's last failure, with the message that the client got."""

    provider = models.CharField(primary_key=True, max_length=100)
    failed_at = models.DateTimeField()
    words = models.CharField(max_length=500)
    probed_at = models.DateTimeField(null=True)  # when a worker last took the probe of a provider that is down

    def __str__(self) -> str:
        return f"{self.provider} {self.failed_at:%Y-%m-%d %H:%M:%S}: {self.words}"


class ProviderOutage(models.Model):
    """Records that a provider is down and that webhooks have been told; removed once it is up again."""

    provider = models.CharField(primary_key=True, max_length=100)
    began_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.provider} {self.began_at:%Y-%m-%d %H:%M:%S}"


class ProviderTrouble(models.Model):
    """Records when a provider last refused the gateway itself, and when staff last got a mail about it."""

    provider = models.CharField(primary_key=True, max_length=100)
    words = models.CharField(max_length=100)
    seen_at = models.DateTimeField()
    told_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.provider} {self.words}"
