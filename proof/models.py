"""Defines the tables of the transparency log (docs/proof.md).

Leaves are only ever added, and tiles only grow. What was once signed is never changed.
"""

from typing import ClassVar

from django.db import models

from accounts.models import Account
from billing.models import LedgerEntry


class Leaf(models.Model):
    """Holds a ledger entry as the log has it: canonical JSON (RFC 8785), of which only the hash is public."""

    index = models.BigIntegerField(primary_key=True)
    entry = models.OneToOneField(LedgerEntry, on_delete=models.PROTECT, related_name="leaf", db_constraint=False)
    content = models.TextField()

    class Meta:
        verbose_name_plural = "leaves"

    def __str__(self) -> str:
        return f"leaf {self.index}"


class Tile(models.Model):
    """Holds up to 256 hashes of a level of the tree (`merkle`). A tile that is not full grows at its end."""

    level = models.PositiveSmallIntegerField()
    number = models.BigIntegerField()
    hashes = models.BinaryField(max_length=256 * 32)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["level", "number"], name="one_tile_of_a_level")]

    def __str__(self) -> str:
        return f"tile {self.level}/{self.number}"


class LoggedAccount(models.Model):
    """Records how far an account's ledger is in the log: the number of the last entry, and the hash of its leaf."""

    account = models.OneToOneField(Account, on_delete=models.PROTECT, primary_key=True, related_name="logged")
    seq = models.BigIntegerField()
    leaf_hash = models.BinaryField(max_length=32)

    def __str__(self) -> str:
        return f"{self.account_id}: {self.seq}"


class LogCheckpoint(models.Model):
    """Holds a head of the tree. It is stored before it is signed (`note`), and signed before it is published.

    Published is the one with the newest `published_at`; those before it are removed.
    """

    size = models.BigIntegerField(primary_key=True)
    root = models.BinaryField(max_length=32)
    note = models.TextField(blank=True, help_text="The signed note; empty until it is signed.")
    offered_at = models.DateTimeField(null=True, help_text="When a process last took it to the witnesses.")
    published_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"checkpoint of {self.size} leaves"


class LogWitness(models.Model):
    """Records the size of the tree that a witness has last cosigned."""

    key = models.CharField(primary_key=True, max_length=255, help_text="The name and id of its key.")
    size = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return self.key
