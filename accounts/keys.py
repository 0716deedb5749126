"""API keys, and how a request names and proves one. Of a token's 256 random bits two digests are kept."""

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
from gateway.observing.request_events import (
    RequestEvent,
    event_of,
)
from gateway.observing.write_behind import WriteBehind
from gateway.server.db import on_a_live_connection

from . import names
from .models import TOKEN_PREFIX, Account, ApiKey, User

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
    """A live key has that name."""


class InvalidKeyName(ValueError):
    """Empty, too long, or not printable."""


def new_token() -> str:
    """The prefix and 43 base64url characters."""
    return TOKEN_PREFIX + secrets.token_urlsafe(32)


def is_token(text: str) -> bool:
    """True for the form of a token."""
    return _TOKEN.fullmatch(text) is not None


def fingerprint(token: str) -> bytes:
    """The digest that finds the key's row."""
    return hashlib.sha256(b"gateway key fingerprint\0" + token.encode()).digest()


def verifier(token: str) -> bytes:
    """The digest that proves the token; purged with the key."""
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
    """Creates a key; its token cannot be had again.

    Raises KeyNameTaken, InvalidKeyName, AccountSuspended and AccountClosed.
    """
    if account.suspended_at is not None:
        raise refusal_of_account(is_closed=account.closed_at is not None)
    name = _checked(name)
    token, window = new_token(), LIFETIMES[lifetime]
    key = ApiKey(
        account=account,
        name=name,
        fingerprint=fingerprint(token),
        verifier=verifier(token),
        last_four=token[-4:],
        rpm=rpm,
        tpm=tpm,
        created_by=created_by,
        expires_at=None if window is None else timezone.now() + window,
    )
    with unique_name(account, name), transaction.atomic():
        key.save(force_insert=True)
    return key, token


def rename(key: ApiKey, name: str) -> None:
    """Renames the key and its records. Raises KeyNameTaken, InvalidKeyName."""
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
    """Raises KeyNameTaken where the block takes a live key's name."""
    try:
        yield
    except IntegrityError:
        if find(account, name) is None:
            raise
        raise KeyNameTaken(f"The account already has a key named {name!r}.") from None


def find(account: Account, name: str) -> ApiKey | None:
    """The account's live key of that name."""
    live = ApiKey.objects.filter(account=account, deleted_at=None)
    return live.filter(name=name).first() or live.filter(name=names.tidied(name)).first()


def delete(key: ApiKey) -> bool:
    """Takes the key out of service at once; False where it was already."""
    changed = ApiKey.objects.filter(pk=key.pk, deleted_at=None).update(
        deleted_at=timezone.now(), fingerprint=None, verifier=None
    )
    return bool(changed)


def purge_expired(now: datetime) -> int:
    """Removes expired keys' verifiers, and returns how many."""
    return ApiKey.objects.filter(expires_at__lte=now, verifier__isnull=False).update(verifier=None)


@dataclass(frozen=True, slots=True)
class Caller:
    """The key and its account: `request.user` of the control plane."""

    key_id: uuid.UUID
    account_id: uuid.UUID
    currency: str
    is_suspended: bool = False  # a closed one too
    is_closed: bool = False
    is_authenticated: bool = True


def bearer_token(header: str | None) -> str:
    """The token of an Authorization header. Raises AuthenticationError."""
    if not header:
        raise MissingAuthorization
    token = header.removeprefix(SCHEME)
    if token == header or not is_token(token):
        raise ApiKeyMalformed
    return token


def token_of(environ: Mapping[str, Any]) -> str:
    """The token, in `x-api-key` too. Raises AuthenticationError."""
    key, header = environ.get("HTTP_X_API_KEY"), environ.get("HTTP_AUTHORIZATION")
    if not (key or header):
        raise MissingKey
    if not key:
        return bearer_token(header)
    if header and header != SCHEME + key:
        raise AuthenticationError("The headers x-api-key and Authorization name different keys. Send one of them.")
    return bearer_token(SCHEME + key)


def verify_key(token: str, kept: bytes | memoryview | None, expires_at: datetime | None, now: datetime) -> None:
    """Passes a usable key. Raises AuthenticationError."""
    if expires_at is not None and expires_at <= now:
        raise ApiKeyExpired
    if kept is None or not hmac.compare_digest(verifier(token), kept):
        raise ApiKeyNotRegistered


def refusal_of_account(*, is_closed: bool) -> AccountSuspended:
    """Returns the error for whoever asks for more than reading in an account that is suspended or closed."""
    return AccountClosed() if is_closed else AccountSuspended()


def caller_of(token: str, event: RequestEvent | None = None) -> Caller:
    """The caller behind a token, by one uncached SELECT."""
    known = ApiKey.objects.filter(fingerprint=fingerprint(token))
    fields = known.values(
        *("id", "account_id", "verifier", "expires_at"),
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


def caller_behind(request: Request) -> Caller:
    """The caller in a control-plane view."""
    caller: Caller = request.user  # type: ignore[assignment]  # what BearerAuthentication makes of a key
    return caller


class BearerAuthentication(BaseAuthentication):
    """DRF's way into the control plane. The keys of a suspended account may read, and change nothing."""

    def authenticate(self, request: Request) -> tuple[Caller, None]:
        with step("authenticating the key"):
            caller = caller_of(self.token(request), event_of(request.META))
        if caller.is_suspended and request.method not in SAFE_METHODS:
            raise refusal_of_account(is_closed=caller.is_closed)
        return caller, None

    def token(self, request: Request) -> str:
        return bearer_token(request.META.get("HTTP_AUTHORIZATION"))


class KeyAuthentication(BearerAuthentication):
    """The way in for Anthropic's SDKs too."""

    def token(self, request: Request) -> str:
        return token_of(request.META)


def _write_uses(used: dict[uuid.UUID, datetime]) -> None:
    ApiKey.objects.bulk_update([ApiKey(id=key, last_used_at=at) for key, at in used.items()], ["last_used_at"])


_uses: WriteBehind[uuid.UUID, datetime] = WriteBehind(_write_uses, at_once=USES_IN_A_STATEMENT)
note_use = _uses.note  # (the key's id, now)


def write_uses() -> None:
    """Writes the noted uses."""
    _uses.flush()
