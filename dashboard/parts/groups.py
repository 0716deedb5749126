"""Names the groups that usage and carbon are shown by, and makes their lines in tables."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from types import MappingProxyType
from typing import Any
from uuid import UUID

from accounts.models import ApiKey
from aliases.names import names_of_aliases
from billing.usage.statistics import Row, Totals, breakdown

from .charts import total_of
from .choices import COLUMNS_OF_GROUPING, NOT_ROUTED, WITHOUT_ALIAS, WITHOUT_TAG, Choice, Grouping

MOST_LINES = 100
PERCENT = Decimal(100)
Group = tuple[str | UUID | None, ...]  # the values that the rows of a group have in the grouping's columns
NOTHING_EARLIER: Mapping[Group, Totals] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class GroupName:
    """Holds the name of a group. `value` is what an address narrows to the group with, or None if it cannot."""

    text: str
    value: str | None
    detail: str = ""  # distinguishes groups that share a name
    is_deleted: bool = False
    is_routed: bool = True


@dataclass(frozen=True, slots=True)
class GroupLine:
    """Holds a group's line in a table, or the line of all groups that are not listed.

    `share` is the share of the cost in percent. `narrowed` and `records` are addresses of the group's pages. `earlier`
    is the group's usage in the period before.
    """

    name: GroupName
    sums: Any  # Totals, or a Footprint
    share: Decimal | None
    narrowed: str | None
    records: str | None
    earlier: Totals | None = None


def lines_of(
    choice: Choice,
    groups: Mapping[Group, Any],
    names: Mapping[Group, GroupName],
    whole: Totals | None = None,
    *,
    earlier: Mapping[Group, Totals] = NOTHING_EARLIER,
    where_others_are: str = "",
) -> list[GroupLine]:
    """Returns a line for each group in `names`, in that order, and one for all others. Shares are parts of `whole`."""

    def line(name: GroupName, sums: Any, was: Totals | None) -> GroupLine:
        share = PERCENT * sums.cost / whole.cost if whole and whole.cost and sums.cost is not None else None
        if name.value is None:
            return GroupLine(name, sums, share, None, None, was)
        here = {choice.by.value: name.value}
        narrowed = None if choice.by in choice.narrowing else choice.within(**here)
        return GroupLine(name, sums, share, narrowed, choice.to("usage-records", **here), was)

    lines = [line(name, groups[group], earlier.get(group)) for group, name in names.items()]
    if others := [sums for group, sums in groups.items() if group not in names]:
        name = GroupName(f"{len(others):,} others", None, detail=where_others_are)
        were = total_of(sums for group, sums in earlier.items() if group not in names)
        lines.append(line(name, total_of(others[1:], others[0]), were))
    return lines


def dearest(choice: Choice, most: int) -> list[GroupLine]:
    """Returns the groups that cost most, with two SELECTs for the sums and at most two for names."""
    rows = breakdown(choice.scope, choice.days, *COLUMNS_OF_GROUPING[choice.by])
    ranked = sorted((row for row in rows if row.totals.cost), key=lambda row: -(row.totals.cost or 0))[:most]
    groups = {group_of(row, choice.by): row.totals for row in ranked}
    return lines_of(choice, groups, names_of_groups(choice, groups), total_of(row.totals for row in rows))


def group_of(row: Row, by: Grouping) -> Group:
    """Returns the group that a row belongs to."""
    return tuple(getattr(row, column) for column in COLUMNS_OF_GROUPING[by])


def is_routed(group: Group, by: Grouping) -> bool:
    """Tells whether a group's requests have a model or region. Requests that failed before routing do not."""
    return by not in (Grouping.MODEL, Grouping.REGION) or all(group)


def names_of_groups(choice: Choice, groups: Collection[Group]) -> dict[Group, GroupName]:
    """Returns the present names of groups, with at most two SELECTs."""
    names: dict[Group, GroupName] = {}
    if choice.by == Grouping.KEY:
        own = ApiKey.objects.filter(account=choice.account, pk__in=[group[0] for group in groups])
        names = {(key.pk,): GroupName(key.name, str(key.pk), key.masked, key.deleted_at is not None) for key in own}
    elif choice.by == Grouping.ALIAS:
        ids = [alias_id for (alias_id,) in groups if isinstance(alias_id, UUID)]
        names = {(alias_id,): GroupName(f"alias {str(alias_id)[:8]}…", None, is_deleted=True) for alias_id in ids}
        for alias_id, name in names_of_aliases(choice.account.pk, ids).items():
            names[(alias_id,)] = GroupName(name.text, str(alias_id), is_deleted=name.is_deleted)
        texts = [name.text for name in names.values()]
        names = {  # a deleted alias leaves its name to the next one
            group: replace(each, detail=f"…{str(group[0])[-4:]}") if texts.count(each.text) > 1 else each
            for group, each in names.items()
        }
        names[(None,)] = GroupName("no alias", WITHOUT_ALIAS)
    elif choice.by == Grouping.TAG:
        names = {(tag,): GroupName(str(tag), str(tag)) for (tag,) in groups}
        names[(None,)] = GroupName("no tag", WITHOUT_TAG)
    else:
        for group in groups:
            text = "/".join(map(str, group))
            names[group] = (
                GroupName(text, text)
                if is_routed(group, choice.by)
                else GroupName("not routed", NOT_ROUTED, is_routed=False)
            )
    return {group: names[group] for group in groups}
