"""Plans a seeding, and writes it in one short transaction."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Generic, TypeVar

from django.db import transaction
from django.db.models import Model as DjangoModel
from django.utils import timezone

from catalogue import changes, price_history
from catalogue.models import EnergyEstimate, ExchangeRate, GridIntensity, Model, Place, PriceChange, Provider, Region

from .entries import Catalogue, CatalogueEntry, Columns
from .prices import HeldPrice, without_jumps, without_rate_jump

Row = TypeVar("Row", bound=DjangoModel)

ROWS_PER_STATEMENT = 500  # PostgreSQL takes at most 65,535 parameters
NOT_SEEDED = ("id", "first_offered_at", "disabled_reason")  # set on insertion or by staff, never updated here


class ConcurrentChange(Exception):
    """Another writer changed the catalogue between planning and writing."""


@dataclass(slots=True)
class Counts:
    """Counts the rows that are created, updated, unchanged and removed."""

    created: int = 0
    updated: int = 0
    unchanged: int = 0
    removed: int = 0

    @property
    def changed(self) -> int:
        return self.created + self.updated + self.removed


@dataclass(slots=True)
class TablePlan(Generic[Row]):
    """Plans the changes of one table. Rows are inserted or updated by the columns in `unique`."""

    name: str
    table: type[Row]
    unique: tuple[str, ...]
    upserts: list[Row] = field(default_factory=list)
    removals: list[Any] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
    changes: list[str] = field(default_factory=list)

    def take(self, label: str, row: Row | None, keys: Mapping[str, Any], columns: Columns) -> Row:
        if row is None:
            self.counts.created += 1
            self.changes.append(f"create {self.name} {label}")
        else:
            differing = [
                _described(name, getattr(row, name), value)
                for name, value in columns.items()
                if getattr(row, name) != value
            ]
            if not differing:
                self.counts.unchanged += 1
                return row
            self.counts.updated += 1
            self.changes.append(f"update {self.name} {label} ({', '.join(differing)})")
        wanted = self.table(**keys, **columns)
        self.upserts.append(wanted)
        return wanted

    def remove(self, label: str, row: Row) -> None:
        self.counts.removed += 1
        self.removals.append(row.pk)
        self.changes.append(f"remove {self.name} {label}")

    def delete_removals(self) -> None:
        for part in _slices(self.removals):
            self.table._default_manager.filter(pk__in=part).delete()

    def upsert(self) -> None:
        # INSERT … ON CONFLICT DO UPDATE is many times faster than an UPDATE with a CASE for each column.
        if self.upserts:
            names = [column.name for column in self.table._meta.concrete_fields]
            self.table._default_manager.bulk_create(
                self.upserts,
                batch_size=ROWS_PER_STATEMENT,
                update_conflicts=True,
                unique_fields=self.unique,
                update_fields=[name for name in names if name not in (*self.unique, *NOT_SEEDED)],
            )


def _described(name: str, before: Any, after: Any) -> str:
    """Returns the name of a changed column; for a figure, also the old and the new one."""
    if not isinstance(before, Decimal) and not isinstance(after, Decimal):
        return name
    shown = (f"{value.normalize():f}" if isinstance(value, Decimal) else "none" for value in (before, after))
    return f"{name}: {' -> '.join(shown)}"


class Plan:
    """Plans the changes that make the stored catalogue match the files, based on its present version."""

    def __init__(self, catalogue: Catalogue, *, prune: bool, accept_price_jumps: bool) -> None:
        self.version = changes.version()
        self.providers = TablePlan("providers", Provider, ("slug",))
        self.models = TablePlan("models", Model, ("provider", "canonical_id"))
        self.regions = TablePlan("regions", Region, ("model", "locode"))
        self.exchange_rates = TablePlan("exchange_rates", ExchangeRate, ("currency",))
        self.facts: list[TablePlan[Any]] = [
            TablePlan("places", Place, ("code",)),
            TablePlan("grid", GridIntensity, ("country",)),
            TablePlan("energy", EnergyEstimate, ("canonical_id",)),
            self.exchange_rates,
        ]
        # In the order of the report.
        self.tables: list[TablePlan[Any]] = [self.providers, self.models, self.regions, *self.facts]
        self.held: list[HeldPrice] = []
        self._former_defaults: list[int] = []
        self._price_changes: list[PriceChange] = []
        self._planned_at = timezone.now()
        for table in self.facts:
            entries = catalogue[table.name]
            rows: Mapping[Any, Any] = table.table._default_manager.in_bulk() if entries else {}
            for key, entry in entries.items():
                row, columns = rows.get(key), entry.columns
                if isinstance(row, ExchangeRate) and not accept_price_jumps:
                    columns, held = without_rate_jump(columns, row)
                    self.held += held
                table.take(key, row, {table.unique[0]: key}, columns)
        self._rates = None if accept_price_jumps else self._units_per_eur()
        self._plan_offers(catalogue, prune=prune)

    @property
    def total(self) -> Counts:
        """Returns the counts of all tables together."""
        counts = [table.counts for table in self.tables]
        return Counts(*(sum(getattr(each, name) for each in counts) for name in Counts.__slots__))

    def lines(self, *, dry_run: bool) -> Iterator[str]:
        if dry_run:
            yield "dry run: nothing is written"
            yield from (f"would {change}" for table in self.tables for change in table.changes)
        yield from map(str, self.held)
        for name, n in [(table.name, table.counts) for table in self.tables]:
            yield f"{name}: {n.created} created, {n.updated} updated, {n.unchanged} unchanged, {n.removed} removed"
        n = self.total
        yield f"created {n.created}, updated {n.updated}, unchanged {n.unchanged}, removed {n.removed}"

    def write(self) -> None:
        """Writes everything, and increases the version once. Raises ConcurrentChange."""
        with transaction.atomic(), changes.quietly():
            if not changes.bump_from(self.version):
                raise ConcurrentChange
            for removing in (self.regions, self.models, self.providers):
                removing.delete_removals()
            for part in _slices(self._former_defaults):  # first, because a model can have only one default at a time
                Region.objects.filter(pk__in=part).update(is_default=False)
            for table in (*self.facts, self.providers, self.models, self.regions):
                table.upsert()
            price_history.record_seeding(self._price_changes)

    def _units_per_eur(self) -> dict[str, Decimal]:
        """Returns the exchange rates that hold after this seeding."""
        rows = [*ExchangeRate.objects.all(), *self.exchange_rates.upserts]
        return {"EUR": Decimal(1)} | {row.currency: row.units_per_eur for row in rows if row.units_per_eur}

    def _plan_offers(self, catalogue: Catalogue, *, prune: bool) -> None:
        # 1. Read what is stored.
        providers = {row.slug: row for row in Provider.objects.all()}
        models = {f"{row.provider.slug}/{row.canonical_id}": row for row in Model.objects.select_related("provider")}
        regions: dict[int, dict[str, Region]] = {}
        for region in Region.objects.all():
            regions.setdefault(region.model_id, {})[region.locode] = region
        # 2. Remove what no file names.
        if prune:
            for key, model in models.items():
                if key not in catalogue["models"]:
                    self.models.remove(key, model)
                    self._remove_regions(key, regions.get(model.pk, {}).values())
            for slug, provider in providers.items():
                if slug not in catalogue["providers"]:
                    self.providers.remove(slug, provider)
        # 3. Create and update what the files name: providers first, since models refer to them.
        for slug, entry in catalogue["providers"].items():
            providers[slug] = self.providers.take(slug, providers.get(slug), {"slug": slug}, entry.columns)
        for key, entry in catalogue["models"].items():
            row = models.get(key)
            keys = {"provider": providers[entry.provider], "canonical_id": entry.canonical_id}
            wanted = self.models.take(key, row, keys, entry.columns)
            self._plan_regions(entry, wanted, {} if row is None else regions.get(row.pk, {}))

    def _plan_regions(self, entry: CatalogueEntry, model: Model, rows: Mapping[str, Region]) -> None:
        for region in entry.regions:
            row, route, columns = rows.get(region.key), f"{entry.key}/{region.key}", region.columns
            if row is not None:
                if self._rates is not None:
                    columns, held = without_jumps(route, columns, row, self._rates)
                    self.held += held
                if row.is_default and not columns["is_default"]:
                    self._former_defaults.append(row.pk)
            wanted = self.regions.take(route, row, {"model": model, "locode": region.key}, columns)
            if wanted is not row:
                self._price_changes += price_history.between(route, row, wanted, self._planned_at)
        listed = {region.key for region in entry.regions}
        self._remove_regions(entry.key, (row for row in rows.values() if row.locode not in listed))

    def _remove_regions(self, model_id: str, rows: Iterable[Region]) -> None:
        for row in rows:
            self.regions.remove(f"{model_id}/{row.locode}", row)


def _slices(keys: list[Any]) -> list[list[Any]]:
    return [keys[start : start + ROWS_PER_STATEMENT] for start in range(0, len(keys), ROWS_PER_STATEMENT)]
