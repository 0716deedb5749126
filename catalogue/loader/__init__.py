"""Seeds the catalogue from files (docs/contract.md#catalogue-file): read, check, plan, write."""

import time
from collections.abc import Iterable
from pathlib import Path

from django.db import OperationalError

from .entries import check_references, collect
from .files import DATA, BadCatalogue, CatalogueError
from .planning import ConcurrentChange, Plan

__all__ = ["SHIPPED", "BadCatalogue", "CatalogueError", "Plan", "seed"]

SHIPPED = tuple(sorted(DATA.glob("*.yaml")))
# Seconds between attempts. On SQLite, with one writer at a time, each attempt also waits a second for the lock.
_PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
_RACES_LOST = {"40001", "40P01"}  # PostgreSQL: serialization failure, deadlock


def seed(
    paths: Iterable[str | Path] = SHIPPED,
    *,
    prune: bool = False,
    dry_run: bool = False,
    accept_price_jumps: bool = False,
) -> Plan:
    """Makes the catalogue match the files, and returns the plan. Raises CatalogueError and then writes nothing."""
    catalogue = collect(map(Path, paths))
    check_references(catalogue, lambda: collect([DATA / "places.yaml"]), prune=prune)
    for pause in (*_PAUSES, None):
        plan = Plan(catalogue, prune=prune, accept_price_jumps=accept_price_jumps)
        if dry_run or not plan.total.changed:
            return plan
        try:
            plan.write()
        except (ConcurrentChange, OperationalError) as error:
            lost_race = getattr(error.__cause__, "sqlstate", None) in _RACES_LOST or "locked" in str(error)
            if isinstance(error, OperationalError) and not lost_race:
                raise
            if pause is not None:
                time.sleep(pause)
        else:
            return plan
    raise CatalogueError("other writers kept the database locked: nothing was changed, try again")
