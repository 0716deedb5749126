"""Holds the statement that settles a request on PostgreSQL, in one round trip.

Each part of its WITH is a constant. `wallet_update` locks the wallet. The parts that write the record, its ledger entry
and the quota's counter select from an earlier part, so they write under that lock, or nothing if the wallet was not
updated.
Parameters have the names of the record's columns, or `quota_` and a name of QuotaUse; `settling_statement` numbers
them.
"""

from datetime import date
from functools import cache
from typing import NamedTuple

from django.db import connections

from catalogue.routing import quota
from gateway.db.reads import BOOLEAN, INTEGER
from gateway.db.writes import WriteQuery

from ..models import Generation
from .unsettled import COLUMNS


class QuotaUse(NamedTuple):
    """Holds the tokens that count against a route's daily quota, and names the counter that they are added to."""

    region_id: int
    day: date
    shard: int
    tokens: int


# Locks the wallet and debits the cost. It finds no wallet if the record existed when the statement began, or if the
# terms are missing, as after a failover that lost the latest writes. If another call writes the record after the
# statement began, the next part violates the primary key, and everything is rolled back.
UPDATE_WALLET = """
    wallet_update AS (
        UPDATE billing_wallet
        SET balance = balance - coalesce(%(cost)s::bigint, 0), seq = seq + (%(cost)s::bigint IS NOT NULL)::int
        WHERE account_id = %(account_id)s::uuid
            AND NOT EXISTS (SELECT FROM billing_generation WHERE id = %(id)s::uuid)
            AND (%(terms_id)s::uuid IS NULL OR EXISTS (SELECT FROM billing_frozenterms WHERE id = %(terms_id)s::uuid))
        RETURNING account_id, balance, seq
    )"""

# Writes the record. `columns` and `values` are made from the model, so a new column needs no change here.
INSERT_RECORD = """
    generation AS (
        INSERT INTO billing_generation ({columns})
        SELECT {values} FROM wallet_update
        RETURNING id, created_at, balance_after
    )"""

# The values of the record's columns that are only known once the wallet is locked.
VALUES_UNDER_LOCK = {
    "created_at": "clock_timestamp()",
    "balance_after": "CASE WHEN %(cost)s::bigint IS NOT NULL THEN wallet_update.balance END",
}

# Writes the ledger entry, if the request has a cost.
INSERT_ENTRY = """
    entry AS (
        INSERT INTO billing_ledgerentry
            (account_id, seq, kind, amount, balance_after, generation_id, reference, created_at)
        SELECT wallet_update.account_id, wallet_update.seq, 'usage', - %(cost)s::bigint, wallet_update.balance,
            generation.id, NULL, generation.created_at
        FROM wallet_update, generation
        WHERE %(cost)s::bigint IS NOT NULL
    )"""

# Adds the cost to what is spent of each budget that the request counts against: its account's, its key's and its tags'.
# Sums of periods that have ended begin anew (`spending.begin_of` has the rule). `day` never goes back, but a clock may.
ADD_TO_SPENDING = """
    spending AS (
        UPDATE billing_spending s
        SET day = greatest(s.day, g.day),
            in_day = %(cost)s::bigint + CASE WHEN s.day >= g.day THEN s.in_day ELSE 0 END,
            in_week = %(cost)s::bigint
                + CASE WHEN date_trunc('week', s.day::timestamp) >= date_trunc('week', g.day::timestamp)
                    THEN s.in_week ELSE 0 END,
            in_month = %(cost)s::bigint
                + CASE WHEN date_trunc('month', s.day::timestamp) >= date_trunc('month', g.day::timestamp)
                    THEN s.in_month ELSE 0 END,
            in_total = s.in_total + %(cost)s::bigint
        FROM (SELECT (created_at AT TIME ZONE 'UTC')::date AS day FROM generation) AS g
        WHERE s.account_id = %(account_id)s::uuid AND %(cost)s::bigint IS NOT NULL
            AND (s.key_id IS NULL OR s.key_id = %(key_id)s::uuid)
            AND (s.tag = '' OR s.tag = ANY(string_to_array(%(tags)s::varchar, ' ')))
        RETURNING s.policy_id, s.day, s.in_day, s.in_week, s.in_month, s.in_total, s.lines
    )"""

# Writes an alert for each line of a budget that this cost has crossed, once in a period.
INSERT_ALERTS = """
    alert AS (
        INSERT INTO billing_budgetalert (id, policy_id, period, begins, percent, amount, spent, crossed_at)
        SELECT gen_random_uuid(), s.policy_id, line.period,
            CASE line.period
                WHEN 'day' THEN s.day
                WHEN 'week' THEN date_trunc('week', s.day::timestamp)::date
                WHEN 'month' THEN date_trunc('month', s.day::timestamp)::date
                ELSE DATE '1970-01-01'
            END,
            line.percent, line.amount, line.spent, g.created_at
        FROM generation g, spending s, LATERAL (
            SELECT l.*, CASE l.period
                WHEN 'day' THEN s.in_day WHEN 'week' THEN s.in_week WHEN 'month' THEN s.in_month ELSE s.in_total
            END AS spent
            FROM jsonb_to_recordset(s.lines) AS l(period varchar, percent smallint, amount bigint, units bigint)
        ) AS line
        WHERE line.spent >= line.units AND line.spent - %(cost)s::bigint < line.units
        ON CONFLICT DO NOTHING
    )"""

# Notes each of the account's lines that this cost has taken the balance across. The unique key of the table finds them,
# so an account without lines costs one look at an index.
CROSS_BALANCE_LINES = """
    balance_line AS (
        UPDATE billing_balanceline l
        SET crossed_at = generation.created_at, balance = wallet_update.balance, told_at = NULL
        FROM wallet_update, generation
        WHERE l.account_id = %(account_id)s::uuid AND l.amount >= wallet_update.balance
            AND l.amount < wallet_update.balance + %(cost)s::bigint
    )"""

# Adds the tokens to a counter of the route's daily quota, if the record was written.
COUNT_QUOTA = f"""
    quota AS (
        INSERT INTO catalogue_routeday (region_id, day, shard, tokens)
        SELECT %(quota_region_id)s::bigint, %(quota_day)s::date, %(quota_shard)s::smallint,
            %(quota_tokens)s::bigint
        FROM generation
        {quota.ADD_ON_CONFLICT}
    )"""  # noqa: S608  # what to do on a conflict is a constant too

# Removes the checkpoint of the stream, even if an earlier call has written the record.
DELETE_CHECKPOINT = """
    checkpoint AS (
        DELETE FROM billing_checkpoint WHERE id = %(id)s::uuid
    )"""

# Returns whether the account has a wallet, whether the record was written, the wallet's balance in units of money, and
# the microseconds that the statement waited for the wallet's lock.
SELECT_OUTCOME = """
    SELECT EXISTS (SELECT FROM billing_wallet WHERE account_id = %(account_id)s::uuid),
        EXISTS (SELECT FROM generation),
        (SELECT balance_after FROM generation),
        (SELECT (extract(epoch FROM created_at - statement_timestamp()) * 1000000)::bigint FROM generation)"""

# Makes the transaction commit without waiting for the disk. It adds a table of one row, from which the outcome is read.
COMMIT_EARLY = """
    FROM set_config('synchronous_commit', 'off', true)"""


# Locks the wallets of a batch in the order of accounts, and returns the microseconds that this took. A batch whose
# requests count against quotas does so first: then all transactions lock wallets before counters.
LOCK_WALLETS = WriteQuery(
    "lock_wallets",
    """
    SELECT (extract(epoch FROM clock_timestamp() - statement_timestamp()) * 1000000)::bigint
    FROM (
        SELECT count(*) FROM (
            SELECT FROM billing_wallet WHERE account_id = ANY($1::uuid[]) ORDER BY account_id FOR NO KEY UPDATE
        ) AS wallet
    ) AS locked""",
    columns=(INTEGER,),
)


@cache
def settling_statement(*, counts_quota: bool, has_checkpoint: bool, commits_early: bool = False) -> WriteQuery:
    """Puts the statement together. Its parameters are the values of COLUMNS, followed by the values of a QuotaUse."""
    parts = [UPDATE_WALLET, _insert_record(), INSERT_ENTRY, ADD_TO_SPENDING, INSERT_ALERTS, CROSS_BALANCE_LINES]
    if counts_quota:
        parts.append(COUNT_QUOTA)
    if has_checkpoint:
        parts.append(DELETE_CHECKPOINT)
    named = f"WITH {','.join(parts)}{SELECT_OUTCOME}{COMMIT_EARLY if commits_early else ''}"
    parameters = [*COLUMNS, *(f"quota_{name}" for name in QuotaUse._fields)]
    numbered = named % {name: f"${number}" for number, name in enumerate(parameters, 1)}
    name = f"settle_{counts_quota:d}{has_checkpoint:d}{commits_early:d}"
    return WriteQuery(name, numbered, columns=(BOOLEAN, BOOLEAN, INTEGER, INTEGER))


def _insert_record() -> str:
    connection = connections["settlement"]
    columns, values = [], []
    for field in Generation._meta.concrete_fields:
        # The cast leaves out a varchar's length: with it, a text that is too long would be cut instead of refused.
        cast = (field.db_type(connection) or "").partition("(")[0]
        columns.append(connection.ops.quote_name(field.column or ""))
        values.append(VALUES_UNDER_LOCK.get(field.attname, f"%({field.attname})s::{cast}"))
    return INSERT_RECORD.format(columns=", ".join(columns), values=", ".join(values))
