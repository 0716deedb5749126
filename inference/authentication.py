"""Authenticates each request with one uncached SELECT over key, account, wallet and policies."""

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from accounts import keys
from accounts.keys import note_use, verify_key
from accounts.policies import AppliedPolicy, applied_policies
from accounts.rate_window_rule import RateBound
from accounts.rate_windows import rate_bounds, rate_limits_of
from billing.models import Wallet
from gateway.db.pool import is_full
from gateway.db.reads import BYTES, INTEGER, MOMENT, TEXT, UUID, RowQuery, read_row
from gateway.edge.overload import overload
from gateway.errors import ApiKeyNotRegistered
from gateway.observing.request_events import event_of

# Selects the policies of a key `k`: a line for each, with its level, tag, rules and what is spent of its budgets. A tag
# is looked for in the key's tags by removing it: `replace` is the only function for this that both databases have.
POLICIES = """
    (
        SELECT string_agg(
            p.level || '\t' || p.tag || '\t' || CAST(p.rules AS varchar) || '\t' || coalesce(
                CAST(s.day AS varchar) || ' ' || s.in_day || ' ' || s.in_week || ' ' || s.in_month || ' '
                || s.in_total, ''
            ), '\n'
        )
        FROM accounts_policy p
        LEFT JOIN billing_spending s ON s.policy_id = p.id
        WHERE p.account_id = k.account_id AND (
            p.level = 'account' OR p.key_id = k.id
            OR p.tag <> '' AND replace(' ' || k.tags || ' ', ' ' || p.tag || ' ', '') <> ' ' || k.tags || ' '
        )
    )"""

# Finds the key, the account that it belongs to, the balance and the policies that apply (`accounts.policies` reads
# them), by the fingerprint of the token. A deleted key has no fingerprint, so it is not found from the next request on.
_SELECT_KEY = f"""
    SELECT k.id, k.account_id, k.verifier, k.expires_at, k.disabled_at, a.currency, w.balance, k.rpm, k.tpm,
        a.suspended_at, a.closed_at, k.tags, {POLICIES}
    FROM accounts_apikey k
    JOIN accounts_account a ON a.id = k.account_id
    JOIN billing_wallet w ON w.account_id = k.account_id
    """  # noqa: S608  # our own constant
_COLUMNS = (UUID, UUID, BYTES, MOMENT, MOMENT, TEXT, INTEGER, INTEGER, INTEGER, MOMENT, MOMENT, TEXT, TEXT)
KEY_WITH_ACCOUNT = RowQuery(
    "authenticate", f"{_SELECT_KEY}WHERE k.fingerprint = %s", parameters=(BYTES,), columns=_COLUMNS
)
KEY_OF_FORMER_TOKEN = RowQuery(
    "authenticate by a former token",
    f"{_SELECT_KEY}WHERE k.id = %s AND k.deleted_at IS NULL",
    parameters=(UUID,),
    columns=_COLUMNS,
)
POLICIES_OF_KEY = RowQuery(
    "policies of key",
    f"SELECT {POLICIES} FROM accounts_apikey k WHERE k.id = %s",  # noqa: S608  # our own constant
    parameters=(UUID,),
    columns=(TEXT,),
)
BALANCE = RowQuery(
    "balance", "SELECT balance FROM billing_wallet WHERE account_id = %s", parameters=(UUID,), columns=(INTEGER,)
)


@dataclass(frozen=True, slots=True)
class Payer:
    """Holds an authenticated key, its account, and the account's balance in units of money.

    `read_at` is a time of the monotonic clock, taken just before the balance and what is spent of budgets were read.
    """

    key_id: uuid.UUID
    account_id: uuid.UUID
    currency: str
    balance: int
    rate_bounds: Sequence[RateBound] = ()
    tags: str = ""
    policies: tuple[AppliedPolicy, ...] = ()
    read_at: float = field(default_factory=time.monotonic)


def authenticate(token: str, environ: Mapping[str, Any]) -> Payer:
    """Reads the payer of a key from the database, and returns the connection to the pool at once.

    Also sets the key and the account on the request's event, even if the key has expired.
    Raises ApiKeyNotRegistered, AccountSuspended, AccountClosed, WorkerBusy, and what `accounts.keys.verify_key` raises.
    """
    # 1. Read the key, the account and the balance.
    event = event_of(environ)
    keys.require_inference(token, event)
    fingerprint = keys.fingerprint(token)
    if is_full():
        raise overload.refusal()
    read_at = time.monotonic()
    row = read_row(KEY_WITH_ACCOUNT, fingerprint) or _row_of_former_token(token)
    key_id, account_id, verifier, expires_at, disabled_at, currency, balance, rpm, tpm, *rest = row
    suspended_at, closed_at, tags, rules = rest
    # 2. Note whose key it is, before a check can refuse it.
    event.key_id, event.account_id, event.currency = key_id, account_id, currency
    # 3. Check the key, then the account.
    now = datetime.now(UTC)
    verify_key(token, verifier, expires_at, now, disabled_at=disabled_at)
    note_use(key_id, now)
    if suspended_at is not None:
        raise keys.refusal_of_account(is_closed=closed_at is not None)
    policies = () if rules is None else applied_policies(rules)
    bounds = rate_bounds(key_id, account_id, rate_limits_of(rpm, tpm), policies)
    return Payer(key_id, account_id, currency, balance, bounds, tags, policies, read_at)


def _row_of_former_token(token: str) -> Sequence[Any]:
    """Reads the row of a key by a token that a rotation has replaced. Raises ApiKeyNotRegistered."""
    key_id, verifier = keys.key_of_former_token(token)
    row = read_row(KEY_OF_FORMER_TOKEN, key_id)
    if row is None:
        raise ApiKeyNotRegistered
    return [*row[:2], verifier, *row[3:]]


def balance_of(account_id: uuid.UUID) -> int:
    """Reads an account's current balance, in units of money, and returns the connection to the pool at once.

    Raises Wallet.DoesNotExist.
    """
    row = read_row(BALANCE, account_id)
    if row is None:
        raise Wallet.DoesNotExist(f"Account {account_id} has no wallet.")
    balance: int = row[0]
    return balance


def policies_of(key_id: uuid.UUID) -> tuple[AppliedPolicy, ...]:
    """Reads the policies that apply to a key now, and returns the connection to the pool at once."""
    row = read_row(POLICIES_OF_KEY, key_id)
    return () if row is None or row[0] is None else applied_policies(row[0])
