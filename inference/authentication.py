"""Authenticates requests, with one uncached SELECT over key, account and wallet for each."""

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from django.db import connection

from accounts import keys
from accounts.keys import note_use, verify_key
from accounts.rate_windows import RateLimits, rate_limits_of
from billing.models import Wallet
from gateway.db.pool import is_full, on_a_live_connection, release
from gateway.db.sessions import Sessions, Statement, integer, moment, sessions_of
from gateway.edge.refusals import overload
from gateway.errors import ApiKeyNotRegistered
from gateway.money import to_units
from gateway.observing.request_events import event_of

SELECT = """
    SELECT k.id, k.account_id, k.verifier, k.expires_at, a.currency, w.balance, k.rpm, k.tpm, a.suspended_at,
        a.closed_at
    FROM accounts_apikey k
    JOIN accounts_account a ON a.id = k.account_id
    JOIN billing_wallet w ON w.account_id = k.account_id
    WHERE k.fingerprint = %s
"""
# The same query for the worker's libpq sessions, whose parameters have a number and a type.
PREPARED = Statement(b"authenticate", (SELECT % "$1::bytea").encode())
BALANCE = Statement(b"balance", b"SELECT balance FROM billing_wallet WHERE account_id = $1::uuid")


@dataclass(frozen=True, slots=True)
class Payer:
    """Holds an authenticated key with its rate limits, and the account that pays with its balance in units of money.

    `read_at` is a time of the monotonic clock, taken just before the balance was read.
    """

    key_id: uuid.UUID
    account_id: uuid.UUID
    currency: str
    balance: int
    rate_limits: RateLimits
    read_at: float = field(default_factory=time.monotonic)


def authenticate(token: str, environ: Mapping[str, Any]) -> Payer:
    """Reads the payer of a key from the database, and returns the connection to the pool at once.

    Also sets the key and the account on the request's event, even if the key has expired.
    Raises ApiKeyNotRegistered, AccountSuspended, AccountClosed, WorkerBusy, and like `accounts.keys.verify_key`.
    """
    # 1. Read the key, the account and the balance.
    event = event_of(environ)
    fingerprint = keys.fingerprint(token)
    if is_full():
        raise overload.refusal()
    sessions = sessions_of("default")
    read_at = time.monotonic()
    row = _ask(sessions, fingerprint) if sessions else on_a_live_connection(lambda: _select(fingerprint))
    if row is None:
        raise ApiKeyNotRegistered
    # 2. Note whose key it is, before a check can refuse it.
    key_id, account_id = _uuid(row[0]), _uuid(row[1])
    event.key_id, event.account_id, event.currency = key_id, account_id, row[4]
    # 3. Check the key, then the account.
    now = datetime.now(UTC)
    verify_key(token, row[2], _moment(row[3]), now)
    note_use(key_id, now)
    if row[8] is not None:
        raise keys.refusal_of_account(is_closed=row[9] is not None)
    return Payer(
        key_id=key_id,
        account_id=account_id,
        currency=row[4],
        balance=row[5],
        rate_limits=rate_limits_of(row[6], row[7]),
        read_at=read_at,
    )


def balance_of(account_id: uuid.UUID) -> int:
    """Reads an account's current balance, in units of money, and returns the connection to the pool at once.

    Raises Wallet.DoesNotExist.
    """
    sessions = sessions_of("default")
    if sessions is None:
        try:
            return to_units(on_a_live_connection(lambda: Wallet.objects.get(pk=account_id)).balance)
        finally:
            release("default")
    (balance,) = sessions.read(BALANCE, [account_id.hex.encode()]) or (None,)
    if balance is None:
        raise Wallet.DoesNotExist(f"Account {account_id} has no wallet.")
    return integer(balance)


def _select(fingerprint: bytes) -> tuple[Any, ...] | None:
    try:
        with connection.cursor() as cursor:
            cursor.execute(SELECT, [fingerprint])
            row: tuple[Any, ...] | None = cursor.fetchone()
            return row
    finally:
        release("default")


def _ask(sessions: Sessions, fingerprint: bytes) -> tuple[Any, ...] | None:
    """Reads the same row as `_select`, on a session of this worker."""
    row = sessions.read(PREPARED, [b"\\x" + fingerprint.hex().encode()])
    if row is None:
        return None
    key, account, verifier, expires, currency, balance, rpm, tpm, suspended, closed = row
    return (
        uuid.UUID(bytes=key),
        uuid.UUID(bytes=account),
        verifier,
        None if expires is None else moment(expires),
        currency.decode(),
        integer(balance),
        None if rpm is None else integer(rpm),
        None if tpm is None else integer(tpm),
        suspended,
        closed,
    )


def _moment(value: datetime | None) -> datetime | None:
    # Times from SQLite have no time zone.
    return value.replace(tzinfo=UTC) if value is not None and value.tzinfo is None else value


def _uuid(value: uuid.UUID | str) -> uuid.UUID:
    return value if isinstance(value, uuid.UUID) else uuid.UUID(value)
