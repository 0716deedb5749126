"""Entries against rows: what has to be written. Reads the database, writes nothing."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Generic, TypeVar

from django.db.models import Model as DjangoModel

from catalogue import changes
from catalogue.models import EnergyEstimate, ExchangeRate, GridIntensity, Model, Place, Provider, Region

from .checks import Address, Seeded
from .entries import Catalogue, Columns, Facts, ModelEntry
from .prices import HeldPrice, without_jumps
from .report import Counts

Row = TypeVar("Row", bound=DjangoModel)
ModelKey = tuple[str, str]  # provider slug, canonical id


@dataclass(slots=True)
class TablePlan(Generic[Row]):
    """What becomes of one table. `upserts` carry no primary key: they find their row by the `unique` fields."""

    name: str
    table: type[Row]
    unique: tuple[str, ...]
    upserts: list[Row] = field(default_factory=list)
    removals: list[Any] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
    changes: list[str] = field(default_factory=list)

    def take(self, label: str, row: Row | None, keys: Mapping[str, Any], columns: Columns) -> Row:
        """The row as it will be: the one that is there, if it says the same already, else one to upsert."""
        if row is None:
            self.counts.created += 1
            self.changes.append(f"create {self.name} {label}")
        else:
            differing = [name for name, value in columns.items() if getattr(row, name) != value]
            if not differing:
                self.counts.unchanged += 1
                return row
            self.counts.updated += 1
            self.changes.append(f"update {self.name} {label} ({', '.join(differing)})")
        wanted = self.table(**keys, **columns)
        self.upserts.append(wanted)
        return wanted

    def remove(self, label: str, row: Row) -> None:
        """Marks a row for removal."""
        self.counts.removed += 1
        self.removals.append(row.pk)
        self.changes.append(f"remove {self.name} {label}")


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A route that is created or changed, as it was and as it will be."""

    route: str
    before: Region | None
    after: Region


@dataclass(slots=True)
class Plan:
    """All tables, parents before children, as planned on one version of the catalogue."""

    version: int
    providers: TablePlan[Provider]
    models: TablePlan[Model]
    regions: TablePlan[Region]
    facts: list[TablePlan[Any]]
    former_defaults: list[int] = field(default_factory=list)
    rewritten: list[Rewritten] = field(default_factory=list)
    held: list[HeldPrice] = field(default_factory=list)

    @property
    def tables(self) -> list[TablePlan[Any]]:
        """In the order of the report."""
        return [self.providers, self.models, self.regions, *self.facts]


def seeded(*, prune: bool) -> Seeded:
    """What the files may lean on; with `prune` no provider that they do not name themselves."""
    rows = [] if prune else Provider.objects.values_list("slug", "base_url", "extra_env")
    return Seeded(
        {slug: Address(base_url, frozenset(extra_env)) for slug, base_url, extra_env in rows},
        frozenset(Place.objects.values_list("code", flat=True)),
    )


def make_plan(catalogue: Catalogue, *, prune: bool, accept_price_jumps: bool) -> Plan:
    """Compares everything the files say with everything that is there."""
    plan = Plan(
        changes.version(),
        TablePlan("providers", Provider, ("slug",)),
        TablePlan("models", Model, ("provider", "canonical_id")),
        TablePlan("regions", Region, ("model", "locode")),
        [
            _plan_facts(TablePlan("places", Place, ("code",)), catalogue.places),
            _plan_facts(TablePlan("grid", GridIntensity, ("country",)), catalogue.grid),
            _plan_facts(TablePlan("energy", EnergyEstimate, ("canonical_id",)), catalogue.energy),
            _plan_facts(TablePlan("exchange_rates", ExchangeRate, ("currency",)), catalogue.exchange_rates),
        ],
    )
    _Offers(plan, catalogue, accept_price_jumps=accept_price_jumps).plan_all(prune=prune)
    return plan


def _plan_facts(plan: TablePlan[Row], facts: Facts) -> TablePlan[Row]:
    rows = plan.table._default_manager.in_bulk() if facts else {}
    for key, fact in facts.items():
        plan.take(key, rows.get(key), {plan.unique[0]: key}, fact.columns)
    return plan


class _Offers:
    """Plans providers, their models and those models' regions."""

    def __init__(self, plan: Plan, catalogue: Catalogue, *, accept_price_jumps: bool) -> None:
        self.plan, self.catalogue, self.accept_price_jumps = plan, catalogue, accept_price_jumps
        self.units_per_eur = _rates(catalogue)
        self.providers = {row.slug: row for row in Provider.objects.all()}
        slugs = {row.pk: row.slug for row in self.providers.values()}
        self.models: dict[ModelKey, Model] = {
            (slugs[row.provider_id], row.canonical_id): row for row in Model.objects.all()
        }
        self.regions: dict[int, dict[str, Region]] = {}
        for region in Region.objects.all():
            self.regions.setdefault(region.model_id, {})[region.locode] = region

    def plan_all(self, *, prune: bool) -> None:
        """Fills the plan."""
        if prune:
            self._plan_pruning()
        wanted = {
            entry.slug: self.plan.providers.take(
                entry.slug, self.providers.get(entry.slug), {"slug": entry.slug}, entry.columns
            )
            for entry in self.catalogue.providers
        }
        providers = self.providers | wanted
        for entry in self.catalogue.models:
            row = self.models.get((entry.provider, entry.canonical_id))
            keys = {"provider": providers[entry.provider], "canonical_id": entry.canonical_id}
            model = self.plan.models.take(entry.id, row, keys, entry.columns)
            self._plan_regions(entry, model, {} if row is None else self.regions.get(row.pk, {}))

    def _plan_regions(self, entry: ModelEntry, model: Model, rows: Mapping[str, Region]) -> None:
        for region in entry.regions:
            row, route, columns = rows.get(region.locode), f"{entry.id}/{region.locode}", region.columns
            if row is not None:
                if not self.accept_price_jumps:
                    columns, held = without_jumps(route, columns, row, self.units_per_eur)
                    self.plan.held += held
                if row.is_default and not columns["is_default"]:
                    self.plan.former_defaults.append(row.pk)
            wanted = self.plan.regions.take(route, row, {"model": model, "locode": region.locode}, columns)
            if wanted is not row:
                self.plan.rewritten.append(Rewritten(route, row, wanted))
        listed = {region.locode for region in entry.regions}
        self._remove_regions(entry.id, (row for row in rows.values() if row.locode not in listed))

    def _plan_pruning(self) -> None:
        named_providers = {entry.slug for entry in self.catalogue.providers}
        named_models = {(entry.provider, entry.canonical_id) for entry in self.catalogue.models}
        for key, model in self.models.items():
            if key not in named_models:
                self.plan.models.remove("/".join(key), model)
                self._remove_regions("/".join(key), self.regions.get(model.pk, {}).values())
        for slug, provider in self.providers.items():
            if slug not in named_providers:
                self.plan.providers.remove(slug, provider)

    def _remove_regions(self, model_id: str, rows: Iterable[Region]) -> None:
        for row in rows:
            self.plan.regions.remove(f"{model_id}/{row.locode}", row)


def _rates(catalogue: Catalogue) -> dict[str, Decimal]:
    stored = {row.currency: row.units_per_eur for row in ExchangeRate.objects.all() if row.units_per_eur}
    stated = {currency: fact.columns["units_per_eur"] for currency, fact in catalogue.exchange_rates.items()}
    return {"EUR": Decimal(1)} | stored | stated
