"""Rules between entries, and between entries and what is already in the database."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from catalogue.model_ids import GLOBAL

from .entries import Catalogue, Facts, ModelEntry, ProviderEntry, RegionEntry
from .faults import Fault, label
from .fields import PLACEHOLDER

_UPSTREAM_REGION = "upstream_region"


@dataclass(frozen=True, slots=True)
class Address:
    """A provider's base_url, and the names of the placeholders that its environment fills."""

    base_url: str
    fillers: frozenset[str]


@dataclass(frozen=True, slots=True)
class Seeded:
    """What the files may lean on. `providers` leaves out those that --prune is about to remove."""

    providers: Mapping[str, Address]
    places: frozenset[str]


def faults_between(catalogue: Catalogue, named_providers: set[str], seeded: Seeded) -> Iterator[Fault]:
    """Everything wrong between entries that are right by themselves, save for their places."""
    addresses = {**seeded.providers, **{entry.slug: _address(entry) for entry in catalogue.providers}}
    yield from _twice([(entry.slug, entry) for entry in catalogue.providers])
    yield from _twice([(entry.id, entry) for entry in catalogue.models])
    for provider in catalogue.providers:
        yield from _unfilled(provider, addresses[provider.slug])
    for model in catalogue.models:
        address = addresses.get(model.provider)
        if address is not None:
            yield from (fault for region in model.regions for fault in _unfilled_in_region(region, address))
        elif model.provider not in named_providers:
            reason = f"{label(model.provider)} is in no file and not in the database, or about to be pruned"
            yield Fault(model.where, "provider", reason)


def take_places(catalogue: Catalogue, seeded: Seeded, shipped: Callable[[], Facts]) -> Iterator[Fault]:
    """Adds the shipped places that regions name and nobody has stated. A place that nobody knows is a fault."""
    known = {GLOBAL, *seeded.places, *catalogue.places}
    missing = [region for model in catalogue.models for region in model.regions if region.locode not in known]
    if not missing:
        return
    places = shipped()
    for region in missing:
        if region.locode in places:
            catalogue.places[region.locode] = places[region.locode]
        else:
            yield Fault(region.where, "locode", "is in no `places` table: neither in the files, seeded nor shipped")


def _address(entry: ProviderEntry) -> Address:
    return Address(entry.columns["base_url"], frozenset(entry.columns["extra_env"]))


def _twice(named: list[tuple[str, ProviderEntry]] | list[tuple[str, ModelEntry]]) -> Iterator[Fault]:
    first: dict[str, ProviderEntry | ModelEntry] = {}
    for name, entry in named:
        earlier = first.setdefault(name, entry)
        if earlier is not entry:
            yield Fault(entry.where, "", f"is there already: {earlier.where.file}: {earlier.where.entry}")


def _unfilled(entry: ProviderEntry, address: Address) -> Iterator[Fault]:
    for name in _placeholders(address.base_url) - address.fillers - {_UPSTREAM_REGION}:
        yield Fault(entry.where, "base_url", f"{{{name}}} has no entry in extra_env")


def _unfilled_in_region(region: RegionEntry, address: Address) -> Iterator[Fault]:
    own = region.columns["base_url"]
    needed = _placeholders(own or address.base_url)
    if own:
        for name in needed - address.fillers - {_UPSTREAM_REGION}:
            yield Fault(region.where, "base_url", f"{{{name}}} has no entry in the provider's extra_env")
    if _UPSTREAM_REGION in needed and not region.columns[_UPSTREAM_REGION]:
        yield Fault(region.where, _UPSTREAM_REGION, "is required: the base_url has it as a placeholder")


def _placeholders(url: str) -> set[str]:
    return set(PLACEHOLDER.findall(url))
