"""Moving money: `settle` debits, `grant` and `correct` credit. The only code that writes the ledger.

Each move locks the account's wallet first, so that the entries' sequence, their times and the running balance agree.
A balance may fall below zero by one request: usage is known only after it was served.

A settlement is one statement in PostgreSQL, and one round trip. Columns and their types come from the model. A route
with a daily quota adds one more part, which counts its tokens; the others do not pay for it. A worker executes it on
its own sessions (`gateway.fastpath.postgresql`), everything else on Django's connection, by a cursor that takes the
same numbered placeholders and parses nothing: no limit of a driver's cache applies to it.
"""

import random
import uuid
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from functools import cache
from typing import Any, NamedTuple

import psycopg
from django.db import DataError, connections, transaction
from django.db.backends.utils import CursorWrapper
from django.utils import timezone

from catalogue.routing import quota
from catalogue.routing.counters import SHARDS, RouteDay
from gateway.fastpath.postgresql import Parameters, Statement, integer
from gateway.money import LossyValueError, from_units, plain

from ..models import Checkpoint, Generation, LedgerEntry, Wallet
from .unsettled import COLUMNS, Unsettled, encoded

MAX_REFERENCE_LENGTH = 200
NUMBER_OUT_OF_RANGE = "22003"  # SQLSTATE
MICROSECONDS = 1_000_000
DECIDED_UNDER_LOCK = {"created_at": "clock_timestamp()", "balance_after": "wallet.balance - {cost}"}
# Once a generation, since it selects from what was really inserted. Nobody who holds a counter waits for a wallet.
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


class QuotaUse(NamedTuple):
    """Tokens that count against a route's daily quota, and the counter they go to."""

    region_id: int
    day: date
    shard: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a settled generation left behind. `balance` is None where it was never priced or is in the spool.

    `wallet_wait_seconds` are those that the statement waited for the wallet's row; None where nobody has measured.
    """

    balance: Decimal | None
    wallet_wait_seconds: float | None = field(default=None, compare=False)


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
    generation: Generation, *, quota_region: int | None = None, has_checkpoint: bool = False, using: str = "settlement"
) -> Settlement:
    """Records a generation and debits its cost, in one transaction. The first call decides; later ones change nothing.

    `generation` is complete but for `created_at` and `balance_after`, which are decided under the wallet's lock. A
    generation without a cost is recorded and debits nothing. `quota_region` is the route (Region) whose daily quota
    counts the tokens, on the UTC day of the settlement. `has_checkpoint` removes the stream's checkpoint in the same
    transaction. Idempotent by the generation's id: callers may race.
    """
    quota_use = quota_use_of(generation.total_tokens, quota_region)
    if connections[using].vendor == "postgresql":
        settled = execute_settlement(generation, using, quota_use, has_checkpoint=has_checkpoint)
    else:
        settled = _settle_in_transaction(generation, using, quota_use, has_checkpoint)
    if settled is not None:
        return settled
    before = Generation.objects.using(using).only("balance_after").get(pk=generation.pk)
    return Settlement(before.balance_after)


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


def quota_use_of(total_tokens: int, region_id: int | None) -> QuotaUse | None:
    """What to count where the route has a daily quota, on a random counter: accounts that share a route seldom meet."""
    if region_id is None:
        return None
    shard = random.randrange(SHARDS)  # noqa: S311  # spreads load, guards nothing
    return QuotaUse(region_id, quota.day_of(timezone.now()), shard, min(total_tokens, quota.MOST_AT_ONCE))


def execute_settlement(
    generation: Generation, using: str, quota_use: QuotaUse | None = None, *, has_checkpoint: bool = False
) -> Settlement | None:
    """Settles, and counts what the route's daily quota is to count; None where the generation was settled before.

    Raises Wallet.DoesNotExist without a wallet, LossyValueError where its balance could not hold the result.
    """
    parameters = [encoded(name, getattr(generation, name)) for name in COLUMNS]
    texts = [None if value is None else value.decode() for value in parameters]
    sql = statement(counts_quota=quota_use is not None, has_checkpoint=has_checkpoint).sql.decode()
    connection = connections[using]
    connection.ensure_connection()
    with CursorWrapper(psycopg.RawCursor(connection.connection), connection) as cursor:
        try:
            cursor.execute(sql, [*texts, *map(str, quota_use or ())])
        except DataError as error:
            if getattr(error.__cause__, "sqlstate", None) == NUMBER_OUT_OF_RANGE:
                raise LossyValueError("The balance after this settlement is out of range.") from error
            raise
        has_wallet, was_inserted, balance_units, waited = cursor.fetchone()
    if not has_wallet:
        raise Wallet.DoesNotExist(f"Account {generation.account_id} has no wallet.")
    if not was_inserted:
        return None
    return Settlement(None if balance_units is None else from_units(balance_units), waited / MICROSECONDS)


def prepared(unsettled: Unsettled, *, has_checkpoint: bool) -> tuple[Statement, Parameters]:
    """The same statement with its parameters, for a session of the worker (`gateway.fastpath.postgresql`)."""
    quota_region = unsettled.terms.quota_region
    if quota_region is None:
        return statement(counts_quota=False, has_checkpoint=has_checkpoint), unsettled.parameters
    use = quota_use_of(unsettled.figures.total_tokens, quota_region)
    counted = [str(value).encode() for value in use or ()]
    return statement(counts_quota=True, has_checkpoint=has_checkpoint), [*unsettled.parameters, *counted]


def settlement_in(result: Any, unsettled: Unsettled) -> Settlement | None:
    """What a prepared statement's result says, as `execute_settlement`."""
    if result.get_value(0, 0) != b"\x01":
        raise Wallet.DoesNotExist(f"Account {unsettled.figures.account_id} has no wallet.")
    if result.get_value(0, 1) != b"\x01":
        return None
    balance = result.get_value(0, 2)
    waited = integer(result.get_value(0, 3)) / MICROSECONDS
    return Settlement(None if balance is None else from_units(integer(balance)), waited)


@cache
def statement(*, counts_quota: bool, has_checkpoint: bool) -> Statement:
    """The SQL, whose parameters are the values of COLUMNS, and then those of QuotaUse."""
    sql = _sql(_COUNT_QUOTA if counts_quota else "", _REMOVE_CHECKPOINT if has_checkpoint else "")
    names = [*COLUMNS, *(f"quota_{name}" for name in QuotaUse._fields)]
    numbered = sql % {name: f"${number}" for number, name in enumerate(names, 1)}
    return Statement(f"settle_{counts_quota:d}{has_checkpoint:d}".encode(), numbered.encode())


def _sql(*more_parts: str) -> str:
    connection = connections["settlement"]
    quote = connection.ops.quote_name
    wallet, generation, entry = (model._meta.db_table for model in (Wallet, Generation, LedgerEntry))
    columns, values = [], []
    cost = "%(cost)s::bigint"
    for each in Generation._meta.concrete_fields:
        columns.append(quote(each.column or ""))
        decided = DECIDED_UNDER_LOCK.get(each.attname)
        if decided is None:
            # Without the length of a varchar: a cast to it would cut a long text short instead of refusing it.
            values.append(f"%({each.attname})s::{(each.db_type(connection) or '').partition('(')[0]}")
        else:
            values.append(decided.format(cost=cost))
    return f"""
        WITH wallet AS (
            SELECT account_id, balance, seq FROM {wallet} WHERE account_id = %(account_id)s::uuid FOR UPDATE
        ), generation AS (
            INSERT INTO {generation} ({", ".join(columns)})
            SELECT {", ".join(values)} FROM wallet
            ON CONFLICT (id) DO NOTHING
            RETURNING id, created_at, balance_after
        ), moved AS (
            UPDATE {wallet} SET balance = wallet.balance - {cost}, seq = wallet.seq + 1
            FROM wallet, generation
            WHERE {wallet}.account_id = wallet.account_id AND {cost} IS NOT NULL
            RETURNING {wallet}.account_id, {wallet}.balance, {wallet}.seq
        ), entry AS (
            INSERT INTO {entry} (account_id, seq, kind, amount, balance_after, generation_id, reference, created_at)
            SELECT moved.account_id, moved.seq, '{LedgerEntry.Kind.USAGE.value}', - {cost}, moved.balance,
                   generation.id, NULL, generation.created_at
            FROM moved, generation
        ){"".join(more_parts)}
        SELECT EXISTS (SELECT FROM wallet), EXISTS (SELECT FROM generation), (SELECT balance_after FROM generation),
            (SELECT (extract(epoch FROM created_at - statement_timestamp()) * {MICROSECONDS})::bigint FROM generation)
        """  # noqa: S608  # table and column names of our own models


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
                    f"Reference {reference!r} is already recorded as a {booked.kind} of {plain(booked.amount)}."
                )
            return Credit(wallet.balance, repeated=True)
        entry.created_at = timezone.now()
        try:
            _append(wallet, entry, "default")
        except LossyValueError as error:
            raise InvalidAmount(str(error)) from None
    return Credit(wallet.balance, repeated=False)
