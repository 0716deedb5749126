"""Turns catalogue files into validated entries, one for each database row."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rest_framework.exceptions import ValidationError

from catalogue.models import Place, Provider
from catalogue.routing.model_ids import GLOBAL
from gateway.edge import tables
from gateway.edge.tables import dotted, faults_of, printable

from .fields import PLACEHOLDER
from .files import BadCatalogue, read
from .shapes import UPSTREAM_REGION, File

Columns = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """Holds a row as a file states it. `name` is its place in the file, such as `models[3] acme/meta/llama`."""

    file: str
    name: str
    key: str
    columns: Columns
    regions: tuple["CatalogueEntry", ...] = ()

    def fault(self, field: str, reason: str) -> str:
        return ": ".join(part for part in (self.file, self.name, field, reason) if part)

    @property
    def stated(self) -> Columns:
        """Returns the columns in which another entry with this key must be equal."""
        is_grid = "gco2_per_kwh" in self.columns
        return {"gco2_per_kwh": self.columns["gco2_per_kwh"]} if is_grid else self.columns

    @property
    def provider(self) -> str:
        return self.key.rsplit("/", 2)[0]

    @property
    def canonical_id(self) -> str:
        return self.key.removeprefix(f"{self.provider}/")


SECTIONS = ("providers", "models", "places", "grid", "energy", "exchange_rates")
# Entries by section of the file, then by key.
Catalogue = dict[str, dict[str, CatalogueEntry]]


def collect(paths: Iterable[Path]) -> Catalogue:
    """Reads files into one catalogue. Raises BadCatalogue with all faults."""
    shape = File()
    catalogue: Catalogue = {section: {} for section in SECTIONS}
    faults: list[str] = []
    for path in dict.fromkeys(paths):
        try:
            document = read(path)
            values = shape.run_validation(document)
        except BadCatalogue as error:
            faults += error.faults
        except ValidationError as error:
            faults += (_line(str(path), document, *fault) for fault in faults_of(error.detail))
        else:
            for section, entry in _entries(str(path), values):
                known = catalogue[section].setdefault(entry.key, entry)
                if known is not entry and section in ("providers", "models"):
                    faults.append(entry.fault("", f"is there already: {known.file}: {known.name}"))
                elif known.stated != entry.stated:
                    faults.append(entry.fault("", f"contradicts {known.file}"))
    if faults:
        raise BadCatalogue(faults)
    return catalogue


def check_references(catalogue: Catalogue, shipped_places: Callable[[], Catalogue], *, prune: bool) -> None:
    """Checks references between entries; adds to `catalogue` the places it lacks and that ship with us.

    Raises BadCatalogue with all faults.
    """
    stored = Provider.objects.none() if prune else Provider.objects.all()
    providers: dict[str, Mapping[str, Any]] = {
        row["slug"]: row for row in stored.values("slug", "base_url", "extra_env")
    }
    providers |= {slug: entry.columns for slug, entry in catalogue["providers"].items()}
    faults = [
        entry.fault("base_url", f"{{{name}}} has no entry in extra_env")
        for entry in catalogue["providers"].values()
        for name in _unfilled(entry.columns["base_url"], entry.columns)
    ]
    for model in catalogue["models"].values():
        provider = providers.get(model.provider)
        if provider is None:
            reason = f"{printable(model.provider)} is in no file and not in the database, or about to be pruned"
            faults.append(model.fault("provider", reason))
        else:
            faults += (fault for region in model.regions for fault in _faults_of_address(region, provider))
    known = {GLOBAL, *Place.objects.values_list("code", flat=True), *catalogue["places"]}
    missing = [region for model in catalogue["models"].values() for region in model.regions if region.key not in known]
    shipped = shipped_places()["places"] if missing else {}
    for region in missing:
        if region.key in shipped:
            catalogue["places"][region.key] = shipped[region.key]
        else:
            reason = "is in no `places` table: neither in the files, seeded nor shipped"
            faults.append(region.fault("locode", reason))
    if faults:
        raise BadCatalogue(faults)


def _entries(file: str, values: Mapping[str, Any]) -> Iterator[tuple[str, CatalogueEntry]]:
    """Yields the entries of a validated file, each with its section."""
    for position, columns in enumerate(values["providers"]):
        slug = columns.pop("slug")
        yield "providers", CatalogueEntry(file, f"providers[{position}] {slug}", slug, columns)
    for position, columns in enumerate(values["models"]):
        key = f"{columns.pop('provider')}/{columns.pop('id')}"
        name = f"models[{position}] {key}"
        routes = [(route.pop("locode"), route) for route in columns.pop("regions")]
        regions = tuple(CatalogueEntry(file, f"{name} (region {locode})", locode, route) for locode, route in routes)
        yield "models", CatalogueEntry(file, name, key, columns, regions)
    for section in SECTIONS[2:]:
        for key, columns in values[section].items():
            yield section, CatalogueEntry(file, f"{section} {key}", key, columns)


def _line(file: str, document: Mapping[str, Any], path: tables.Path, reason: str) -> str:
    entry, rest = "", path
    match path:
        case ("providers" | "models" as section, int(position), *within):
            item, rest = document[section][position], tuple(within)
            names = ("slug",) if section == "providers" else ("provider", "id")
            parts = [printable(item.get(name)) for name in names] if isinstance(item, Mapping) else []
            entry = f"{section}[{position}] {'/'.join(part for part in parts if part)}".rstrip()
            match within:
                case ("regions", int(position), *within):
                    item, rest = item["regions"][position], tuple(within)
                    locode = printable(item.get("locode")) if isinstance(item, Mapping) else ""
                    entry += f" (region {locode or f'[{position}]'})"
        case ("exchange_rates", "rates", key, *within) | ("places" | "grid" | "energy", key, *within):
            entry, rest = f"{path[0]} {printable(str(key))}", tuple(within)
        case ("exchange_rates", *within):
            entry, rest = "exchange_rates", tuple(within)
    return ": ".join(part for part in (file, entry, dotted(rest), reason) if part)


def _faults_of_address(region: CatalogueEntry, provider: Mapping[str, Any]) -> Iterator[str]:
    own = region.columns["base_url"]
    if own:
        for name in _unfilled(own, provider):
            yield region.fault("base_url", f"{{{name}}} has no entry in the provider's extra_env")
    if UPSTREAM_REGION in PLACEHOLDER.findall(own or provider["base_url"]) and not region.columns[UPSTREAM_REGION]:
        yield region.fault(UPSTREAM_REGION, "is required: the base_url has it as a placeholder")


def _unfilled(url: str, provider: Mapping[str, Any]) -> set[str]:
    return {*PLACEHOLDER.findall(url)} - {*provider["extra_env"], UPSTREAM_REGION}
