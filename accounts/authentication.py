"""From an Authorization header to a key, with the four refusals of docs/api.md#authentication.

The hot path joins more tables into its SELECT (`inference.admission`) and shares `bearer_token` and `judge` with the
control plane's DRF authentication here.
"""

import uuid
from dataclasses import dataclass
from datetime import datetime

from django.db.models import F
from django.utils import timezone
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from gateway.db import on_a_live_connection
from gateway.errors import ApiKeyExpired, ApiKeyMalformed, ApiKeyNotRegistered, MissingAuthorization
from gateway.steps import step

from . import last_use, tokens
from .models import ApiKey

SCHEME = "Bearer "


@dataclass(frozen=True, slots=True)
class StoredKey:
    """What the table says about the key that a fingerprint found."""

    verifier: bytes | None
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class Caller:
    """The authenticated key and the account that it belongs to: `request.user` of the control plane."""

    key_id: uuid.UUID
    account_id: uuid.UUID
    currency: str
    is_authenticated: bool = True


def bearer_token(header: str | None) -> str:
    """The token of an Authorization header. Raises MissingAuthorization and ApiKeyMalformed."""
    if not header:
        raise MissingAuthorization
    token = header.removeprefix(SCHEME)
    if token == header or not tokens.is_well_shaped(token):
        raise ApiKeyMalformed
    return token


def judge(token: str, key: StoredKey | None, now: datetime) -> None:
    """Passes a key that may be used. Raises ApiKeyNotRegistered and ApiKeyExpired.

    Expiry comes first: an expired key's verifier may have been purged, and it is still recognised by its fingerprint.
    """
    if key is None:
        raise ApiKeyNotRegistered
    if key.expires_at is not None and key.expires_at <= now:
        raise ApiKeyExpired
    if key.verifier is None or not tokens.matches(token, key.verifier):
        raise ApiKeyNotRegistered


def caller_of(token: str) -> Caller:
    """One SELECT by fingerprint, uncached: a deleted key fails at once. Raises as `judge`."""
    known = ApiKey.objects.filter(fingerprint=tokens.fingerprint(token))
    fields = known.values("id", "account_id", "verifier", "expires_at", currency=F("account__currency"))
    row = on_a_live_connection(fields.first)
    stored = None if row is None else StoredKey(_as_bytes(row["verifier"]), row["expires_at"])
    now = timezone.now()
    judge(token, stored, now)
    assert row is not None  # noqa: S101  # judge has refused otherwise
    last_use.note(row["id"], now)
    return Caller(row["id"], row["account_id"], row["currency"])


def caller_behind(request: Request) -> Caller:
    """Who asks, in a control-plane view."""
    caller: Caller = request.user  # type: ignore[assignment]  # what BearerAuthentication makes of a key
    return caller


def _as_bytes(value: bytes | memoryview | None) -> bytes | None:
    return None if value is None else bytes(value)


class BearerAuthentication(BaseAuthentication):
    """DRF's way in for every control-plane endpoint."""

    def authenticate(self, request: Request) -> tuple[Caller, None]:
        with step("authenticating the key"):
            return caller_of(bearer_token(request.META.get("HTTP_AUTHORIZATION"))), None
