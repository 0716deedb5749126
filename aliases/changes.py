"""Creates, changes and deletes aliases, and records an event for each change.

Each of them locks the account's row, so that its limit holds and names stay unique. If only owners may change aliases
(`Account.aliases_reserved_at`), each raises PermissionDenied for another person, and KeyKindNotAllowed for a key that
is not a management key.
"""

import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from accounts import audit
from accounts.actions import Action
from accounts.audit import Subject
from accounts.members import account_locked_by_owner, locked_account
from accounts.models import Account, ApiKey, KeyKind, User
from catalogue.routing.model_ids import ALIAS_NAME, GLOBAL
from gateway.errors import AliasExists, AliasLimitReached, AliasNotFound, InvalidAliasTarget, KeyKindNotAllowed

from .models import Alias, AliasEvent
from .resolve import alias_not_found
from .targets import Target

Author = User | uuid.UUID | None  # a person, or the id of a key; None for an operator's program


def find(account_id: uuid.UUID, name: str) -> Alias:
    """Returns the account's alias with this name, in any case. Raises AliasNotFound."""
    wanted = name.lower() if name.isascii() else ""
    # An invalid name is not looked up: it may hold a NUL, which PostgreSQL rejects.
    alias = Alias.objects.filter(account_id=account_id, name=wanted).first() if ALIAS_NAME.fullmatch(wanted) else None
    if alias is None:
        raise alias_not_found(account_id, name[:64])
    return alias


def limit_of(account: Account) -> int:
    """Returns how many aliases the account may have: its own limit, or the gateway's."""
    return int(settings.GATEWAY_ALIAS_LIMIT) if account.alias_limit is None else account.alias_limit


def create(
    account_id: uuid.UUID, name: str, target: Target, *, fallbacks: Sequence[str] = (), by: Author = None
) -> Alias:
    """Creates an alias with checked fallbacks (`targets.checked_fallbacks`). Raises AliasExists, AliasLimitReached."""
    with transaction.atomic():
        account = _locked_account(account_id, by)
        _require_free(account_id, name)
        limit = limit_of(account)
        if Alias.objects.filter(account_id=account_id).count() >= limit:
            raise AliasLimitReached(f"Alias limit reached ({limit}). Delete an alias, or ask the operator for more.")
        now = timezone.now()
        alias = Alias(account_id=account_id, name=name, fallbacks=[*fallbacks], created_at=now, updated_at=now)
        _set_target(alias, target)
        alias.save(force_insert=True)
        more = {"new_fallbacks": alias.fallbacks} if fallbacks else {}
        _record_event(alias, AliasEvent.Type.CREATED, now, by, new_name=name, new_target=alias.target, **more)
    return alias


def change(
    account_id: uuid.UUID,
    current_name: str,
    *,
    name: str | None = None,
    target: Target | None = None,
    fallbacks: Sequence[str] | None = None,
    expected_id: uuid.UUID | None = None,
    by: Author = None,
) -> Alias:
    """Renames and repoints an alias and replaces its fallbacks, in one transaction.

    Raises AliasNotFound, InvalidAliasTarget and AliasExists.

    The name may have passed to another alias: if `expected_id` is given, an alias with another id is not found.
    """
    with transaction.atomic():
        alias = _locked_alias(account_id, current_name, expected_id, by)
        if target is not None and not target.states_locode and alias.locode != GLOBAL:
            raise InvalidAliasTarget(
                f"The target has no locode, and {alias.full_name!r} is pinned to {alias.locode}: "
                f"send the locode of a place, or `{GLOBAL}` to leave {alias.locode}."
            )
        now = timezone.now()
        renamed = name is not None and name != alias.name
        repointed = target is not None and str(target) != alias.target
        if renamed and name is not None:
            _require_free(account_id, name)
            _record_event(alias, AliasEvent.Type.RENAMED, now, by, old_name=alias.name, new_name=name)
            alias.name = name
        if repointed and target is not None:
            _record_event(alias, AliasEvent.Type.REPOINTED, now, by, old_target=alias.target, new_target=str(target))
            _set_target(alias, target)
        falls_back_elsewhere = fallbacks is not None and [*fallbacks] != alias.fallbacks
        if falls_back_elsewhere and fallbacks is not None:
            both = {"old_fallbacks": alias.fallbacks, "new_fallbacks": [*fallbacks]}
            _record_event(alias, AliasEvent.Type.FALLBACKS, now, by, **both)
            alias.fallbacks = [*fallbacks]
        if renamed or repointed or falls_back_elsewhere:
            alias.updated_at = now
            alias.save(force_update=True)
    return alias


def delete(account_id: uuid.UUID, name: str, *, expected_id: uuid.UUID | None = None, by: Author = None) -> None:
    """Deletes an alias. Takes `expected_id` as `change` does. Raises AliasNotFound."""
    with transaction.atomic():
        alias = _locked_alias(account_id, name, expected_id, by)
        _record_event(alias, AliasEvent.Type.DELETED, timezone.now(), by, old_name=alias.name, old_target=alias.target)
        alias.delete()


def reserve_for_owners(account_id: uuid.UUID, is_reserved: bool, person: User) -> None:
    """Sets whether only owners and management keys change aliases. Raises PermissionDenied unless an owner does it."""
    with transaction.atomic():
        account = account_locked_by_owner(account_id, person)
        was_reserved = account.aliases_reserved_at is not None
        if was_reserved != is_reserved:
            account.aliases_reserved_at = timezone.now() if is_reserved else None
            account.save(update_fields=["aliases_reserved_at"])
            subject = Subject("account", str(account_id), account.name)
            both = {
                "old": {"only_owners_change_aliases": was_reserved},
                "new": {"only_owners_change_aliases": is_reserved},
            }
            audit.record(account_id, Action.ACCOUNT_CHANGED, subject, **both)


def _locked_account(account_id: uuid.UUID, by: Author) -> Account:
    """Returns the account with its row locked. Raises PermissionDenied or KeyKindNotAllowed for others than owners."""
    account = locked_account(account_id)
    if account.aliases_reserved_at is None or by is None:
        return account
    if isinstance(by, User):
        return account_locked_by_owner(account_id, by)
    if not ApiKey.objects.filter(pk=by, kind=KeyKind.MANAGEMENT).exists():
        raise KeyKindNotAllowed("Only the owners of this account change its aliases: use a management key.")
    return account


def _locked_alias(account_id: uuid.UUID, name: str, expected_id: uuid.UUID | None, by: Author) -> Alias:
    _locked_account(account_id, by)
    alias = find(account_id, name)
    if expected_id is not None and alias.pk != expected_id:  # another alias has this name now
        raise AliasNotFound
    return alias


def _require_free(account_id: uuid.UUID, name: str) -> None:
    if Alias.objects.filter(account_id=account_id, name=name).exists():
        raise AliasExists(f"This account already has an alias named {name!r}.")


def _set_target(alias: Alias, target: Target) -> None:
    alias.provider, alias.canonical_id, alias.locode = target.provider, target.canonical_id, target.locode


ACTIONS = {
    AliasEvent.Type.CREATED: Action.ALIAS_CREATED,
    AliasEvent.Type.RENAMED: Action.ALIAS_RENAMED,
    AliasEvent.Type.REPOINTED: Action.ALIAS_REPOINTED,
    AliasEvent.Type.FALLBACKS: Action.ALIAS_FALLBACKS_CHANGED,
    AliasEvent.Type.DELETED: Action.ALIAS_DELETED,
}


def _record_event(alias: Alias, event_type: AliasEvent.Type, now: datetime, by: Author, **values: Any) -> None:
    """Writes the change to the alias's own history, which the API shows, and to the account's audit log."""
    AliasEvent.objects.create(
        account_id=alias.account_id,
        alias_id=alias.pk,
        event_type=event_type,
        by=by if isinstance(by, User) else None,
        by_key_id=by if isinstance(by, uuid.UUID) else None,
        created_at=now,
        **values,
    )
    old, new = (
        {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)} or None
        for prefix in ("old_", "new_")
    )
    audit.record(alias.account_id, ACTIONS[event_type], Subject("alias", str(alias.pk), alias.name), old=old, new=new)
