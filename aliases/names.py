"""The names of an account's aliases by their ids, for usage that outlives them."""

from collections.abc import Collection
from uuid import UUID

from accounts.models import Account
from billing.alias_names import AliasName

from .models import Alias, AliasEvent


def of_account(account: Account, alias_ids: Collection[UUID]) -> dict[UUID, AliasName]:
    """Today's name, or the last one of an alias that is deleted. Two SELECTs; ids of other accounts are left out."""
    own = Alias.objects.filter(account=account, pk__in=alias_ids)
    names = {alias.pk: AliasName(alias.full_name) for alias in own}
    gone = set(alias_ids) - names.keys()
    deletions = AliasEvent.objects.filter(account=account, alias_id__in=gone, event_type=AliasEvent.Type.DELETED)
    return names | {
        event.alias_id: AliasName(f"alias/{event.old_name}", is_deleted=True) for event in (deletions if gone else ())
    }
