"""The life of an API key: issue, find, delete, purge; and its token, of which two domain-separated digests are kept.

A token carries 256 random bits, so a plain SHA-256 of it cannot be searched; it does not depend on SECRET_KEY, whose
rotation must not end every key.
"""

import hashlib
import re
import secrets
from datetime import datetime, timedelta

from django.db import IntegrityError, transaction
from django.utils import timezone

from .models import TOKEN_PREFIX, Account, ApiKey

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
MAX_NAME_LENGTH = 200
NAME_RULE = f"A key's name is 1 to {MAX_NAME_LENGTH} printable characters."


class KeyNameTaken(ValueError):
    """The account has a live key of that name."""


class InvalidKeyName(ValueError):
    """Empty, too long, or not printable."""


def new_token() -> str:
    """A fresh token: the prefix and 32 random bytes, which are 43 base64url characters."""
    return TOKEN_PREFIX + secrets.token_urlsafe(32)


def is_token(text: str) -> bool:
    """Whether the text could be a token of the current scheme."""
    return _TOKEN.fullmatch(text) is not None


def fingerprint(token: str) -> bytes:
    """Finds the key's row; says nothing about the token to whoever reads the table."""
    return hashlib.sha256(b"gateway key fingerprint\0" + token.encode()).digest()


def verifier(token: str) -> bytes:
    """Proves the token, compared in constant time; purged when the key expires or is deleted."""
    return hashlib.sha256(b"gateway key verifier\0" + token.encode()).digest()


def issue(
    account: Account,
    *,
    name: str,
    lifetime: str = DEFAULT_LIFETIME,
    rpm: int | None = None,
    tpm: int | None = None,
) -> tuple[ApiKey, str]:
    """Creates a key and returns it with its token, which cannot be had again. Raises KeyNameTaken, InvalidKeyName."""
    name = name.strip()
    if not name or len(name) > MAX_NAME_LENGTH or not name.isprintable():
        raise InvalidKeyName(NAME_RULE)
    token, window = new_token(), LIFETIMES[lifetime]
    key = ApiKey(
        account=account,
        name=name,
        fingerprint=fingerprint(token),
        verifier=verifier(token),
        last_four=token[-4:],
        rpm=rpm,
        tpm=tpm,
        expires_at=None if window is None else timezone.now() + window,
    )
    try:
        with transaction.atomic():
            key.save(force_insert=True)
    except IntegrityError:
        if find(account, name) is None:
            raise
        raise KeyNameTaken(f"The account already has a key named {name!r}.") from None
    return key, token


def find(account: Account, name: str) -> ApiKey | None:
    """The account's live key of that name, expired ones included."""
    return ApiKey.objects.filter(account=account, name=name, deleted_at=None).first()


def delete(key: ApiKey) -> bool:
    """Takes the key out of service for the very next request. False where it was deleted already."""
    changed = ApiKey.objects.filter(pk=key.pk, deleted_at=None).update(
        deleted_at=timezone.now(), fingerprint=None, verifier=None
    )
    return bool(changed)


def purge_expired(now: datetime) -> int:
    """Removes the verifiers of keys past their expiry; their fingerprints stay. Returns how many."""
    return ApiKey.objects.filter(expires_at__lte=now, verifier__isnull=False).update(verifier=None)
