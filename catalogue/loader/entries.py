"""Files to checked entries: what each row of the tables should hold, before anyone looks at the database."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rest_framework import serializers

from catalogue.model_ids import GLOBAL
from catalogue.models import PRICES
from catalogue.pricing import stored_tiers
from catalogue.snapshot_building import WORLD

from . import shapes
from .faults import Fault, Where, dotted, flatten, label
from .fields import Pattern
from .files import read

Columns = dict[str, Any]
_SYNTHESIZED = shapes.RegionOfModel().run_validation({"locode": GLOBAL})


@dataclass(frozen=True, slots=True)
class ProviderEntry:
    """A provider of the files; `columns` are those of its row."""

    where: Where
    slug: str
    columns: Columns


@dataclass(frozen=True, slots=True)
class RegionEntry:
    """A route of a model."""

    where: Where
    locode: str
    columns: Columns


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """An offer with all its routes, exactly one of them the default."""

    where: Where
    provider: str
    canonical_id: str
    columns: Columns
    regions: tuple[RegionEntry, ...]

    @property
    def id(self) -> str:
        """The 3-part id."""
        return f"{self.provider}/{self.canonical_id}"


@dataclass(frozen=True, slots=True)
class Fact:
    """A row of a plain table (places, grid, energy, exchange_rates)."""

    where: Where
    columns: Columns


Facts = dict[str, Fact]


@dataclass(slots=True)
class Catalogue:
    """Everything the files say, together."""

    providers: list[ProviderEntry] = field(default_factory=list)
    models: list[ModelEntry] = field(default_factory=list)
    places: Facts = field(default_factory=dict)
    grid: Facts = field(default_factory=dict)
    energy: Facts = field(default_factory=dict)
    exchange_rates: Facts = field(default_factory=dict)


class Collector:
    """Gathers entries and faults over several files."""

    def __init__(self) -> None:
        self.catalogue = Catalogue()
        self.faults: list[Fault] = []
        self.named_providers: set[str] = set()  # the faulty ones too: their models need no second fault
        self._provider, self._model, self._place = shapes.Provider(), shapes.Model(), shapes.Place()
        self._rates, self._rate = shapes.ExchangeRates(), shapes.rate()
        self._intensity, self._energy = shapes.intensity(), shapes.energy()

    def add_file(self, path: Path) -> None:
        """Reads a file. Raises BadCatalogue where it is none; faults of its entries are gathered."""
        document, where = read(path), Where(str(path))
        sections = {
            "providers": self._add_providers,
            "models": self._add_models,
            "places": self._add_places,
            "grid": self._add_grid,
            "energy": self._add_energy,
            "exchange_rates": self._add_exchange_rates,
        }
        for key, content in document.items():
            if key in sections:
                if content is not None:
                    sections[key](where.file, content)
            elif key not in shapes.ANNOTATIONS:
                self.faults.append(Fault(where, label(str(key)), "is not a known key"))

    def _add_providers(self, file: str, content: object) -> None:
        for position, item in self._items(file, "providers", content):
            slug = label(item.get("slug")) if isinstance(item, Mapping) else ""
            self.named_providers.add(slug)
            where = Where(file, f"providers[{position}] {slug}".rstrip())
            values = self._checked(self._provider, item, where)
            if values is not None:
                self.catalogue.providers.append(_provider(where, values))

    def _add_models(self, file: str, content: object) -> None:
        for position, item in self._items(file, "models", content):
            where = Where(file, f"models[{position}] {_model_label(item)}".rstrip())
            values = self._checked(self._model, item, where)
            if values is not None:
                self.catalogue.models.append(_model(where, values))

    def _add_places(self, file: str, content: object) -> None:
        for code, item, where in self._rows(file, "places", content, shapes.LOCODE):
            values = self._checked(self._place, item, where)
            if values is not None:
                self._add_fact(self.catalogue.places, code, Fact(where, dict(values)))

    def _add_grid(self, file: str, content: object) -> None:
        for country, item, where in self._rows(file, "grid", content, rf"{shapes.COUNTRY}|{WORLD}"):
            value = self._checked(self._intensity, item, where)
            if value is not None:
                self._add_fact(self.catalogue.grid, country, Fact(where, {"gco2_per_kwh": value}))

    def _add_energy(self, file: str, content: object) -> None:
        for canonical_id, item, where in self._rows(file, "energy", content, shapes.CANONICAL_ID):
            value = self._checked(self._energy, item, where)
            if value is not None:
                self._add_fact(self.catalogue.energy, canonical_id, Fact(where, {"energy_per_token_wh": value}))

    def _add_exchange_rates(self, file: str, content: object) -> None:
        values = self._checked(self._rates, content, Where(file, "exchange_rates"))
        rates = {} if values is None else values["rates"]
        for currency, item, where in self._rows(file, "exchange_rates", rates, shapes.CURRENCY):
            rate = self._checked(self._rate, item, where)
            if currency == "EUR" and rate not in (None, 1):
                self.faults.append(Fault(where, "", "must be 1: the euro is the base"))
            elif rate is not None and currency != "EUR":
                columns = {"units_per_eur": rate, "as_of": values["as_of"]}
                self._add_fact(self.catalogue.exchange_rates, currency, Fact(where, columns))

    def _items(self, file: str, section: str, content: object) -> Iterable[tuple[int, Any]]:
        if isinstance(content, list):
            return enumerate(content)
        self.faults.append(Fault(Where(file), section, "must be a list"))
        return ()

    def _rows(self, file: str, section: str, content: object, key_pattern: str) -> Iterator[tuple[str, Any, Where]]:
        if not isinstance(content, Mapping):
            self.faults.append(Fault(Where(file), section, "must be a table"))
            return
        key_field = Pattern(key_pattern, f"of the form {key_pattern}")
        for key, item in content.items():
            where = Where(file, f"{section} {label(str(key))}")
            if key not in shapes.ANNOTATIONS and self._checked(key_field, key, where, "its key") is not None:
                yield key, item, where

    def _checked(self, shape: serializers.Field[Any, Any, Any, Any], value: Any, where: Where, name: str = "") -> Any:
        """The validated value, or None with its faults noted."""
        try:
            return shape.run_validation(value)
        except serializers.ValidationError as error:
            for path, reason in flatten(error.detail):
                inner, rest = _region_of(value, where, path)
                self.faults.append(Fault(inner, dotted(rest) or name, reason))
            return None

    def _add_fact(self, table: Facts, key: str, fact: Fact) -> None:
        known = table.setdefault(key, fact)
        if known.columns != fact.columns:
            self.faults.append(Fault(fact.where, "", f"contradicts {known.where.file}"))


def _model_label(item: object) -> str:
    if not isinstance(item, Mapping):
        return ""
    return "/".join(part for part in (label(item.get("provider")), label(item.get("id"))) if part)


def _region_of(value: Any, where: Where, path: tuple[str | int, ...]) -> tuple[Where, tuple[str | int, ...]]:
    """Moves `regions[1]` from the path of a fault into the name of its entry: `… (region FRPAR)`."""
    match path:
        case ("regions", int(position), *rest):
            item = value["regions"][position]
            locode = label(item.get("locode")) if isinstance(item, Mapping) else ""
            return _in_region(where, locode or f"[{position}]"), tuple(rest)
    return where, path


def _in_region(where: Where, locode: str) -> Where:
    return Where(where.file, f"{where.entry} (region {locode})")


def _provider(where: Where, values: Mapping[str, Any]) -> ProviderEntry:
    auth = values["auth"] or {}
    same = (
        *(
            "country",
            "eu_native",
            "us_legal_reach",
            "dialect",
            "base_url",
            "credential_env",
            "extra_headers",
            "extra_env",
        ),
        *("stream_options", "developer_role", "reasoning_content", "refused_parameters"),
    )
    return ProviderEntry(
        where,
        values["slug"],
        {name: values[name] for name in same}
        | {
            "name": values["name"] or values["slug"],
            "auth_header": auth.get("header", ""),
            "auth_scheme": auth.get("scheme", ""),
            "status_override": values["status"],
        },
    )


def _model(where: Where, values: Mapping[str, Any]) -> ModelEntry:
    apart = ("provider", "id", "capabilities", "pricing", "regions")
    short_name = values["id"].split("/")[1]
    capabilities = values["capabilities"] or {}
    return ModelEntry(
        where,
        values["provider"],
        values["id"],
        {name: value for name, value in values.items() if name not in apart}
        | {
            "name": values["name"] or short_name,
            "upstream_model": values["upstream_model"] or short_name,
            "streaming": capabilities.get("streaming"),
            "function_calling": capabilities.get("function_calling"),
            "image_input": capabilities.get("image_input"),
        },
        _regions(where, values),
    )


def _regions(where: Where, model: Mapping[str, Any]) -> tuple[RegionEntry, ...]:
    """The routes of a model: those of its entry, else one synthesized `global`."""
    listed = model["regions"] or [_SYNTHESIZED]
    locodes = [region["locode"] for region in listed]
    marked = [region["locode"] for region in listed if region["default"]]
    default = marked[0] if marked else GLOBAL if GLOBAL in locodes else locodes[0]
    return tuple(
        RegionEntry(
            _in_region(where, region["locode"]),
            region["locode"],
            {name: value for name, value in region.items() if name not in ("locode", "default", "pricing")}
            | pricing_columns(region["pricing"] or model["pricing"])
            | {"is_default": region["locode"] == default},
        )
        for region in listed
    )


def pricing_columns(pricing: Mapping[str, Any] | None) -> Columns:
    """What a route's row holds of a checked pricing; None is no price."""
    if pricing is None:
        return {"currency": "", **dict.fromkeys(PRICES), "price_tiers": []}
    tiers = ((tier["above_prompt_tokens"], {name: tier[name] for name in PRICES}) for tier in pricing["tiers"])
    prices = {name: pricing[name] for name in PRICES}
    return {"currency": pricing["currency"], **prices, "price_tiers": stored_tiers(tiers)}
