"""Who asks, and may they: one SELECT over key, account and wallet."""

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.db import OperationalError, connection
from django.utils import timezone

from accounts import last_use, tokens
from accounts.authentication import StoredKey, bearer_token, judge
from accounts.budgets import Budgets, budgets_of
from gateway.db import on_a_live_connection, release
from gateway.errors import ApiKeyNotRegistered
from gateway.money import MONEY_PLACES
from gateway.postgresql.prepared import POSTGRES_EPOCH, Sessions, Statement, sessions_of

SELECT = """
    SELECT k.id, k.account_id, k.verifier, k.expires_at, a.currency, w.balance, k.rpm, k.tpm
    FROM accounts_apikey k
    JOIN accounts_account a ON a.id = k.account_id
    JOIN billing_wallet w ON w.account_id = k.account_id
    WHERE k.fingerprint = %s
"""


PREPARED = Statement(b"authenticate", SELECT.replace("%s", "$1::bytea").encode())
COLUMNS = range(8)
ROW = (0,) * len(COLUMNS)


@dataclass(frozen=True, slots=True)
class Payer:
    """The authenticated key with its budgets, and the account and balance (in `currency`) that pay its requests."""

    key_id: uuid.UUID
    account_id: uuid.UUID
    currency: str
    balance: Decimal
    budgets: Budgets


def authenticate(authorization: str | None) -> Payer:
    """The payer behind an Authorization header, read fresh on every request; the connection goes back at once.

    Raises the four refusals of `accounts.authentication`.
    """
    token = bearer_token(authorization)
    fingerprint = tokens.fingerprint(token)
    sessions = sessions_of("default")
    row = on_a_live_connection(lambda: _select(fingerprint)) if sessions is None else _ask(sessions, fingerprint)
    now = timezone.now()
    judge(token, None if row is None else _stored_key(row), now)
    if row is None:
        raise ApiKeyNotRegistered
    key_id = _uuid(row[0])
    last_use.note(key_id, now)
    return Payer(
        key_id=key_id,
        account_id=_uuid(row[1]),
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
    """The same on a session of this worker; asked once more where its connection had died."""
    parameters = [b"\\x" + fingerprint.hex().encode()]
    try:
        result = sessions.execute(PREPARED, parameters)
    except OperationalError:
        result = sessions.execute(PREPARED, parameters)
    if not result.ntuples:
        return None
    key, account, verifier, expires, currency, balance, rpm, tpm = map(result.get_value, ROW, COLUMNS)
    return (
        uuid.UUID(bytes=key),
        uuid.UUID(bytes=account),
        verifier,
        None if expires is None else POSTGRES_EPOCH + timedelta(microseconds=_integer(expires)),
        currency.decode(),
        _integer(balance),
        None if rpm is None else _integer(rpm),
        None if tpm is None else _integer(tpm),
    )


def _integer(value: bytes) -> int:
    return int.from_bytes(value, "big", signed=True)


def _stored_key(row: tuple[Any, ...]) -> StoredKey:
    verifier, expires_at = row[2], row[3]
    if isinstance(expires_at, str):  # SQLite has no type for it
        expires_at = datetime.fromisoformat(expires_at)
    if expires_at is not None and expires_at.tzinfo is None:
        expires_at = expires_at.replace(tzinfo=UTC)
    return StoredKey(None if verifier is None else bytes(verifier), expires_at)


def _uuid(value: uuid.UUID | str) -> uuid.UUID:
    return value if isinstance(value, uuid.UUID) else uuid.UUID(value)
