"""Books a request: writes its record, its ledger entry and the wallet's new balance in one transaction.

A balance may fall below zero by the cost of requests in flight: their usage is known only after they are served.
"""

import random
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from functools import cache
from typing import Any, NamedTuple

import psycopg
from django.db import DataError, IntegrityError, OperationalError, connections, transaction
from django.db.backends.utils import CursorWrapper
from django.utils import timezone

from catalogue.models import SHARDS, RouteDay
from catalogue.routing import quota
from gateway.db.sessions import Parameters, Sessions, Statement, integer
from gateway.money import LossyValueError, from_units

from ..models import Checkpoint, FrozenTerms, Generation, LedgerEntry, Wallet
from .entries import append
from .unsettled import COLUMNS, FROZEN_COLUMNS, Unsettled, encoded, set_apart

NUMBER_OUT_OF_RANGE = "22003"  # SQLSTATE
MICROSECONDS = 1_000_000
CROWDED_AFTER_SECONDS = 0.001  # a wallet is crowded once a settlement has waited for its lock this long
CROWDED_FOR_SECONDS = 10.0
_UNDER_LOCK = {
    "created_at": "clock_timestamp()",
    "balance_after": "CASE WHEN {cost} IS NOT NULL THEN moved.balance END",
}
_COUNT_QUOTA = f""", quota AS (
            INSERT INTO {RouteDay._meta.db_table} (region_id, day, shard, tokens)
            SELECT %(quota_region_id)s::bigint, %(quota_day)s::date, %(quota_shard)s::smallint,
                   %(quota_tokens)s::bigint
            FROM generation
            {quota.ADD_ON_CONFLICT}
        )"""  # noqa: S608  # the table of our own model
_REMOVE_CHECKPOINT = f""", checkpoint AS (
            DELETE FROM {Checkpoint._meta.db_table} WHERE id = %(id)s::uuid
        )"""  # noqa: S608

# Wallets that several settlements wait for, and until when they count as such (time.monotonic). They are committed with
# synchronous_commit=off and flushed afterwards, so that the wallet's lock is released before the disk write. If the
# flush fails, the next try finds the record written and flushes again. See docs/growth.md#one-busy-account.
_crowded: dict[uuid.UUID, float] = {}
_FLUSH = Statement(b"flush", b"SELECT pg_logical_emit_message(true, '', '')")


class QuotaUse(NamedTuple):
    """Holds the tokens that count against a route's daily quota, and names the counter that they are added to."""

    region_id: int
    day: date
    shard: int
    tokens: int


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
    keep_terms(generation, using)
    way = _book_by_statement if connections[using].vendor == "postgresql" else _book_by_models
    booked = way(generation, using, _quota_use(generation.total_tokens, quota_region), has_checkpoint)
    if booked is not None:
        return booked
    before = Generation.objects.using(using).only("balance_after").filter(pk=generation.pk).first()
    if before is None:
        if generation.terms is not None:
            generation.terms._state.adding = True  # so that the next try writes them again
        raise OperationalError("nothing was booked: a primary that took over has lost the terms")
    if connections[using].vendor == "postgresql":  # the call that wrote it may not have waited for the disk
        with connections[using].cursor() as cursor:
            cursor.execute(_FLUSH.sql.decode())
    return Settlement(before.balance_after)


def keep_terms(generation: Generation, using: str) -> None:
    """Writes the terms of an unsaved record if they are new.

    Call it outside any longer transaction: others that write the same new terms would wait until that ends.
    """
    set_apart(generation)
    if generation.terms is not None and generation.terms._state.adding:  # they may not be in the table yet
        FrozenTerms.objects.using(using).bulk_create([generation.terms], ignore_conflicts=True)


def _book_by_models(
    generation: Generation, using: str, quota_use: QuotaUse | None = None, has_checkpoint: bool = False
) -> Settlement | None:
    """Books on SQLite with several statements. That is safe because SQLite lets one connection write at a time."""
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
            usage = {"kind": LedgerEntry.Kind.USAGE, "amount": -generation.cost, "created_at": generation.created_at}
            append(wallet, LedgerEntry(generation=generation, **usage), using)
        if quota_use is not None:
            quota.count(quota_use.region_id, quota_use.tokens, quota_use.day, shard=quota_use.shard, using=using)
    return Settlement(generation.balance_after)


def _book_by_statement(
    generation: Generation, using: str, quota_use: QuotaUse | None = None, has_checkpoint: bool = False
) -> Settlement | None:
    """Books on PostgreSQL, with a raw cursor: it takes numbered placeholders and does not parse the statement."""
    parameters = [encoded(name, getattr(generation, name)) for name in COLUMNS]
    texts = [None if value is None else value.decode() for value in parameters]
    connection = connections[using]
    is_crowded = _is_crowded(generation.account_id) and not connection.in_atomic_block
    chosen = statement(counts_quota=quota_use is not None, has_checkpoint=has_checkpoint, commits_early=is_crowded)
    connection.ensure_connection()
    with CursorWrapper(psycopg.RawCursor(connection.connection), connection) as cursor:
        try:
            cursor.execute(chosen.sql.decode(), [*texts, *map(str, quota_use or ())])
        except DataError as error:
            if getattr(error.__cause__, "sqlstate", None) == NUMBER_OUT_OF_RANGE:
                raise LossyValueError("The balance after this settlement is out of range.") from error
            raise
        except IntegrityError:
            # Another call wrote the record after this statement began and before it locked the wallet.
            if connection.in_atomic_block or not Generation.objects.using(using).filter(pk=generation.pk).exists():
                raise
            return None
        settled = _outcome(generation.account_id, *cursor.fetchone()[:4])
        if is_crowded:
            cursor.execute(_FLUSH.sql.decode())
        return settled


def _outcome(
    account_id: uuid.UUID, has_wallet: bool, was_written: bool, balance_units: int | None, waited: int
) -> Settlement | None:
    """Turns the statement's row into a Settlement. Returns None if the record exists or its terms are missing."""
    if not has_wallet:
        raise Wallet.DoesNotExist(f"Account {account_id} has no wallet.")
    if not was_written:
        return None
    seconds = waited / MICROSECONDS
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
    shard = random.randrange(SHARDS)  # noqa: S311  # spreads load, guards nothing
    return QuotaUse(region_id, quota.day_of(timezone.now()), shard, min(total_tokens, quota.MOST_AT_ONCE))


@cache
def statement(*, counts_quota: bool, has_checkpoint: bool, commits_early: bool = False) -> Statement:
    """Returns the settling statement for PostgreSQL. Its parameters are the values of COLUMNS, then of QuotaUse."""
    sql = _sql((_COUNT_QUOTA if counts_quota else "") + (_REMOVE_CHECKPOINT if has_checkpoint else ""))
    if commits_early:
        sql += ", set_config('synchronous_commit', 'off', true)"
    names = [*COLUMNS, *(f"quota_{name}" for name in QuotaUse._fields)]
    numbered = sql % {name: f"${number}" for number, name in enumerate(names, 1)}
    return Statement(f"settle_{counts_quota:d}{has_checkpoint:d}{commits_early:d}".encode(), numbered.encode())


def _sql(more_parts: str) -> str:
    connection = connections["settlement"]
    quote = connection.ops.quote_name
    wallet, generation, entry, terms = (
        model._meta.db_table for model in (Wallet, Generation, LedgerEntry, FrozenTerms)
    )
    columns, values = [], []
    cost = "%(cost)s::bigint"
    for each in Generation._meta.concrete_fields:
        columns.append(quote(each.column or ""))
        under_lock = _UNDER_LOCK.get(each.attname)
        if under_lock is None:
            # The cast leaves out a varchar's length: with it, a text that is too long would be cut instead of refused.
            values.append(f"%({each.attname})s::{(each.db_type(connection) or '').partition('(')[0]}")
        else:
            values.append(under_lock.format(cost=cost))
    # Each part reads the one before it: `moved` locks the wallet, and the rest is done under that lock. Nothing is
    # written if the record existed when the statement began, or if the terms are missing, as after a failover that lost
    # the latest writes. If the record was written after the beginning, the INSERT fails and everything is rolled back.
    return f"""
        WITH moved AS (
            UPDATE {wallet}
            SET balance = balance - coalesce({cost}, 0), seq = seq + ({cost} IS NOT NULL)::int
            WHERE account_id = %(account_id)s::uuid
                AND NOT EXISTS (SELECT FROM {generation} WHERE id = %(id)s::uuid)
                AND (%(terms_id)s::uuid IS NULL OR EXISTS (SELECT FROM {terms} WHERE id = %(terms_id)s::uuid))
            RETURNING account_id, balance, seq
        ), generation AS (
            INSERT INTO {generation} ({", ".join(columns)})
            SELECT {", ".join(values)} FROM moved
            RETURNING id, created_at, balance_after
        ), entry AS (
            INSERT INTO {entry} (account_id, seq, kind, amount, balance_after, generation_id, reference, created_at)
            SELECT moved.account_id, moved.seq, '{LedgerEntry.Kind.USAGE.value}', - {cost}, moved.balance,
                   generation.id, NULL, generation.created_at
            FROM moved, generation
            WHERE {cost} IS NOT NULL
        ){more_parts}
        SELECT EXISTS (SELECT FROM {wallet} WHERE account_id = %(account_id)s::uuid),
            EXISTS (SELECT FROM generation), (SELECT balance_after FROM generation),
            (SELECT (extract(epoch FROM created_at - statement_timestamp()) * {MICROSECONDS})::bigint FROM generation)
        """  # noqa: S608  # table and column names of our own models


@cache
def _keep_terms() -> Statement:
    columns = ", ".join(FROZEN_COLUMNS)
    types = (FrozenTerms._meta.get_field(name).db_type(connections["settlement"]) for name in FROZEN_COLUMNS)
    values = ", ".join(f"${number}::{kind}" for number, kind in enumerate(types, 1))
    sql = f"INSERT INTO {FrozenTerms._meta.db_table} ({columns}) VALUES ({values}) ON CONFLICT DO NOTHING"  # noqa: S608
    return Statement(b"keep_terms", sql.encode())


def book_together(sessions: Sessions, batch: Sequence[tuple[Unsettled, bool]]) -> list[Settlement | None]:
    """Books a batch of (request, has_checkpoint) in one transaction. Returns None for one that was not written."""
    for unsettled, _ in batch:
        terms = unsettled.terms.row
        if terms is not None and terms._state.adding:  # written before any wallet is locked
            sessions.execute(_keep_terms(), [encoded(name, getattr(terms, name)) for name in FROZEN_COLUMNS])
            terms._state.adding = False
    is_crowded = any(_is_crowded(unsettled.figures.account_id) for unsettled, _ in batch)
    work = [_work(*each, commits_early=is_crowded) for each in batch]
    if is_crowded or len(work) > 1:
        results = sessions.execute_all(work, _FLUSH if is_crowded else None)
    else:
        results = [sessions.execute(*work[0])]
    return [_read(result, unsettled) for result, (unsettled, _) in zip(results, batch, strict=True)]


def _work(unsettled: Unsettled, has_checkpoint: bool, *, commits_early: bool) -> tuple[Statement, Parameters]:
    use = _quota_use(unsettled.figures.total_tokens, unsettled.terms.quota_region)
    counted = [str(value).encode() for value in use or ()]
    chosen = statement(counts_quota=use is not None, has_checkpoint=has_checkpoint, commits_early=commits_early)
    return chosen, [*unsettled.parameters, *counted]


def _read(result: Any, unsettled: Unsettled) -> Settlement | None:
    has_wallet, was_written, balance, waited = (result.get_value(0, column) for column in range(4))
    units = None if balance is None else integer(balance)
    return _outcome(
        unsettled.figures.account_id, has_wallet == b"\x01", was_written == b"\x01", units, integer(waited or b"\0")
    )
