"""Carrying out a plan, in one transaction that is short because everything was worked out before it."""

from collections.abc import Iterator
from typing import Any

from django.db import OperationalError, transaction
from django.utils import timezone

from catalogue import changes, models, price_history
from catalogue.counters import PriceChange

from .planning import Plan, TablePlan

ROWS_PER_STATEMENT = 500  # PostgreSQL takes 65,535 parameters at once
SET_ONCE = ("id", "first_offered_at")  # when the row is inserted
_RACES_LOST = {"40001", "40P01"}  # PostgreSQL: serialization failure, deadlock


class Overtaken(Exception):
    """Somebody changed the catalogue between planning and writing."""


def write(plan: Plan) -> None:
    """Writes what the plan says and moves the version once. Raises Overtaken where the plan has gone stale."""
    price_changes = list(_price_changes(plan))
    with transaction.atomic(), changes.quietly():
        if not changes.bump_from(plan.version):
            raise Overtaken
        for table in (plan.regions, plan.models, plan.providers):
            for part in _slices(table.removals):
                table.table._default_manager.filter(pk__in=part).delete()
        for part in _slices(plan.former_defaults):  # first, since a model has one default at every moment
            models.Region.objects.filter(pk__in=part).update(is_default=False)
        for table in (*plan.facts, plan.providers, plan.models, plan.regions):
            _upsert(table)
        price_history.record_seeding(price_changes)


def may_succeed_later(error: OperationalError) -> bool:
    """Whether another writer was in the way (SQLite allows one at a time)."""
    return "locked" in str(error) or getattr(error.__cause__, "sqlstate", None) in _RACES_LOST


def _upsert(table: TablePlan[Any]) -> None:
    """INSERT … ON CONFLICT DO UPDATE: many times faster than an UPDATE with a CASE for each column."""
    if not table.upserts:
        return
    names = [column.name for column in table.table._meta.concrete_fields]
    table.table._default_manager.bulk_create(
        table.upserts,
        batch_size=ROWS_PER_STATEMENT,
        update_conflicts=True,
        unique_fields=table.unique,
        update_fields=[name for name in names if name not in (*table.unique, *SET_ONCE)],
    )


def _price_changes(plan: Plan) -> Iterator[PriceChange]:
    at = timezone.now()
    for rewritten in plan.rewritten:
        yield from price_history.between(rewritten.route, rewritten.before, rewritten.after, at)


def _slices(keys: list[Any]) -> list[list[Any]]:
    return [keys[start : start + ROWS_PER_STATEMENT] for start in range(0, len(keys), ROWS_PER_STATEMENT)]
