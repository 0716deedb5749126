"""What the aliases in records are called. This app keeps their ids alone: the app of aliases tells the names."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from uuid import UUID

from accounts.models import Account


@dataclass(frozen=True, slots=True)
class AliasName:
    """What a request puts into `model`: now, or last for an alias that is deleted."""

    text: str
    is_deleted: bool = False


Source = Callable[[Account, Collection[UUID]], Mapping[UUID, AliasName]]
sources: list[Source] = []  # apps add theirs in `AppConfig.ready()`


def names_of(account: Account, alias_ids: Collection[UUID]) -> dict[UUID, AliasName]:
    """The names of those ids that are aliases of the account, or were."""
    names: dict[UUID, AliasName] = {}
    for source in sources if alias_ids else ():
        names |= source(account, alias_ids)
    return names
