"""Issues and deletes operator keys, with which the operator's own systems run accounts (docs/management.md)."""

from django.db import IntegrityError, transaction
from django.utils import timezone

from . import names
from .keys import NAME_RULE, InvalidKeyName, KeyNameTaken, end_of, fingerprint, new_token, verifier
from .models import KeyKind, OperatorKey


def issue(name: str, lifetime: str) -> str:
    """Creates an operator key and returns its token, which is not stored. Raises KeyNameTaken and InvalidKeyName."""
    name, token = names.tidied(name), new_token(KeyKind.OPERATOR)
    if not names.is_name(name):
        raise InvalidKeyName(NAME_RULE)
    key = OperatorKey(
        name=name,
        fingerprint=fingerprint(token),
        verifier=verifier(token),
        last_four=token[-4:],
        expires_at=end_of(lifetime),
    )
    try:
        with transaction.atomic():
            key.save(force_insert=True)
    except IntegrityError:
        raise KeyNameTaken(f"There is an operator key named {name!r} already.") from None
    return token


def delete(name: str) -> bool:
    """Deletes the operator key with this name, so that its next request fails. Returns whether there was one."""
    live = OperatorKey.objects.filter(name=names.tidied(name), deleted_at=None)
    return bool(live.update(deleted_at=timezone.now(), fingerprint=None, verifier=None))
