"""The groups that usage and carbon are shown by, and their lines in tables."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

from accounts.models import ApiKey
from billing.usage.statistics import Row, Totals, breakdown

from .charts import total_of
from .choices import COLUMNS, WITHOUT_ALIAS, Choice, Grouping, names_of_aliases

MOST_LINES = 100
PERCENT = Decimal(100)
Group = tuple[str | UUID | None, ...]  # what the rows of a group have in the grouping's columns


@dataclass(frozen=True, slots=True)
class GroupName:
    """The name of a group. `value` narrows an address to it, where that can be."""

    text: str
    value: str | None
    detail: str = ""  # tells apart what may share a name
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class GroupLine:
    """A group in a table, or all that are not listed. `share` is of the cost in percent; the addresses may be None."""

    name: GroupName
    sums: Any  # Totals, or a Footprint
    share: Decimal | None
    narrowed: str | None
    records: str | None


def lines_of(
    choice: Choice,
    groups: Mapping[Group, Any],
    names: Mapping[Group, GroupName],
    whole: Totals | None = None,
    *,
    where_others_are: str = "",
) -> list[GroupLine]:
    """The groups that have a name, in that order, and one line for the others. Shares are of `whole`."""

    def line(name: GroupName, sums: Any) -> GroupLine:
        share = PERCENT * sums.cost / whole.cost if whole and whole.cost and sums.cost is not None else None
        if name.value is None:
            return GroupLine(name, sums, share, None, None)
        here = {choice.by.value: name.value}
        narrowed = None if choice.by in choice.narrowing else choice.within(**here)
        return GroupLine(name, sums, share, narrowed, choice.to("usage-records", **here))

    lines = [line(name, groups[group]) for group, name in names.items()]
    if others := [sums for group, sums in groups.items() if group not in names]:
        name = GroupName(f"{len(others):,} others", None, detail=where_others_are)
        lines.append(line(name, total_of(others[1:], others[0])))
    return lines


def dearest(choice: Choice, most: int) -> list[GroupLine]:
    """The groups that cost most. Two SELECTs for the sums, and at most two for names."""
    rows = breakdown(choice.scope, choice.days, *COLUMNS[choice.by])
    ranked = sorted((row for row in rows if row.totals.cost), key=lambda row: -(row.totals.cost or 0))[:most]
    groups = {group_of(row, choice.by): row.totals for row in ranked}
    return lines_of(choice, groups, names_of_groups(choice, groups), total_of(row.totals for row in rows))


def group_of(row: Row, by: Grouping) -> Group:
    """The group of a row."""
    return tuple(getattr(row, column) for column in COLUMNS[by])


def names_of_groups(choice: Choice, groups: Collection[Group]) -> dict[Group, GroupName]:
    """The names of these groups now. At most two SELECTs."""
    names: dict[Group, GroupName] = {}
    if choice.by == Grouping.KEY:
        own = ApiKey.objects.filter(account=choice.account, pk__in=[group[0] for group in groups])
        names = {(key.pk,): GroupName(key.name, str(key.pk), key.masked, key.deleted_at is not None) for key in own}
    elif choice.by == Grouping.ALIAS:
        ids = [alias_id for (alias_id,) in groups if isinstance(alias_id, UUID)]
        names = {(alias_id,): GroupName(f"alias {str(alias_id)[:8]}…", None, is_deleted=True) for alias_id in ids}
        for alias_id, name in names_of_aliases(choice.account, ids).items():
            names[(alias_id,)] = GroupName(name.text, str(alias_id), is_deleted=name.is_deleted)
        names[(None,)] = GroupName("no alias", WITHOUT_ALIAS)
    else:
        for group in groups:
            text = "/".join(map(str, group))
            # Of a request that failed before it had a route, it is not always known what it asked for.
            names[group] = GroupName(text, text) if all(group) else GroupName("unknown", None)
    return {group: names[group] for group in groups}
