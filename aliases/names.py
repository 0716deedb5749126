"""Finds the names of aliases by their ids, also of deleted ones."""

from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

from .models import Alias, AliasEvent


@dataclass(frozen=True, slots=True)
class AliasName:
    """Holds the full name of an alias, the last name if it is deleted."""

    text: str
    is_deleted: bool = False


def names_of_aliases(account_id: UUID, alias_ids: Collection[UUID]) -> dict[UUID, AliasName]:
    """Returns the names of the account's aliases, with deleted ones, with at most two SELECTs."""
    if not alias_ids:
        return {}
    own = Alias.objects.filter(account_id=account_id, pk__in=alias_ids)
    names = {alias.pk: AliasName(alias.full_name) for alias in own}
    gone = set(alias_ids) - names.keys()
    deletions = AliasEvent.objects.filter(account_id=account_id, alias_id__in=gone, event_type=AliasEvent.Type.DELETED)
    return names | {
        event.alias_id: AliasName(f"alias/{event.old_name}", is_deleted=True) for event in (deletions if gone else ())
    }


def texts_of(account_id: UUID, alias_ids: Collection[UUID]) -> dict[UUID, str]:
    """Returns the names of the account's aliases as texts, with deleted ones."""
    return {alias_id: name.text for alias_id, name in names_of_aliases(account_id, alias_ids).items()}
