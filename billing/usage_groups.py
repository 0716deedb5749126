"""The groups of a choice's usage, with their names: all that its table, its chart and its export know of them."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any
from uuid import UUID

from accounts.models import Account, ApiKey

from .alias_names import names_of
from .rollup_models import NO_ALIAS
from .usage_choice import COLUMNS, WITHOUT_ALIAS, Choice, Grouping
from .usage_statistics import By, Row, Scope, Totals

Group = tuple[str | UUID | None, ...]  # what the rows of a group have in the grouping's columns


@dataclass(frozen=True, slots=True)
class Name:
    """What a group is called. `value` narrows an address to it; None where there is nothing to narrow to."""

    text: str
    value: str | None
    detail: str = ""  # tells apart what may share a name
    is_deleted: bool = False


def group_of(row: Row, by: Grouping) -> Group:
    """The group that a row belongs to."""
    return tuple(getattr(row, column) for column in COLUMNS[by])


def ranked(rows: Iterable[Row], by: Grouping) -> dict[Group, Totals]:
    """Each group's totals, the dearest first, then those with most requests. A row is a group."""
    sums = [(group_of(row, by), row.totals) for row in rows]
    return dict(sorted(sums, key=lambda item: (-(item[1].cost or Decimal(0)), -item[1].requests, str(item[0]))))


def part_of(choice: Choice, group: Group) -> Scope:
    """The choice's scope narrowed to one group."""
    columns: dict[str, Any] = dict(zip(COLUMNS[choice.by], group, strict=True))
    if choice.by == Grouping.ALIAS and group == (None,):
        columns[By.ALIAS] = NO_ALIAS
    return replace(choice.scope, **columns)


def named(choice: Choice, groups: Collection[Group]) -> dict[Group, Name]:
    """What these groups are called now, in their order. At most two SELECTs."""
    if choice.by == Grouping.KEY:
        names = _keys(choice.account, groups)
    elif choice.by == Grouping.ALIAS:
        names = _aliases(choice.account, groups)
    else:
        texts = {group: "/".join(map(str, group)) for group in groups}
        names = {group: Name(text, text) for group, text in texts.items()}
    return {group: names[group] for group in groups}


def _keys(account: Account, groups: Collection[Group]) -> dict[Group, Name]:
    own = ApiKey.objects.filter(account=account, pk__in=[group[0] for group in groups])
    return {(key.pk,): Name(key.name, str(key.pk), key.masked, key.deleted_at is not None) for key in own}


def _aliases(account: Account, groups: Collection[Group]) -> dict[Group, Name]:
    ids = [alias_id for (alias_id,) in groups if isinstance(alias_id, UUID)]
    names: dict[Group, Name] = {(None,): Name("no alias", WITHOUT_ALIAS)}
    names |= {(alias_id,): Name(f"alias {str(alias_id)[:8]}…", None, is_deleted=True) for alias_id in ids}
    known = names_of(account, ids).items()
    return names | {(alias_id,): Name(name.text, str(alias_id), "", name.is_deleted) for alias_id, name in known}
