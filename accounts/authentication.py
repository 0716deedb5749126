"""From an Authorization header to a key, with the four refusals of docs/api.md#authentication; and when keys were used.

The hot path joins more tables into its SELECT (`inference.authentication`). Uses are noted in memory by each request
and written by the worker's beat.
"""

import hmac
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import F
from django.utils import timezone
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from gateway.db import on_a_live_connection
from gateway.errors import (
    ApiKeyExpired,
    ApiKeyMalformed,
    ApiKeyNotRegistered,
    AuthenticationError,
    MissingAuthorization,
    step,
)
from gateway.request_events import RequestEvent, event_of

from . import keys
from .models import ApiKey

SCHEME = "Bearer "
USES_IN_A_STATEMENT = 100
_used: dict[uuid.UUID, datetime] = {}  # when, by the key's id, since it was last written


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
    if token == header or not keys.is_token(token):
        raise ApiKeyMalformed
    return token


def token_of(environ: Mapping[str, Any]) -> str:
    """The token of a request that may carry it in `x-api-key` too, as Anthropic's SDKs do.

    Raises as `bearer_token`, and AuthenticationError where the two headers name different keys.
    """
    key, header = environ.get("HTTP_X_API_KEY"), environ.get("HTTP_AUTHORIZATION")
    if not key:
        return bearer_token(header)
    if header and header != SCHEME + key:
        raise AuthenticationError("The headers x-api-key and Authorization name different keys. Send one of them.")
    return bearer_token(SCHEME + key)


def verify_key(token: str, verifier: bytes | memoryview | None, expires_at: datetime | None, now: datetime) -> None:
    """Passes a key that may be used, by its row. Raises ApiKeyNotRegistered and ApiKeyExpired.

    Expiry comes first: an expired key's verifier may have been purged, and it is still recognised by its fingerprint.
    """
    if expires_at is not None and expires_at <= now:
        raise ApiKeyExpired
    if verifier is None or not hmac.compare_digest(keys.verifier(token), verifier):
        raise ApiKeyNotRegistered


def caller_of(token: str, event: RequestEvent | None = None) -> Caller:
    """One SELECT by fingerprint, uncached: a deleted key fails at once. Raises as `verify_key`.

    The event, where there is one, learns whose key it is, of an expired one too.
    """
    known = ApiKey.objects.filter(fingerprint=keys.fingerprint(token))
    fields = known.values("id", "account_id", "verifier", "expires_at", currency=F("account__currency"))
    row = on_a_live_connection(fields.first)
    if row is None:
        raise ApiKeyNotRegistered
    if event is not None:
        event.account_id, event.key_id = row["account_id"], row["id"]
    now = timezone.now()
    verify_key(token, row["verifier"], row["expires_at"], now)
    note_use(row["id"], now)
    return Caller(row["id"], row["account_id"], row["currency"])


def caller_behind(request: Request) -> Caller:
    """Who asks, in a control-plane view."""
    caller: Caller = request.user  # type: ignore[assignment]  # what BearerAuthentication makes of a key
    return caller


class BearerAuthentication(BaseAuthentication):
    """DRF's way in for every control-plane endpoint."""

    def authenticate(self, request: Request) -> tuple[Caller, None]:
        with step("authenticating the key"):
            return caller_of(self.token(request), event_of(request.META)), None

    def token(self, request: Request) -> str:
        """The key that the request carries. Raises AuthenticationError."""
        return bearer_token(request.META.get("HTTP_AUTHORIZATION"))


class KeyAuthentication(BearerAuthentication):
    """The way into endpoints that Anthropic's SDKs ask too."""

    def token(self, request: Request) -> str:
        """See BearerAuthentication."""
        return token_of(request.META)


def note_use(key_id: uuid.UUID, now: datetime) -> None:
    """Remembers a use, for the next beat."""
    _used[key_id] = now


def write_uses() -> None:
    """Writes what has been noted since the last beat, and no more: uses noted meanwhile wait for the next one.

    What could not be written is noted again.
    """
    noted = dict(_used)
    _used.clear()
    waiting = list(noted.items())
    while waiting:
        batch = waiting[:USES_IN_A_STATEMENT]
        try:
            ApiKey.objects.bulk_update([ApiKey(id=key, last_used_at=at) for key, at in batch], ["last_used_at"])
        except Exception:
            for key, used_at in waiting:
                _used.setdefault(key, used_at)
            raise
        waiting = waiting[USES_IN_A_STATEMENT:]
