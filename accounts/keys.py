"""Issues, finds and deletes API keys, and authenticates requests of the control plane.

Only two digests of a token are stored. inference/authentication.py authenticates requests for inference.
"""

import hashlib
import hmac
import re
import secrets
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F
from django.utils import timezone
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request

from gateway.db.pool import on_a_live_connection
from gateway.errors import (
    AccountClosed,
    AccountSuspended,
    ApiKeyExpired,
    ApiKeyMalformed,
    ApiKeyNotRegistered,
    AuthenticationError,
    MissingAuthorization,
    MissingKey,
    step,
)
from gateway.observing.request_events import RequestEvent, event_of
from gateway.observing.write_behind import WriteBehind

from . import names
from .models import TOKEN_PREFIX, Account, ApiKey, User

# Any printable ASCII except quotes, also beyond base64url: an unknown key is "not registered" rather than "malformed".
_TOKEN = re.compile(rf"{TOKEN_PREFIX}[!#-&(-~]{{43}}")

LIFETIMES: dict[str, timedelta | None] = {
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
    "90d": timedelta(days=90),
    "180d": timedelta(days=180),
    "1y": timedelta(days=365),
    "never": None,
}
DEFAULT_LIFETIME = "90d"
MAX_NAME_LENGTH = names.MAX_LENGTH
NAME_RULE = f"A key's name is 1 to {MAX_NAME_LENGTH} printable characters."
SCHEME = "Bearer "
USES_IN_A_STATEMENT = 100


class KeyNameTaken(ValueError):
    """The account has a key with this name that is not deleted."""


class InvalidKeyName(ValueError):
    """The name is empty, too long, or not printable."""


def new_token() -> str:
    """Returns a new token: the prefix and 43 random base64url characters (256 bits)."""
    return TOKEN_PREFIX + secrets.token_urlsafe(32)


def is_token(text: str) -> bool:
    """Tells whether the text has the form of a token."""
    return _TOKEN.fullmatch(text) is not None


def fingerprint(token: str) -> bytes:
    """Returns the digest that finds the key's row."""
    return hashlib.sha256(b"gateway key fingerprint\0" + token.encode()).digest()


def verifier(token: str) -> bytes:
    """Returns the digest that proves the token. It is removed when the key expires or is deleted."""
    return hashlib.sha256(b"gateway key verifier\0" + token.encode()).digest()


def issue(
    account: Account,
    *,
    name: str,
    lifetime: str = DEFAULT_LIFETIME,
    rpm: int | None = None,
    tpm: int | None = None,
    created_by: User | None = None,
) -> tuple[ApiKey, str]:
    """Creates a key. Returns it and its token, which is not stored.

    Raises KeyNameTaken, InvalidKeyName, AccountSuspended and AccountClosed.
    """
    if account.suspended_at is not None:
        raise refusal_of_account(is_closed=account.closed_at is not None)
    name = _checked(name)
    token, time_left = new_token(), LIFETIMES[lifetime]
    key = ApiKey(
        account=account,
        name=name,
        fingerprint=fingerprint(token),
        verifier=verifier(token),
        last_four=token[-4:],
        rpm=rpm,
        tpm=tpm,
        created_by=created_by,
        expires_at=None if time_left is None else timezone.now() + time_left,
    )
    with unique_name(account, name), transaction.atomic():
        key.save(force_insert=True)
    return key, token


def rename(key: ApiKey, name: str) -> None:
    """Renames a key; its records show the new name. Raises KeyNameTaken, InvalidKeyName."""
    name = _checked(name)
    with unique_name(key.account, name), transaction.atomic():
        ApiKey.objects.filter(pk=key.pk, deleted_at=None).update(name=name)


def _checked(name: str) -> str:
    name = names.tidied(name)
    if not names.is_name(name):
        raise InvalidKeyName(NAME_RULE)
    return name


@contextmanager
def unique_name(account: Account, name: str) -> Iterator[None]:
    """Raises KeyNameTaken if the block saves a name that another key of the account has."""
    try:
        yield
    except IntegrityError:
        if find(account, name) is None:
            raise
        raise KeyNameTaken(f"The account already has a key named {name!r}.") from None


def find(account: Account, name: str) -> ApiKey | None:
    """Returns the account's key with this name, or None. Ignores deleted keys."""
    live = ApiKey.objects.filter(account=account, deleted_at=None)
    return live.filter(name=name).first() or live.filter(name=names.tidied(name)).first()


def delete(key: ApiKey) -> bool:
    """Deletes a key, so that its next request fails; returns False if it was deleted already."""
    changed = ApiKey.objects.filter(pk=key.pk, deleted_at=None).update(
        deleted_at=timezone.now(), fingerprint=None, verifier=None
    )
    return bool(changed)


def purge_expired(now: datetime) -> int:
    """Removes the verifiers of expired keys. Returns the number of these keys."""
    return ApiKey.objects.filter(expires_at__lte=now, verifier__isnull=False).update(verifier=None)


@dataclass(frozen=True, slots=True)
class Caller:
    """Identifies the key of a request and its account. It is `request.user` in the control plane."""

    key_id: uuid.UUID
    account_id: uuid.UUID
    currency: str
    is_suspended: bool = False  # a closed account is suspended too
    is_closed: bool = False
    is_authenticated: bool = True


def bearer_token(header: str | None) -> str:
    """Returns the token in an Authorization header. Raises AuthenticationError."""
    if not header:
        raise MissingAuthorization
    token = header.removeprefix(SCHEME)
    if token == header or not is_token(token):
        raise ApiKeyMalformed
    return token


def token_of(environ: Mapping[str, Any]) -> str:
    """Returns the token in a request's `x-api-key` or Authorization header. Raises AuthenticationError."""
    key, header = environ.get("HTTP_X_API_KEY"), environ.get("HTTP_AUTHORIZATION")
    if not (key or header):
        raise MissingKey
    if not key:
        return bearer_token(header)
    if header and header != SCHEME + key:
        raise AuthenticationError("The headers x-api-key and Authorization name different keys. Send one of them.")
    return bearer_token(SCHEME + key)


def verify_key(token: str, stored: bytes | memoryview | None, expires_at: datetime | None, now: datetime) -> None:
    """Raises ApiKeyExpired or ApiKeyNotRegistered unless the token matches `stored`, the verifier in the key's row."""
    if expires_at is not None and expires_at <= now:
        raise ApiKeyExpired
    if stored is None or not hmac.compare_digest(verifier(token), stored):
        raise ApiKeyNotRegistered


def refusal_of_account(*, is_closed: bool) -> AccountSuspended:
    """Returns the error for a request that is refused because its account is suspended or closed."""
    return AccountClosed() if is_closed else AccountSuspended()


def caller_of(token: str, event: RequestEvent | None = None) -> Caller:
    """Returns the caller that a token belongs to, with one uncached SELECT. Raises AuthenticationError.

    Also records the key and account on the event, even if the key has expired.
    """
    known = ApiKey.objects.filter(fingerprint=fingerprint(token))
    fields = known.values(
        "id",
        "account_id",
        "verifier",
        "expires_at",
        currency=F("account__currency"),
        suspended_at=F("account__suspended_at"),
        closed_at=F("account__closed_at"),
    )
    row = on_a_live_connection(fields.first)
    if row is None:
        raise ApiKeyNotRegistered
    if event is not None:
        event.account_id, event.key_id = row["account_id"], row["id"]
    now = timezone.now()
    verify_key(token, row["verifier"], row["expires_at"], now)
    note_use(row["id"], now)
    is_suspended, is_closed = row["suspended_at"] is not None, row["closed_at"] is not None
    return Caller(row["id"], row["account_id"], row["currency"], is_suspended, is_closed)


def caller_of_request(request: Request) -> Caller:
    """Returns the caller of a request in a view of the control plane."""
    caller: Caller = request.user  # type: ignore[assignment]  # BearerAuthentication sets it
    return caller


class BearerAuthentication(BaseAuthentication):
    """Authenticates requests of the control plane for DRF. Keys of a suspended account may only read."""

    def authenticate(self, request: Request) -> tuple[Caller, None]:
        with step("authenticating the key"):
            caller = caller_of(self.token(request), event_of(request.META))
        if caller.is_suspended and request.method not in SAFE_METHODS:
            raise refusal_of_account(is_closed=caller.is_closed)
        return caller, None

    def token(self, request: Request) -> str:
        return bearer_token(request.META.get("HTTP_AUTHORIZATION"))


class KeyAuthentication(BearerAuthentication):
    """Authenticates requests of the control plane, also from Anthropic's SDKs, which send `x-api-key`."""

    def token(self, request: Request) -> str:
        return token_of(request.META)


def _write_uses(used: dict[uuid.UUID, datetime]) -> None:
    ApiKey.objects.bulk_update([ApiKey(id=key, last_used_at=at) for key, at in used.items()], ["last_used_at"])


_uses: WriteBehind[uuid.UUID, datetime] = WriteBehind(_write_uses, at_once=USES_IN_A_STATEMENT)
note_use = _uses.note  # (the key's id, now)


def write_uses() -> None:
    """Writes to the database when keys were last used."""
    _uses.flush()
