"""Books the grants and corrections that staff make. A reference is booked once on each account."""

import uuid
from dataclasses import dataclass
from decimal import Decimal

from django.db import transaction
from django.utils import timezone

from accounts import audit
from accounts.actions import Action
from accounts.audit import Subject
from gateway.money import LossyValueError, plain

from ..models import LedgerEntry, Wallet
from .booking import append_entry

MAX_REFERENCE_LENGTH = 200


@dataclass(frozen=True, slots=True)
class BookedCredit:
    """Holds the account's balance after the call.

    `repeated` means that the reference had been booked before, so that this call has booked nothing.
    """

    balance: Decimal
    repeated: bool


class InvalidAmount(ValueError):
    """The amount is zero, negative for a grant, or not a number, or it or the new balance does not fit its column."""


class InvalidReference(ValueError):
    """The reference is empty, too long or not printable."""


class ReferenceConflict(ValueError):
    """The reference was used on this account before, for another amount or kind of entry."""


def grant(account_id: uuid.UUID, amount: Decimal, reference: str, *, reason: str | None = None) -> BookedCredit:
    """Adds credit in the account's currency. Members see the reference; only staff see the reason.

    Raises InvalidAmount, InvalidReference and ReferenceConflict.
    """
    if not amount.is_finite() or amount <= 0:
        raise InvalidAmount("A grant is an amount above zero.")
    return _book_reference(
        account_id, LedgerEntry(kind=LedgerEntry.Kind.GRANT, amount=amount, reference=reference, reason=reason)
    )


def correct(account_id: uuid.UUID, amount: Decimal, reference: str, *, reason: str | None = None) -> BookedCredit:
    """Books a correction, which may be negative. Takes a reason and raises errors as `grant` does."""
    if not amount.is_finite() or amount == 0:
        raise InvalidAmount("A correction is an amount other than zero.")
    return _book_reference(
        account_id, LedgerEntry(kind=LedgerEntry.Kind.CORRECTION, amount=amount, reference=reference, reason=reason)
    )


def _book_reference(account_id: uuid.UUID, entry: LedgerEntry) -> BookedCredit:
    reference = entry.reference
    if (
        reference is None
        or not reference.strip()
        or len(reference) > MAX_REFERENCE_LENGTH
        or not reference.isprintable()
    ):
        raise InvalidReference(f"A reference is 1 to {MAX_REFERENCE_LENGTH} printable characters, not only spaces.")
    with transaction.atomic():
        wallet = Wallet.objects.select_for_update(no_key=True).get(pk=account_id)
        booked = LedgerEntry.objects.filter(account_id=account_id, reference=reference).first()
        if booked is not None:
            if (booked.kind, booked.amount) != (entry.kind, entry.amount):
                raise ReferenceConflict(
                    f"Reference {reference!r} is already recorded as a {booked.kind} of {plain(booked.amount)}."
                )
            return BookedCredit(wallet.balance, repeated=True)
        entry.created_at = timezone.now()
        try:
            append_entry(wallet, entry, "default")
        except LossyValueError as error:
            raise InvalidAmount(str(error)) from None
        is_grant = entry.kind == LedgerEntry.Kind.GRANT
        audit.record(
            account_id,
            Action.CREDIT_GRANTED if is_grant else Action.CREDIT_CORRECTED,
            Subject("ledger entry", str(entry.seq), reference),
            new={"amount": plain(entry.amount), "reference": reference},
        )
    return BookedCredit(wallet.balance, repeated=False)
