"""Issues, changes, rotates, finds and deletes API keys, and authenticates requests of the control plane.

Only two digests of a token are stored. inference/authentication.py authenticates requests for inference. The prefix of
a token tells the kind of its key (docs/management.md#keys-of-three-kinds).
"""

import hashlib
import hmac
import re
import secrets
import uuid
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar

from django.db import IntegrityError, transaction
from django.db.models import F, Value
from django.db.models.functions import Least
from django.utils import timezone
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request

from gateway.db.pool import on_a_live_connection
from gateway.edge.address_limit import client_address
from gateway.errors import (
    AccountClosed,
    AccountSuspended,
    ApiKeyDisabled,
    ApiKeyExpired,
    ApiKeyMalformed,
    ApiKeyNotRegistered,
    AuthenticationError,
    KeyKindNotAllowed,
    MissingAuthorization,
    MissingKey,
    step,
)
from gateway.observing.request_events import RequestEvent, event_of
from gateway.observing.write_behind import WriteBehind

from . import audit, names
from .actions import Action
from .audit import Actor, Subject
from .members import locked_account
from .models import PREFIXES, Account, ApiKey, AuditEvent, FormerToken, KeyKind, OperatorKey, User

# Any printable ASCII except quotes, also beyond base64url: an unknown key is "not registered" rather than "malformed".
_TOKEN = re.compile(r"sk-g[wmo]-[!#-&(-~]{43}")

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
LONGEST_OVERLAP_HOURS = 168


class KeyNameTaken(ValueError):
    """The account has a key with this name that is not deleted."""


class InvalidKeyName(ValueError):
    """The name is empty, too long, or not printable."""


def new_token(kind: KeyKind = KeyKind.INFERENCE) -> str:
    """Returns a new token: the kind's prefix and 43 random base64url characters (256 bits)."""
    return PREFIXES[kind] + secrets.token_urlsafe(32)


def kind_of(token: str) -> KeyKind:
    """Returns the kind that the prefix of a well-formed token stands for."""
    return next(kind for kind, prefix in PREFIXES.items() if token.startswith(prefix))


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
    kind: KeyKind = KeyKind.INFERENCE,
    lifetime: str | datetime | None = DEFAULT_LIFETIME,
    rpm: int | None = None,
    tpm: int | None = None,
    created_by: User | None = None,
) -> tuple[ApiKey, str]:
    """Creates a key. Returns it and its token, which is not stored. The lifetime is one of LIFETIMES, or the moment
    of the key's end; None is for ever.

    Raises KeyNameTaken, InvalidKeyName, AccountSuspended and AccountClosed.
    """
    name = _checked(name)
    token = new_token(kind)
    expires_at = end_of(lifetime) if isinstance(lifetime, str) else lifetime
    key = ApiKey(
        account=account,
        kind=kind,
        name=name,
        fingerprint=fingerprint(token),
        verifier=verifier(token),
        last_four=token[-4:],
        rpm=rpm,
        tpm=tpm,
        created_by=created_by,
        expires_at=expires_at,
    )
    with unique_name(account, name), transaction.atomic():
        require_not_suspended(account.pk)
        key.save(force_insert=True)
        audit.record(account.pk, Action.KEY_CREATED, Subject.of_key(key), new=_described(key))
    return key, token


def end_of(lifetime: str) -> datetime | None:
    """Returns when a key with this lifetime expires, if it is made now; None if it never does."""
    time_left = LIFETIMES[lifetime]
    return None if time_left is None else timezone.now() + time_left


def change(key: ApiKey, **values: Any) -> bool:
    """Changes a key's `name`, `expires_at`, `rpm` or `tpm`; its records show the new name.

    Tells whether anything changed. Raises KeyNameTaken and InvalidKeyName.
    """
    if "name" in values:
        values["name"] = _checked(values["name"])
    with unique_name(key.account, values.get("name", key.name)), transaction.atomic():
        found = _locked(key)
        if found is None:
            return False
        old, changed = (
            _described(found),
            {name: value for name, value in values.items() if getattr(found, name) != value},
        )
        if not changed:
            return False
        for each in (found, key):
            vars(each).update(changed)
        if changed.get("expires_at") is not None and found.verifier is None:
            raise ApiKeyExpired  # its verifier has been removed, so it cannot work again
        found.save(update_fields=[*changed])
        new = _described(found)
        audit.record(
            found.account_id,
            Action.KEY_CHANGED,
            Subject.of_key(found),
            old={name: old[name] for name in changed},
            new={name: new[name] for name in changed},
        )
    return True


def rename(key: ApiKey, name: str) -> None:
    """Renames a key; its records show the new name. Raises KeyNameTaken, InvalidKeyName."""
    change(key, name=name)


def set_disabled(key: ApiKey, is_disabled: bool) -> None:
    """Disables a key, so that its next request is refused, or enables it again. Idempotent."""
    with transaction.atomic():
        found = _locked(key)
        if found is None or (found.disabled_at is not None) == is_disabled:
            return
        found.disabled_at = key.disabled_at = timezone.now() if is_disabled else None
        found.save(update_fields=["disabled_at"])
        audit.record(
            found.account_id, Action.KEY_DISABLED if is_disabled else Action.KEY_ENABLED, Subject.of_key(found)
        )


def rotate(key: ApiKey, overlap: timedelta) -> str:
    """Gives a key a new token and returns it. The former one works for the time of the overlap.

    Raises ApiKeyNotRegistered if the key has been deleted, ApiKeyExpired, AccountSuspended and AccountClosed.
    """
    with transaction.atomic():
        require_not_suspended(key.account_id)
        found = _locked(key)
        if found is None:
            raise ApiKeyNotRegistered
        if found.verifier is None or (found.expires_at is not None and found.expires_at <= timezone.now()):
            raise ApiKeyExpired
        works_until = timezone.now() + overlap
        found.former_tokens.update(works_until=Least("works_until", Value(works_until)))
        if overlap:
            found.former_tokens.create(fingerprint=found.fingerprint, verifier=found.verifier, works_until=works_until)
        token = new_token(KeyKind(found.kind))
        found.fingerprint, found.verifier, found.last_four = fingerprint(token), verifier(token), token[-4:]
        found.save(update_fields=["fingerprint", "verifier", "last_four"])
        key.last_four = found.last_four
        audit.record(
            found.account_id,
            Action.KEY_ROTATED,
            Subject.of_key(found),
            new={"former_works_until": works_until.isoformat()},
        )
    return token


def _locked(key: ApiKey) -> ApiKey | None:
    """Returns the key with its row locked, or None if it has been deleted."""
    return ApiKey.objects.select_for_update(no_key=True).filter(pk=key.pk, deleted_at=None).first()


def _described(key: ApiKey) -> dict[str, Any]:
    """Returns what the audit log keeps of a key."""
    expires_at = None if key.expires_at is None else key.expires_at.isoformat()
    return {"kind": key.kind, "name": key.name, "expires_at": expires_at, "rpm": key.rpm, "tpm": key.tpm}


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
    with transaction.atomic():
        changed = ApiKey.objects.filter(pk=key.pk, deleted_at=None).update(
            deleted_at=timezone.now(), fingerprint=None, verifier=None
        )
        if changed:
            FormerToken.objects.filter(key=key).delete()
            audit.record(key.account_id, Action.KEY_DELETED, Subject.of_key(key))
    return bool(changed)


def purge_expired(now: datetime) -> int:
    """Removes the verifiers of expired keys, and former tokens that no longer work. Returns how many keys."""
    FormerToken.objects.filter(works_until__lte=now).delete()
    return ApiKey.objects.filter(expires_at__lte=now, verifier__isnull=False).update(verifier=None)


@dataclass(frozen=True, slots=True)
class Caller:
    """Identifies the key of a request and its account. It is `request.user` in the control plane."""

    key_id: uuid.UUID
    account_id: uuid.UUID
    currency: str
    kind: KeyKind = KeyKind.INFERENCE
    key_name: str = ""
    is_suspended: bool = False  # a closed account is suspended too
    is_closed: bool = False
    is_authenticated: bool = True


@dataclass(frozen=True, slots=True)
class Operator:
    """Identifies the operator key of a request. It is `request.user` of the operator's endpoints."""

    key: OperatorKey
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


def verify_key(
    token: str,
    stored: bytes | memoryview | None,
    expires_at: datetime | None,
    now: datetime,
    *,
    disabled_at: datetime | None = None,
) -> None:
    """Checks a token against `stored`, the verifier in the key's row.

    Raises ApiKeyExpired, ApiKeyNotRegistered and ApiKeyDisabled.
    """
    if expires_at is not None and expires_at <= now:
        raise ApiKeyExpired
    if stored is None or not hmac.compare_digest(verifier(token), stored):
        raise ApiKeyNotRegistered
    if disabled_at is not None:
        raise ApiKeyDisabled


def key_of_former_token(token: str) -> tuple[uuid.UUID, bytes]:
    """Finds the key whose former token this is. Returns the key's id and the token's verifier.

    The present token would not do instead of the id, because another rotation may replace it meanwhile.
    Raises ApiKeyNotRegistered if there is none, or the overlap after its rotation has ended.
    """
    former = FormerToken.objects.filter(fingerprint=fingerprint(token), works_until__gt=timezone.now())
    found = on_a_live_connection(former.values_list("key_id", "verifier").first)
    if found is None:
        raise ApiKeyNotRegistered
    return found[0], bytes(found[1])


def refusal_of_account(*, is_closed: bool) -> AccountSuspended:
    """Returns the error for a request that is refused because its account is suspended or closed."""
    return AccountClosed() if is_closed else AccountSuspended()


def require_not_suspended(account_id: uuid.UUID) -> None:
    """Locks the account, so that it is not suspended or closed meanwhile. Raises AccountSuspended and AccountClosed."""
    account = locked_account(account_id)
    if account.suspended_at is not None:
        raise refusal_of_account(is_closed=account.closed_at is not None)


def caller_of(token: str, event: RequestEvent | None = None) -> Caller:
    """Returns the caller that a token belongs to, with one uncached SELECT, or three for a key's former token.

    Also records the key and account on the event, even if the key has expired. Raises AuthenticationError.
    """
    row = _caller_row(fingerprint=fingerprint(token))
    if row is None:
        key_id, verifier_of_former = key_of_former_token(token)
        row = _caller_row(pk=key_id)
        if row is None:
            raise ApiKeyNotRegistered
        row["verifier"] = verifier_of_former
    if event is not None:
        event.account_id, event.key_id = row["account_id"], row["id"]
    now = timezone.now()
    verify_key(token, row["verifier"], row["expires_at"], now, disabled_at=row["disabled_at"])
    note_use(row["id"], now)
    return Caller(
        row["id"],
        row["account_id"],
        row["currency"],
        KeyKind(row["kind"]),
        row["name"],
        is_suspended=row["suspended_at"] is not None,
        is_closed=row["closed_at"] is not None,
    )


def _caller_row(**found_by: Any) -> dict[str, Any] | None:
    fields = ApiKey.objects.filter(**found_by, deleted_at=None).values(
        "id",
        "account_id",
        "kind",
        "name",
        "verifier",
        "expires_at",
        "disabled_at",
        currency=F("account__currency"),
        suspended_at=F("account__suspended_at"),
        closed_at=F("account__closed_at"),
    )
    found = on_a_live_connection(fields.first)
    return None if found is None else dict(found)


def operator_of(token: str) -> Operator:
    """Returns the operator that a token belongs to, with one uncached SELECT. Raises AuthenticationError."""
    found = OperatorKey.objects.filter(fingerprint=fingerprint(token))
    key = on_a_live_connection(found.first)
    if key is None:
        raise ApiKeyNotRegistered
    now = timezone.now()
    verify_key(token, key.verifier, key.expires_at, now)
    _operator_uses.note(key.pk, now)
    return Operator(key)


def require_inference(token: str, event: RequestEvent | None = None) -> None:
    """Refuses a token of another kind. Raises KeyKindNotAllowed, or AuthenticationError if it is not valid either."""
    if not token.startswith(PREFIXES[KeyKind.INFERENCE]):
        kind = kind_of(token)
        if kind == KeyKind.OPERATOR:
            operator_of(token)
        else:
            caller_of(token, event)
        raise kind_refusal(kind, {KeyKind.INFERENCE})


def kind_refusal(kind: KeyKind, allowed: Collection[KeyKind]) -> KeyKindNotAllowed:
    """Returns the error for a key of a kind that an endpoint does not take."""
    wanted = " or ".join(f"{_article(each)} {each.label} key" for each in KeyKind if each in allowed)
    return KeyKindNotAllowed(f"This endpoint takes {wanted}, and this is {_article(kind)} {kind.label} key.")


def _article(kind: KeyKind) -> str:
    return "a" if kind == KeyKind.MANAGEMENT else "an"


def caller_of_request(request: Request) -> Caller:
    """Returns the caller of a request in a view of the control plane."""
    caller: Caller = request.user  # type: ignore[assignment]  # BearerAuthentication sets it
    return caller


class BearerAuthentication(BaseAuthentication):
    """Authenticates requests of the control plane for DRF. Keys of a suspended account may only read."""

    kinds: ClassVar = frozenset({KeyKind.INFERENCE, KeyKind.MANAGEMENT})  # that the endpoint takes

    def authenticate(self, request: Request) -> tuple[Caller | Operator, None]:
        event = event_of(request.META)
        address, request_id = client_address(request.META), event.request_id
        with step("authenticating the key"):
            token = self.token(request)
            kind = kind_of(token)
            if kind == KeyKind.OPERATOR:
                operator = operator_of(token)
                if kind not in self.kinds:
                    raise kind_refusal(kind, self.kinds)
                operator_key = AuditEvent.ActorKind.OPERATOR_KEY
                audit.set_actor(Actor(operator_key, str(operator.key.pk), operator.key.name, address, request_id))
                return operator, None
            caller = caller_of(token, event)
        if kind not in self.kinds:
            raise kind_refusal(kind, self.kinds)
        if caller.is_suspended and request.method not in SAFE_METHODS:
            raise refusal_of_account(is_closed=caller.is_closed)
        actor = Actor(AuditEvent.ActorKind.KEY, str(caller.key_id), caller.key_name, address, request_id)
        audit.set_actor(actor)
        return caller, None

    def token(self, request: Request) -> str:
        return bearer_token(request.META.get("HTTP_AUTHORIZATION"))


class KeyAuthentication(BearerAuthentication):
    """Authenticates requests of the control plane, also from Anthropic's SDKs, which send `x-api-key`."""

    def token(self, request: Request) -> str:
        return token_of(request.META)


class AnyKeyAuthentication(BearerAuthentication):
    """Takes keys of all three kinds."""

    kinds: ClassVar = frozenset(KeyKind)


class ManagementAuthentication(BearerAuthentication):
    """Takes management keys only."""

    kinds: ClassVar = frozenset({KeyKind.MANAGEMENT})


class OperatorAuthentication(BearerAuthentication):
    """Takes operator keys only."""

    kinds: ClassVar = frozenset({KeyKind.OPERATOR})


def _write_uses(used: dict[uuid.UUID, datetime]) -> None:
    ApiKey.objects.bulk_update([ApiKey(id=key, last_used_at=at) for key, at in used.items()], ["last_used_at"])


_uses: WriteBehind[uuid.UUID, datetime] = WriteBehind(_write_uses, at_once=USES_IN_A_STATEMENT)
note_use = _uses.note  # (the key's id, now)


def _write_operator_uses(used: dict[uuid.UUID, datetime]) -> None:
    OperatorKey.objects.bulk_update(
        [OperatorKey(id=key, last_used_at=at) for key, at in used.items()], ["last_used_at"]
    )


_operator_uses: WriteBehind[uuid.UUID, datetime] = WriteBehind(_write_operator_uses, at_once=USES_IN_A_STATEMENT)


def write_uses() -> None:
    """Writes to the database when keys were last used."""
    _uses.flush()
    _operator_uses.flush()
