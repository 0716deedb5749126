"""Moving money: `settle` debits, `grant` and `correct` credit. The only code that writes the ledger.

Each move locks the account's wallet first, so that the entries' sequence, their times and the running balance agree.
A balance may fall below zero by one request: usage is known only after it was served.
"""

import uuid
from dataclasses import dataclass
from decimal import Decimal

from django.db import connections, transaction
from django.utils import timezone

from catalogue import quota
from gateway.money import LossyValueError, plain

from . import settle_statement
from .models import Checkpoint, Generation, LedgerEntry, Wallet
from .settle_statement import QuotaUse, Settlement, quota_use_of

MAX_REFERENCE_LENGTH = 200


@dataclass(frozen=True, slots=True)
class Credit:
    """The outcome of a grant: the balance now, and whether this very reference had been booked before."""

    balance: Decimal
    repeated: bool


class InvalidAmount(ValueError):
    """Not positive where it must be, zero, or more precise than money is kept."""


class InvalidReference(ValueError):
    """Empty, too long, or not printable."""


class ReferenceConflict(ValueError):
    """The reference was used on this account before, for another amount or kind."""


def settle(
    generation: Generation,
    *,
    quota_region: int | None = None,
    has_checkpoint: bool = False,
    using: str = "settlement",
) -> Settlement:
    """Records a generation and debits its cost, in one transaction. The first call decides; later ones change nothing.

    `generation` is complete but for `created_at` and `balance_after`, which are decided under the wallet's lock. A
    generation without a cost is recorded and debits nothing. `quota_region` is the route (Region) whose daily quota
    counts the tokens, on the UTC day of the settlement. `has_checkpoint` removes the stream's checkpoint in the same
    transaction. Idempotent by the generation's id: callers may race.
    """
    quota_use = quota_use_of(generation.total_tokens, quota_region)
    if connections[using].vendor == "postgresql":
        settled = settle_statement.execute(generation, using, quota_use, has_checkpoint=has_checkpoint)
    else:
        settled = _settle_in_transaction(generation, using, quota_use, has_checkpoint)
    return settled or _settled_before(generation.pk, using)


def _settled_before(generation_pk: uuid.UUID, using: str) -> Settlement:
    return Settlement(Generation.objects.using(using).only("balance_after").get(pk=generation_pk).balance_after)


def _settle_in_transaction(
    generation: Generation, using: str, quota_use: QuotaUse | None = None, has_checkpoint: bool = False
) -> Settlement | None:
    """SQLite's form: a short IMMEDIATE transaction holds the database's only write lock."""
    with transaction.atomic(using=using):
        if has_checkpoint:
            Checkpoint.objects.using(using).filter(pk=generation.pk).delete()
        wallet = Wallet.objects.using(using).get(pk=generation.account_id)
        if Generation.objects.using(using).filter(pk=generation.pk).exists():
            return None
        generation.created_at = timezone.now()
        generation.balance_after = None if generation.cost is None else wallet.balance - generation.cost
        generation.save(using=using, force_insert=True)
        if generation.cost is not None:
            entry = LedgerEntry(
                kind=LedgerEntry.Kind.USAGE,
                amount=-generation.cost,
                generation=generation,
                created_at=generation.created_at,
            )
            _append(wallet, entry, using)
        if quota_use is not None:
            quota.count(quota_use.region_id, quota_use.tokens, quota_use.day, shard=quota_use.shard, using=using)
    return Settlement(generation.balance_after)


def _append(wallet: Wallet, entry: LedgerEntry, using: str) -> None:
    """Moves a locked wallet by the entry's amount, and writes the entry as the wallet's next."""
    wallet.balance += entry.amount
    wallet.seq += 1
    wallet.save(using=using, update_fields=["balance", "seq"])
    entry.account_id, entry.seq, entry.balance_after = wallet.account_id, wallet.seq, wallet.balance
    entry.save(using=using, force_insert=True)


def grant(account_id: uuid.UUID, amount: Decimal, reference: str, *, reason: str | None = None) -> Credit:
    """Adds credit once per reference. Raises InvalidAmount, InvalidReference and ReferenceConflict.

    The reference is for the account's members to read, the reason for staff alone.
    """
    if not amount.is_finite() or amount <= 0:
        raise InvalidAmount("A grant is an amount above zero.")
    return _credit(
        account_id, LedgerEntry(kind=LedgerEntry.Kind.GRANT, amount=amount, reference=reference, reason=reason)
    )


def correct(account_id: uuid.UUID, amount: Decimal, reference: str, *, reason: str | None = None) -> Credit:
    """Books a correction, which may be negative, once per reference. Reads and raises as `grant`."""
    if not amount.is_finite() or amount == 0:
        raise InvalidAmount("A correction is an amount other than zero.")
    return _credit(
        account_id, LedgerEntry(kind=LedgerEntry.Kind.CORRECTION, amount=amount, reference=reference, reason=reason)
    )


def _credit(account_id: uuid.UUID, entry: LedgerEntry) -> Credit:
    reference = entry.reference
    if not reference or len(reference) > MAX_REFERENCE_LENGTH or not reference.isprintable():
        raise InvalidReference(f"A reference is 1 to {MAX_REFERENCE_LENGTH} printable characters.")
    with transaction.atomic():
        wallet = Wallet.objects.select_for_update(no_key=True).get(pk=account_id)
        booked = LedgerEntry.objects.filter(account_id=account_id, reference=reference).first()
        if booked is not None:
            if (booked.kind, booked.amount) != (entry.kind, entry.amount):
                raise ReferenceConflict(
                    f"Reference {reference!r} was booked before as a {booked.kind} of {plain(booked.amount)}."
                )
            return Credit(wallet.balance, repeated=True)
        entry.created_at = timezone.now()
        try:
            _append(wallet, entry, "default")
        except LossyValueError as error:
            raise InvalidAmount(str(error)) from None
    return Credit(wallet.balance, repeated=False)
