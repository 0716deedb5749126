"""Who asks, and may they: one SELECT over key, account and wallet."""

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from django.db import connection
from django.utils import timezone

from accounts import last_use, tokens
from accounts.authentication import StoredKey, bearer_token, judge
from accounts.budgets import Budgets, budgets_of
from gateway.db import on_a_live_connection, release
from gateway.errors import ApiKeyNotRegistered
from gateway.money import MONEY_PLACES

SELECT = """
    SELECT k.id, k.account_id, k.verifier, k.expires_at, a.currency, w.balance, k.rpm, k.tpm
    FROM accounts_apikey k
    JOIN accounts_account a ON a.id = k.account_id
    JOIN billing_wallet w ON w.account_id = k.account_id
    WHERE k.fingerprint = %s
"""


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
    row = on_a_live_connection(lambda: _select(tokens.fingerprint(token)))
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


def _stored_key(row: tuple[Any, ...]) -> StoredKey:
    verifier, expires_at = row[2], row[3]
    if isinstance(expires_at, str):  # SQLite has no type for it
        expires_at = datetime.fromisoformat(expires_at)
    if expires_at is not None and expires_at.tzinfo is None:
        expires_at = expires_at.replace(tzinfo=UTC)
    return StoredKey(None if verifier is None else bytes(verifier), expires_at)


def _uuid(value: uuid.UUID | str) -> uuid.UUID:
    return value if isinstance(value, uuid.UUID) else uuid.UUID(value)
