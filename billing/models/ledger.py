"""Defines the ledger: wallets and their entries.

A wallet's balance is always the sum of its ledger entries, and its seq is their number. Entries are only ever added;
triggers of the database, which a migration makes, refuse to update or delete them.
"""

from typing import Any, ClassVar, NoReturn

from django.db import models
from django.db.models import Q

from accounts.models import Account
from gateway.money import MoneyField, plain

from .generation import Generation


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
    """Refuses updates and deletions: entries are only read, and created by `billing.ledger`."""

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
