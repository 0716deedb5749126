"""Defines tables of billing: the ledger (Wallet, LedgerEntry) and the sums of the records by day (DailyUsage).

Other tables are defined in `ledger.records`, `usage.request_failures` and `notices`.

A wallet's balance is always the sum of its ledger entries, and its seq is their number. Entries are only ever added;
the database itself refuses to update or delete them (migration 0002).

An account's DailyUsage always sums up exactly its records with `created_at <= rolled_until` of its UsageWatermark.
docs/growth.md explains why.
"""

from typing import Any, ClassVar, NoReturn
from uuid import UUID

from django.db import models
from django.db.models import Q

from accounts.models import Account, ApiKey
from catalogue.pricing import FOOTPRINT_PLACES
from gateway.money import ExactDecimalField, MoneyField, plain

from . import notices
from .ledger.records import (
    FLAGS,
    FROZEN,
    IMPLAUSIBLE_USAGE,
    MALFORMED_EVENT,
    ZERO_USAGE,
    Checkpoint,
    FrozenColumns,
    FrozenTerms,
    Generation,
    content_id,
)
from .usage import request_failures

__all__ = [
    "FLAGS",
    "FROZEN",
    "IMPLAUSIBLE_USAGE",
    "MALFORMED_EVENT",
    "NO_ALIAS",
    "ZERO_USAGE",
    "Checkpoint",
    "DailyUsage",
    "FrozenColumns",
    "FrozenTerms",
    "Generation",
    "LedgerEntry",
    "OverdraftAlert",
    "UsageWatermark",
    "Wallet",
    "content_id",
    "notices",
    "request_failures",
]

_OF_A_DAY = ["account", "day", "key", "alias_id", "provider", "model", "region", "endpoint", "energy_source"]
NO_ALIAS = UUID(int=0)  # instead of null, since a unique constraint allows any number of nulls


class Wallet(models.Model):
    """Holds an account's balance and the sequence number of its last ledger entry. Settlements lock this row."""

    account = models.OneToOneField(Account, on_delete=models.PROTECT, primary_key=True)
    balance = MoneyField(default=0, editable=False)
    seq = models.BigIntegerField(default=0, editable=False)

    class Meta:
        constraints: ClassVar = [models.CheckConstraint(condition=Q(seq__gte=0), name="wallet_seq_not_negative")]

    def __str__(self) -> str:
        return f"{self.account}: {self.balance}"


class ImmutableRow(TypeError):
    """A ledger entry cannot be changed or removed. A mistake is undone by a second entry."""


class LedgerQuerySet(models.QuerySet["LedgerEntry"]):
    """Refuses updates and deletions: entries are only read, and created by `billing.ledger.entries`."""

    def update(self, **kwargs: Any) -> NoReturn:
        raise ImmutableRow("Ledger entries are never changed.")

    def delete(self) -> NoReturn:
        raise ImmutableRow("Ledger entries are never removed.")


class LedgerEntry(models.Model):
    """Records one change of an account's balance: a grant, a correction, or the usage of one generation."""

    class Kind(models.TextChoices):
        """Lists the reasons for a change of balance."""

        GRANT = "grant", "grant"
        CORRECTION = "correction", "correction"
        USAGE = "usage", "usage"

    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="ledger", db_index=False)
    seq = models.BigIntegerField()
    kind = models.CharField(max_length=10, choices=Kind)
    amount = MoneyField()
    balance_after = MoneyField()
    generation = models.OneToOneField(Generation, on_delete=models.PROTECT, null=True, related_name="ledger_entry")
    reference = models.CharField(max_length=200, null=True)  # noqa: DJ001  # null for usage, so that it stays unique
    reason = models.TextField(null=True)  # noqa: DJ001  # staff's note on credit; members see the reference
    created_at = models.DateTimeField()

    objects = LedgerQuerySet.as_manager()

    class Meta:
        ordering: ClassVar = ["account", "seq"]
        verbose_name_plural = "ledger entries"
        indexes: ClassVar = [
            # Entries with a reference are few: both indexes stay small, and no settlement writes to them.
            models.Index(fields=["account", "seq"], name="ledger_credit_by_account", condition=~Q(reference=None)),
            models.Index(fields=["id"], name="ledger_credit", condition=~Q(reference=None)),
        ]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["account", "seq"], name="ledger_seq_per_account"),
            models.UniqueConstraint(fields=["account", "reference"], name="one_entry_per_reference"),
            models.CheckConstraint(
                condition=Q(kind="usage", generation__isnull=False, reference=None, amount__lte=0)
                | Q(kind="grant", generation=None, reference__isnull=False, amount__gt=0)
                | Q(kind="correction", generation=None, reference__isnull=False),
                name="ledger_entry_fits_its_kind",
            ),
            models.CheckConstraint(condition=Q(seq__gt=0), name="ledger_seq_from_one"),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} of {plain(self.amount)}, entry {self.seq} of account {self.account_id}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        if not self._state.adding:
            raise ImmutableRow("Ledger entries are never changed.")
        super().save(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise ImmutableRow("Ledger entries are never removed.")


class OverdraftAlert(models.Model):
    """Records that staff were alerted to an account far below zero. It is removed once the balance has recovered."""

    account = models.OneToOneField(
        Account, on_delete=models.CASCADE, primary_key=True, related_name="overdraft_alert", editable=False
    )
    raised_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.account_id}: {self.raised_at:%Y-%m-%d %H:%M}"


class UsageWatermark(models.Model):
    """Records how far an account's records are rolled up. A process that rolls them up locks this row."""

    account = models.OneToOneField(Account, on_delete=models.PROTECT, primary_key=True, related_name="usage_watermark")
    rolled_until = models.DateTimeField()
    # Ledger entries known to be rolled up: the wallet's seq less this is roughly the length of the tail.
    entries = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.account_id}: {self.rolled_until:%Y-%m-%d %H:%M:%S}"


class DailyUsage(models.Model):
    """Sums up one UTC day of one account, key, alias, route, endpoint and source of energy.

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
    # These are zero in days that were rolled up before the columns existed, and so are those below.
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

    class Meta:
        constraints: ClassVar = [
            # The first columns are those that an account's statistics filter by, so this is their index too.
            models.UniqueConstraint(fields=_OF_A_DAY, name="one_row_of_usage_per_day_group_and_source"),
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
