"""Seeding the catalogue from files (docs/contract.md#catalogue-file): read, check, plan, write in one transaction."""

import time
from collections.abc import Iterable
from pathlib import Path

from django.db import OperationalError

from .checks import faults_between, take_places
from .entries import Catalogue, Collector, Facts
from .faults import BadCatalogue, CatalogueError, Fault
from .planning import Plan, make_plan, seeded
from .report import Counts, SeedReport
from .writing import Overtaken, may_succeed_later, write

__all__ = ["SHIPPED", "BadCatalogue", "CatalogueError", "Counts", "SeedReport", "seed"]

_DATA = Path(__file__).resolve().parent.parent / "data"
SHIPPED = tuple(sorted(_DATA.glob("*.yaml")))
_SHIPPED_PLACES = _DATA / "places.yaml"
# SQLite has one writer at a time, and each attempt waits for its lock a second by itself.
_PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)


def seed(
    paths: Iterable[str | Path] = SHIPPED,
    *,
    prune: bool = False,
    dry_run: bool = False,
    accept_price_jumps: bool = False,
) -> SeedReport:
    """Makes the catalogue say what the files say. Files together are one catalogue.

    Entries of no file stay, unless `prune` removes providers and models (never facts such as places and rates). Raises
    CatalogueError, having written nothing: BadCatalogue with all faults of the files, or because the database stayed
    locked.
    """
    catalogue = _checked([Path(path) for path in paths], prune=prune)
    for pause in (*_PAUSES, None):
        plan = make_plan(catalogue, prune=prune, accept_price_jumps=accept_price_jumps)
        report = _report(plan, dry_run=dry_run)
        if dry_run or not report.total.changed:
            return report
        try:
            write(plan)
        except (Overtaken, OperationalError) as error:
            if isinstance(error, OperationalError) and not may_succeed_later(error):
                raise
            if pause is not None:
                time.sleep(pause)
        else:
            return report
    raise CatalogueError("other writers kept the database locked: nothing was changed, try again")


def _checked(paths: list[Path], *, prune: bool) -> Catalogue:
    collector = Collector()
    faults: list[Fault] = []
    for path in dict.fromkeys(paths):
        try:
            collector.add_file(path)
        except BadCatalogue as error:
            faults += error.faults
    if faults:  # the entries of a file that could not be read would only be missed elsewhere
        raise BadCatalogue(faults)
    catalogue, known = collector.catalogue, seeded(prune=prune)
    faults = [
        *collector.faults,
        *faults_between(catalogue, collector.named_providers, known),
        *take_places(catalogue, known, _shipped_places),
    ]
    if faults:
        raise BadCatalogue(faults)
    return catalogue


def _shipped_places() -> Facts:
    collector = Collector()
    collector.add_file(_SHIPPED_PLACES)
    return collector.catalogue.places


def _report(plan: Plan, *, dry_run: bool) -> SeedReport:
    return SeedReport(
        {table.name: table.counts for table in plan.tables},
        plan.held,
        [change for table in plan.tables for change in table.changes],
        dry_run,
    )
