"""Settles records on days of one's choice, rolls them up as of a given time, and adds the records up for comparison."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.utils import timezone

from billing.ledger import booking as ledger
from billing.ledger.record_columns import ROLLED_UP
from billing.models import DailyUsage, Generation, UsageWatermark
from billing.usage import rollups
from billing.usage.statistics import Days, GroupColumn, Totals
from catalogue.pricing import MEASURED
from gateway.money import EXACT

AT_ONCE = timedelta(0)
# It is near midnight, so that a few hours cover several days.
START = (timezone.now() - timedelta(days=30)).replace(hour=22, minute=0, second=0, microsecond=0)
MONTH = Days(START.date(), START.date() + timedelta(days=31))


def settled_at(moment: datetime, record: Generation) -> Generation:
    """Settles the record as if it had happened then."""
    ledger.book(record, using="default")
    Generation.objects.filter(pk=record.pk).update(created_at=moment)
    return Generation.objects.get(pk=record.pk)


def advance_until(moment: datetime, limit: int = 1_000_000) -> int:
    """Rolls up what was settled by then."""
    now = timezone.now() - timedelta(milliseconds=1)  # SQLite's clock has milliseconds, and may be behind by one
    return rollups.advance(limit, trail=now - moment, rest=AT_ONCE)


def advance_all() -> int:
    """Rolls up everything that is committed."""
    return rollups.advance(1_000_000, trail=AT_ONCE, rest=AT_ONCE)


def rows() -> list[dict[str, Any]]:
    """Returns every row of the rollups, without its id."""
    return [
        {name: value for name, value in row.items() if name != "id"}
        for row in DailyUsage.objects.order_by(*(f.name for f in DailyUsage._meta.fields if f.name != "id")).values()
    ]


def rolled_up() -> int:
    """Returns how many records the rows count."""
    return sum(DailyUsage.objects.values_list("requests", flat=True))


def watermark(account_id: UUID) -> datetime:
    return UsageWatermark.objects.get(pk=account_id).rolled_until


def added_up(records: Iterable[Generation], by: Collection[GroupColumn] = ()) -> dict[tuple[Any, ...], Totals]:
    """Adds the records up one by one, without using the product's code for it."""
    groups: dict[tuple[Any, ...], list[Generation]] = defaultdict(list)
    for record in records:
        day = record.created_at.astimezone(UTC).date()
        for tag in (record.tags or "").split(" ") if GroupColumn.TAG in by else [""]:
            own = {GroupColumn.DAY: day, GroupColumn.TAG: tag or None}
            groups[tuple(own[name] if name in own else getattr(record, name) for name in by)].append(record)
    return {group: _totals(of_group) for group, of_group in groups.items()}


def _totals(records: list[Generation]) -> Totals:
    def known(name: str) -> list[Any]:
        return [value for record in records if (value := getattr(record, name)) is not None]

    def count(is_counted: Callable[[Generation], bool]) -> int:
        return sum(map(is_counted, records))

    figures: dict[str, Any] = {}
    for column in ROLLED_UP:
        figures[column.name] = _sum(known(column.name))
        figures[column.counted_by] = len(known(column.name))
    return Totals(
        **figures,
        interrupted=count(lambda record: record.interrupted),
        estimated=count(lambda record: record.usage_estimated),
        measured=count(lambda record: record.energy_source == MEASURED),
        energy_wh_bounded=_sum([record.energy_wh for record in records if record.energy_wh_low is not None]),
    )


def _sum(figures: list[Any]) -> Decimal | None:
    total = Decimal(0)
    for figure in figures:
        total = EXACT.add(total, figure)
    return total if figures else None
