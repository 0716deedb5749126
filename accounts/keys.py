"""The life of an API key: issue, find, delete, purge. The only code that sees a token in clear."""

from datetime import datetime, timedelta

from django.db import IntegrityError, transaction
from django.utils import timezone

from . import tokens
from .models import Account, ApiKey

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


def issue(
    account: Account,
    *,
    name: str,
    lifetime: str = DEFAULT_LIFETIME,
    rpm: int | None = None,
    tpm: int | None = None,
    token: str | None = None,
) -> tuple[ApiKey, str]:
    """Creates a key and returns it with its token, which cannot be had again.

    `token` is for the demo, whose token is derived. Raises KeyNameTaken and InvalidKeyName.
    """
    name = name.strip()
    if not name or len(name) > MAX_NAME_LENGTH or not name.isprintable():
        raise InvalidKeyName(NAME_RULE)
    token = token or tokens.new_token()
    window = LIFETIMES[lifetime]
    key = ApiKey(
        account=account,
        name=name,
        fingerprint=tokens.fingerprint(token),
        verifier=tokens.verifier(token),
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
