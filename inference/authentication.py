"""Who asks, and may they: one SELECT over key, account and wallet."""

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from django.db import connection

from accounts import keys
from accounts.authentication import note_use, verify_key
from accounts.rate_limits import Budgets, budgets_of
from gateway.db import on_a_live_connection, release
from gateway.errors import ApiKeyNotRegistered
from gateway.money import MONEY_PLACES
from gateway.postgresql.prepared import Sessions, Statement, integer, moment, sessions_of
from gateway.request_events import RequestEvent

SELECT = """
    SELECT k.id, k.account_id, k.verifier, k.expires_at, a.currency, w.balance, k.rpm, k.tpm
    FROM accounts_apikey k
    JOIN accounts_account a ON a.id = k.account_id
    JOIN billing_wallet w ON w.account_id = k.account_id
    WHERE k.fingerprint = %s
"""


PREPARED = Statement(b"authenticate", SELECT.replace("%s", "$1::bytea").encode())


@dataclass(frozen=True, slots=True)
class Payer:
    """The authenticated key with its budgets, and the account and balance (in `currency`) that pay its requests."""

    key_id: uuid.UUID
    account_id: uuid.UUID
    currency: str
    balance: Decimal
    budgets: Budgets


def authenticate(token: str, event: RequestEvent) -> Payer:
    """The payer behind a key, read fresh on every request; the connection goes back at once.

    Raises the refusals of `accounts.authentication.verify_key`. The event learns whose key it is, of an expired one
    too.
    """
    fingerprint = keys.fingerprint(token)
    sessions = sessions_of("default")
    row = on_a_live_connection(lambda: _select(fingerprint)) if sessions is None else _ask(sessions, fingerprint)
    if row is None:
        raise ApiKeyNotRegistered
    key_id, account_id = _uuid(row[0]), _uuid(row[1])
    event.key_id, event.account_id, event.currency = key_id, account_id, row[4]
    now = datetime.now(UTC)
    verify_key(token, row[2], _moment(row[3]), now)
    note_use(key_id, now)
    return Payer(
        key_id=key_id,
        account_id=account_id,
        currency=row[4],
        balance=Decimal(row[5]).scaleb(-MONEY_PLACES),
        budgets=budgets_of(row[6], row[7]),
    )


def _select(fingerprint: bytes) -> tuple[Any, ...] | None:
    try:
        with connection.cursor() as cursor:
            cursor.execute(SELECT, [fingerprint])
            row: tuple[Any, ...] | None = cursor.fetchone()
            return row
    finally:
        release("default")


def _ask(sessions: Sessions, fingerprint: bytes) -> tuple[Any, ...] | None:
    """The same on a session of this worker."""
    row = sessions.read(PREPARED, [b"\\x" + fingerprint.hex().encode()])
    if row is None:
        return None
    key, account, verifier, expires, currency, balance, rpm, tpm = row
    return (
        uuid.UUID(bytes=key),
        uuid.UUID(bytes=account),
        verifier,
        None if expires is None else moment(expires),
        currency.decode(),
        integer(balance),
        None if rpm is None else integer(rpm),
        None if tpm is None else integer(tpm),
    )


def _moment(value: datetime | None) -> datetime | None:
    """SQLite's have no time zone."""
    return value.replace(tzinfo=UTC) if value is not None and value.tzinfo is None else value


def _uuid(value: uuid.UUID | str) -> uuid.UUID:
    return value if isinstance(value, uuid.UUID) else uuid.UUID(value)
