"""Books a request: writes its record, its ledger entry and the wallet's new balance in one transaction.

A balance may fall below zero by the cost of requests in flight: their usage is known only after they are served.
"""

import random
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from django.db import DataError, IntegrityError, OperationalError, connections, transaction
from django.utils import timezone

from catalogue.models import SHARDS
from catalogue.routing import quota
from gateway.db import writes
from gateway.db.pool import answering_within, release
from gateway.db.sessions import SETTLEMENT_SECONDS, Parameters
from gateway.db.writes import WriteQuery
from gateway.money import LossyValueError, from_units

from ..models import Checkpoint, FrozenTerms, Generation, LedgerEntry, Wallet
from . import balance_lines, spending
from .settling_statement import LOCK_WALLETS, QuotaUse, settling_statement
from .unsettled import COLUMNS, UnsettledGeneration, encoded, move_frozen_columns_to_terms

NUMBER_OUT_OF_RANGE = "22003"  # SQLSTATE
MICROSECONDS = 1_000_000
CROWDED_AFTER_SECONDS = 0.001  # a wallet is crowded once a settlement has waited for its lock this long
CROWDED_FOR_SECONDS = 10.0

# Wallets that several settlements wait for, and until when they count as such (time.monotonic). Their settlements are
# committed with synchronous_commit=off and flushed afterwards, so that the wallet's lock is released before the disk
# write. If the flush fails, the next try finds the record written and flushes again. See
# docs/growth.md#one-busy-account.
_crowded: dict[uuid.UUID, float] = {}


@dataclass(frozen=True, slots=True)
class Settlement:
    """Holds the result of a settlement. `balance` is None if the request has no cost or waits in the spool."""

    balance: Decimal | None
    wallet_wait_seconds: float | None = field(default=None, compare=False)  # None if it was not measured


def book(
    generation: Generation, *, quota_region: int | None = None, has_checkpoint: bool = False, using: str = "settlement"
) -> Settlement:
    """Writes an unsaved record, debits its cost, and removes its stream's checkpoint, in one transaction.

    It is idempotent by the generation's id: the first call decides, later ones change nothing, and callers may race.
    `created_at` and `balance_after` are set under the wallet's lock. `quota_region` is the id of the route (Region)
    whose daily quota counts the tokens, on the UTC day of the settlement.
    """
    # 1. Write the terms that the record refers to.
    write_new_terms(generation, using)
    # 2. Write the record and move the balance.
    quota_use = _quota_use(generation.total_tokens, quota_region)
    booked = _book_once(generation, using, quota_use, has_checkpoint=has_checkpoint)
    if booked is not None:
        return booked
    # 3. Nothing was written: read what an earlier call has written.
    before = Generation.objects.using(using).only("balance_after").filter(pk=generation.pk).first()
    if before is None:
        if generation.terms is not None:
            generation.terms._state.adding = True  # so that the next try writes them again
        raise OperationalError("nothing was booked: a primary that took over has lost the terms")
    # 4. Wait for the disk, because the earlier call may not have done so.
    writes.flush(using)
    return Settlement(before.balance_after)


def book_together(batch: Sequence[tuple[UnsettledGeneration, bool]]) -> list[Settlement | None]:
    """Books a batch of (request, has_checkpoint), sorted by account, in one transaction.

    Returns None for a request that was not written.
    """
    # 1. Write new terms, before any wallet is locked.
    for unsettled, _ in batch:
        terms = unsettled.terms.row
        if terms is not None and terms._state.adding:
            _write_terms_in_time(terms)
    # 2. Write the records and move the balances. Two batches cannot deadlock: the caller has sorted both by account, so
    # they lock wallets in the same order. A batch that counts against quotas locks all its wallets first, and then the
    # counters in their order.
    commits_early = any(_is_crowded(unsettled.figures.account_id) for unsettled, _ in batch)
    uses = [_quota_use(unsettled.figures.total_tokens, unsettled.terms.quota_region) for unsettled, _ in batch]
    order = sorted(range(len(batch)), key=lambda number: uses[number] or ())
    work = []
    for number in order:
        unsettled, has_checkpoint = batch[number]
        work.append(_statement_and_parameters(unsettled.parameters, uses[number], has_checkpoint, commits_early))
    locks_first = len(batch) > 1 and any(uses)
    if locks_first:
        accounts = ",".join({str(unsettled.figures.account_id) for unsettled, _ in batch})
        work.insert(0, (LOCK_WALLETS, [f"{{{accounts}}}".encode()]))
    rows = writes.execute_all("settlement", work, flushes=commits_early)
    # 3. Read the outcomes. The wait for all wallets counts as the wait for each.
    locked_microseconds = rows.pop(0)[0] if locks_first else 0
    by_number = dict(zip(order, rows, strict=True))
    return [
        _settlement_of_row(unsettled.figures.account_id, locked_microseconds, *by_number[number])
        for number, (unsettled, _) in enumerate(batch)
    ]


def write_new_terms(generation: Generation, using: str) -> None:
    """Writes the terms of an unsaved record if they are new.

    Call it outside any longer transaction: until that ends, other transactions with the same new terms would wait.
    """
    move_frozen_columns_to_terms(generation)
    if generation.terms is not None and generation.terms._state.adding:  # they may not be in the table yet
        _write_terms(generation.terms, using)


def _book_once(
    generation: Generation, using: str, quota_use: QuotaUse | None, *, has_checkpoint: bool
) -> Settlement | None:
    """Chooses between PostgreSQL's statement and SQLite's steps. Both return None if they have written nothing."""
    book = _book_by_statement if connections[using].vendor == "postgresql" else _book_in_steps
    return book(generation, using, quota_use, has_checkpoint=has_checkpoint)


def _book_by_statement(
    generation: Generation, using: str, quota_use: QuotaUse | None = None, *, has_checkpoint: bool = False
) -> Settlement | None:
    columns = [encoded(name, getattr(generation, name)) for name in COLUMNS]
    is_inside = connections[using].in_atomic_block  # the transaction is the caller's, and not ours to commit early
    commits_early = _is_crowded(generation.account_id) and not is_inside
    statement, parameters = _statement_and_parameters(columns, quota_use, has_checkpoint, commits_early)
    try:
        row = writes.execute(using, statement, parameters, flushes=commits_early)
    except DataError as error:
        if getattr(error.__cause__, "sqlstate", None) == NUMBER_OUT_OF_RANGE:
            raise LossyValueError("The balance after this settlement is out of range.") from error
        raise
    except IntegrityError:
        # Another call wrote the record after this statement began and before it locked the wallet.
        if is_inside or not Generation.objects.using(using).filter(pk=generation.pk).exists():
            raise
        return None
    return _settlement_of_row(generation.account_id, 0, *row)


def _book_in_steps(
    generation: Generation, using: str, quota_use: QuotaUse | None = None, *, has_checkpoint: bool = False
) -> Settlement | None:
    """Books with several statements. That is safe because SQLite lets one connection write at a time."""
    with transaction.atomic(using=using):
        # 1. Remove the stream's checkpoint.
        if has_checkpoint:
            Checkpoint.objects.using(using).filter(pk=generation.pk).delete()
        # 2. Read the balance, and leave all as it is if the request was booked before.
        wallet = Wallet.objects.using(using).get(pk=generation.account_id)
        if Generation.objects.using(using).filter(pk=generation.pk).exists():
            return None
        # 3. Write the record.
        generation.created_at = timezone.now()
        generation.balance_after = None if generation.cost is None else wallet.balance - generation.cost
        generation.save(using=using, force_insert=True)
        # 4. Debit the cost.
        if generation.cost is not None:
            usage = {"kind": LedgerEntry.Kind.USAGE, "amount": -generation.cost, "created_at": generation.created_at}
            append_entry(wallet, LedgerEntry(generation=generation, **usage), using)
        # 5. Add it to what is spent of budgets.
        spending.add(generation, using)
        # 6. Count the tokens against the route's daily quota.
        if quota_use is not None:
            quota.count(quota_use.region_id, quota_use.tokens, quota_use.day, shard=quota_use.shard, using=using)
    return Settlement(generation.balance_after)


def append_entry(wallet: Wallet, entry: LedgerEntry, using: str) -> None:
    """Adds the entry's amount to a locked wallet, and writes the entry as the wallet's next one."""
    before = wallet.balance
    wallet.balance += entry.amount
    wallet.seq += 1
    wallet.save(using=using, update_fields=["balance", "seq"])
    entry.account_id, entry.seq, entry.balance_after = wallet.account_id, wallet.seq, wallet.balance
    entry.save(using=using, force_insert=True)
    balance_lines.cross(wallet.account_id, before, wallet.balance, entry.created_at, using)


def _write_terms(terms: FrozenTerms, using: str) -> None:
    FrozenTerms.objects.using(using).bulk_create([terms], ignore_conflicts=True)


def _write_terms_in_time(terms: FrozenTerms) -> None:
    """Writes terms on Django's connection, and waits at most SETTLEMENT_SECONDS, like the worker's own sessions."""
    try:
        with answering_within(SETTLEMENT_SECONDS):
            _write_terms(terms, "settlement")
    finally:
        release("settlement")


def _statement_and_parameters(
    columns: list[bytes | None], quota_use: QuotaUse | None, has_checkpoint: bool, commits_early: bool
) -> tuple[WriteQuery, Parameters]:
    statement = settling_statement(
        counts_quota=quota_use is not None, has_checkpoint=has_checkpoint, commits_early=commits_early
    )
    return statement, [*columns, *[str(value).encode() for value in quota_use or ()]]


def _settlement_of_row(
    account_id: uuid.UUID,
    locked_microseconds: int,
    has_wallet: bool,
    was_written: bool,
    balance_units: int | None,
    waited_microseconds: int | None,
) -> Settlement | None:
    """Turns the statement's row into a Settlement. Returns None if the record exists or its terms are missing.

    Notes the wallet as crowded if the settlement has waited long for it.
    `locked_microseconds` are the microseconds that an earlier statement of the transaction took to lock the wallet.
    """
    if not has_wallet:
        raise Wallet.DoesNotExist(f"Account {account_id} has no wallet.")
    if not was_written:
        return None
    seconds = ((waited_microseconds or 0) + locked_microseconds) / MICROSECONDS
    if seconds > CROWDED_AFTER_SECONDS:
        _crowded[account_id] = time.monotonic() + CROWDED_FOR_SECONDS
    return Settlement(None if balance_units is None else from_units(balance_units), seconds)


def _is_crowded(account_id: uuid.UUID) -> bool:
    until = _crowded.get(account_id)
    if until is not None and until < time.monotonic():
        del _crowded[account_id]
        return False
    return until is not None


def _quota_use(total_tokens: int, region_id: int | None) -> QuotaUse | None:
    """Returns the tokens to count and a counter chosen at random, so that settlements seldom wait for the same row.

    Returns None if the route has no daily quota.
    """
    if region_id is None:
        return None
    shard = random.randrange(SHARDS)  # noqa: S311  # spreads load; needs no secrecy
    return QuotaUse(region_id, quota.day_of(timezone.now()), shard, min(total_tokens, quota.MOST_AT_ONCE))
