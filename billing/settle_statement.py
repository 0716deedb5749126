"""PostgreSQL's form of a settlement: one statement, one round trip.

The wallet's row is locked first; everything else follows from it, so that `created_at` grows with `seq`. Columns and
their types come from the model: a new field needs no change here. A route with a daily quota adds one more part, which
counts its tokens; the others do not pay for it.
"""

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from functools import cache
from typing import Any

import orjson
from django.db import DataError, connections
from django.db.models import Field, JSONField

from catalogue.counters import RouteDay
from catalogue.quota import ADD_ON_CONFLICT
from gateway.money import MONEY_PLACES, ExactDecimalField, LossyValueError
from gateway.postgresql.prepared import POSTGRES_EPOCH, Statement

from .models import Checkpoint, Generation, LedgerEntry, Wallet
from .outcomes import QuotaUse, Settlement

Encode = Callable[[Any], bytes]
NUMBER_OUT_OF_RANGE = "22003"  # SQLSTATE
DECIDED_UNDER_LOCK = {"created_at": "clock_timestamp()", "balance_after": "wallet.balance - {cost}"}
# Once a generation, since it selects from what was really inserted. Nobody who holds a counter waits for a wallet.
_COUNT_QUOTA = f""", quota AS (
            INSERT INTO {RouteDay._meta.db_table} (region_id, day, shard, tokens)
            SELECT %(quota_region_id)s::bigint, %(quota_day)s::date, %(quota_shard)s::smallint,
                   %(quota_tokens)s::bigint
            FROM generation
            {ADD_ON_CONFLICT}
        )"""  # noqa: S608  # the table of our own model
_REMOVE_CHECKPOINT = f""", checkpoint AS (
            DELETE FROM {Checkpoint._meta.db_table} WHERE id = %(id)s::uuid
        )"""  # noqa: S608


def execute(
    generation: Generation, using: str, quota_use: QuotaUse | None = None, *, has_checkpoint: bool = False
) -> Settlement | None:
    """Settles, and counts what the route's daily quota is to count; None where the generation was settled before.

    Raises Wallet.DoesNotExist without a wallet, LossyValueError where its balance could not hold the result.
    """
    connection = connections[using]
    sql, fields = _statement(using, quota_use is not None, has_checkpoint)
    parameters: dict[str, Any] = {
        field.attname: field.get_db_prep_save(getattr(generation, field.attname), connection) for field in fields
    }
    if quota_use is not None:
        parameters |= {f"quota_{name}": value for name, value in quota_use._asdict().items()}
    with connection.cursor() as cursor:
        try:
            cursor.execute(sql, parameters)
        except DataError as error:
            if getattr(error.__cause__, "sqlstate", None) == NUMBER_OUT_OF_RANGE:
                raise LossyValueError("The balance after this settlement is out of range.") from error
            raise
        has_wallet, created_at, balance_units = cursor.fetchone()
    if not has_wallet:
        raise Wallet.DoesNotExist(f"Account {generation.account_id} has no wallet.")
    if created_at is None:
        return None
    balance = Wallet._meta.get_field("balance").from_db_value(balance_units, None, connection)
    return Settlement(generation.cost, balance, created_at)


def prepared(
    generation: Generation, quota_use: QuotaUse | None, *, has_checkpoint: bool
) -> tuple[Statement, list[bytes | None]]:
    """The same statement with its parameters, for a session of the worker (`gateway.postgresql.prepared`)."""
    statement, encoders = _prepared(quota_use is not None, has_checkpoint)
    values = vars(generation)
    parameters = [None if (value := values[name]) is None else encode(value) for name, encode in encoders]
    if quota_use is not None:
        parameters += [str(value).encode() for value in quota_use]
    return statement, parameters


def settlement_in(result: Any, generation: Generation) -> Settlement | None:
    """What a prepared statement's result says, as `execute`."""
    has_wallet, created_at, balance = (result.get_value(0, column) for column in range(3))
    if has_wallet != b"\x01":
        raise Wallet.DoesNotExist(f"Account {generation.account_id} has no wallet.")
    if created_at is None:
        return None
    moment = POSTGRES_EPOCH + timedelta(microseconds=int.from_bytes(created_at, "big", signed=True))
    units = None if balance is None else int.from_bytes(balance, "big", signed=True)
    return Settlement(generation.cost, None if units is None else Decimal(units).scaleb(-MONEY_PLACES), moment)


@cache
def _prepared(counts_quota: bool, has_checkpoint: bool) -> tuple[Statement, list[tuple[str, Encode]]]:
    """The SQL with numbered placeholders, and for each of the generation's fields how its value becomes text."""
    sql, fields = _statement("settlement", counts_quota, has_checkpoint)
    names = [field.attname for field in fields]
    if counts_quota:
        names += [f"quota_{name}" for name in QuotaUse._fields]
    numbered = sql % {name: f"${number}" for number, name in enumerate(names, 1)}
    statement = Statement(f"settle_{counts_quota:d}{has_checkpoint:d}".encode(), numbered.replace("%%", "%").encode())
    return statement, [(field.attname, _encoder_of(field)) for field in fields]


def _encoder_of(field: "Field[Any, Any]") -> Encode:
    match field:
        case ExactDecimalField():
            return lambda value: str(field.to_units(value)).encode()
        case JSONField():
            return orjson.dumps
        case _:
            return lambda value: str(value).encode()


@cache
def _statement(using: str, counts_quota: bool, has_checkpoint: bool) -> tuple[str, list["Field[Any, Any]"]]:
    """The SQL, and the fields it takes from the generation by attribute name."""
    connection = connections[using]
    quote = connection.ops.quote_name
    wallet, generation, entry = (model._meta.db_table for model in (Wallet, Generation, LedgerEntry))
    columns, values, taken = [], [], []
    cost = "%(cost)s::bigint"
    for field in Generation._meta.concrete_fields:
        columns.append(quote(field.column or ""))
        decided = DECIDED_UNDER_LOCK.get(field.attname)
        if decided is None:
            # Without the length of a varchar: a cast to it would cut a long text short instead of refusing it.
            values.append(f"%({field.attname})s::{(field.db_type(connection) or '').partition('(')[0]}")
            taken.append(field)
        else:
            values.append(decided.format(cost=cost))
    return (
        f"""
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
        ){_COUNT_QUOTA if counts_quota else ""}{_REMOVE_CHECKPOINT if has_checkpoint else ""}
        SELECT EXISTS (SELECT FROM wallet),
               (SELECT created_at FROM generation), (SELECT balance_after FROM generation)
        """,  # noqa: S608  # table and column names of our own models
        taken,
    )
