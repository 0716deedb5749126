"""Holds a generation before it is settled: the values of its columns, cheap to make and to write.

The values include everything that the bill depends on, so that a later settlement in another process gives the same
bill: the spool and the checkpoints keep them as JSON. The columns that follow from the route, the currency and the
catalogue's version are `RouteTerms`, made and encoded once for all requests that share them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import orjson
from django.conf import settings
from django.core.exceptions import ValidationError
from django.db.models import BooleanField, Field, JSONField, UUIDField

from catalogue.pricing import EnergyFactors, Price, Rates, cache_writes
from catalogue.routing import pinning
from catalogue.routing.routes import Route, Snapshot, is_eu_sovereign
from gateway.ids import generation_id
from gateway.money import ExactDecimalField

from ..models import FROZEN, FrozenTerms, Generation

Encode = Callable[[Any], bytes]


class RequestColumns(NamedTuple):
    """Holds the columns that differ from request to request. Costs and footprint are whole numbers of 10^-10 units."""

    id: UUID
    account_id: UUID
    key_id: UUID
    alias_id: UUID | None
    endpoint: str
    ending: str
    requested_alias: str | None
    requested_auto: str | None
    routing_mode: str
    routing_reason: str | None
    fallback_reason: str | None
    providers_attempted: list[str]
    providers_skipped: list[str] | None
    routes_excluded: list[dict[str, str]] | None
    tags: str | None
    eu_sovereign: bool | None
    uncached_prompt_tokens: int
    cache_read_tokens: int | None
    cache_write_5m_tokens: int | None
    cache_write_1h_tokens: int | None
    completion_tokens: int
    reasoning_tokens: int | None
    prompt_tokens: int
    interrupted: bool
    usage_estimated: bool
    upstream_usage: str | None
    flags: str | None
    prompt_cost: int | None
    completion_cost: int | None
    cost: int | None
    cost_eur: int | None
    energy_wh: int | None
    energy_wh_low: int | None
    energy_wh_high: int | None
    energy_source: str | None
    embodied_gco2e: int | None
    carbon_gco2e: int | None
    duration_ms: int
    first_token_ms: int | None

    @property
    def total_tokens(self) -> int:
        """Returns prompt and completion tokens together."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def cache_write_tokens(self) -> int | None:
        """Returns prompt tokens written to the cache, for any lifetime; None if the upstream did not report them."""
        return cache_writes(self.cache_write_5m_tokens, self.cache_write_1h_tokens)


_DECIDED_BY_SETTLING = ("created_at", "balance_after")
_FIELDS = {
    field.attname: field for field in Generation._meta.concrete_fields if field.attname not in _DECIDED_BY_SETTLING
}
_EXACT_FIGURES = tuple(name for name in RequestColumns._fields if isinstance(_FIELDS[name], ExactDecimalField))
# The order of the statement's parameters: the figures, then the terms.
COLUMNS = (*RequestColumns._fields, *(name for name in _FIELDS if name not in RequestColumns._fields))


def _encoder_of(field: "Field[Any, Any]") -> Encode:
    """Returns the function that writes a column's value as PostgreSQL's text. A decimal is given as a whole number."""
    match field:
        case JSONField():
            return orjson.dumps
        case UUIDField():
            return lambda value: value.hex.encode()
        case BooleanField():
            return lambda value: b"t" if value else b"f"
        case _ if field.get_internal_type() in ("CharField", "TextField"):
            return str.encode
        case _:
            return lambda value: b"%d" % value


_ENCODERS = {name: _encoder_of(getattr(_FIELDS[name], "target_field", _FIELDS[name])) for name in COLUMNS}
_FIGURE_ENCODERS = [_ENCODERS[name] for name in RequestColumns._fields]


@dataclass(slots=True)
class RouteTerms:
    """Holds what requests of one route and currency share under one version of the catalogue.

    `quota_region` is the id of the route (Region) if it has a daily quota, which counts the tokens. `columns` are the
    record's columns that RequestColumns lacks, decimals as text; `parameters` are the values that a settlement writes
    for them, as PostgreSQL's text in the order of COLUMNS. `row` is the row that records refer to; it is None if
    records keep the columns themselves.
    """

    price: Price
    rates: Rates
    energy: EnergyFactors
    eu_sovereign: bool
    quota_region: int | None
    columns: dict[str, Any]
    parameters: list[bytes | None] = field(init=False)
    row: FrozenTerms | None = field(init=False)

    def __post_init__(self) -> None:
        record = Generation(**{name: _FIELDS[name].to_python(value) for name, value in self.columns.items()})
        move_frozen_columns_to_terms(record)
        self.row = record.terms
        self.parameters = [encoded(name, getattr(record, name)) for name in COLUMNS[len(RequestColumns._fields) :]]


def move_frozen_columns_to_terms(record: Generation, terms: FrozenTerms | None = None) -> None:
    """Moves an unsaved record's frozen columns to its `terms`: the given ones, or unsaved ones made from the columns.

    With GATEWAY_WHOLE_RECORDS it does nothing: releases before 1.1 read these columns in the record.
    """
    if record.terms is None and not settings.GATEWAY_WHOLE_RECORDS:
        record.terms = terms or FrozenTerms.of({name: getattr(record, name) for name in FROZEN})
        for name in FROZEN:
            setattr(record, name, None)


_terms: dict[tuple[int, str], RouteTerms] = {}
_terms_of_snapshot = -1


def terms_of(snapshot: Snapshot, route: Route, currency: str) -> RouteTerms:
    """Returns the terms of a route for accounts in a currency, made once per snapshot. Raises UnpricedRoute."""
    global _terms_of_snapshot  # noqa: PLW0603  # a worker's memory of its current snapshot
    if snapshot.serial != _terms_of_snapshot:
        _terms.clear()
        _terms_of_snapshot = snapshot.serial
    known = _terms.get((route.region_id, currency))
    if known is None:
        known = _terms[route.region_id, currency] = _make_terms(snapshot, route, currency)
    return known


def _make_terms(snapshot: Snapshot, route: Route, currency: str) -> RouteTerms:
    price, rates = pinning.require_price(snapshot, route, currency)
    energy = route.energy
    columns = {
        "provider": route.upstream.slug,
        "model": route.canonical_id,
        "region": route.locode,
        "dialect": route.upstream.dialect,
        "price_currency": price.currency,
        "prompt_price": price.prompt,
        "completion_price": price.completion,
        "cache_read_price": price.cache_read,
        "cache_write_price": price.cache_write,
        "cache_write_1h_price": price.cache_write_1h,
        "price_tiers": price.frozen_tiers,
        "account_rate": rates.account,
        "eur_rate": rates.eur,
        "energy_per_token_wh": energy.per_token_wh,
        "energy_per_prompt_token_wh": energy.per_prompt_token_wh,
        "energy_figures": None if energy.figures is None else energy.figures.stored(),
        "grid_intensity": energy.intensity_gco2_per_kwh,
        "grid_basis": None if energy.basis is None else energy.basis._asdict(),
        "currency": currency,
    }
    return RouteTerms(
        price=price,
        rates=rates,
        energy=energy,
        eu_sovereign=is_eu_sovereign(route),
        quota_region=route.region_id if route.daily_token_quota else None,
        columns={name: str(value) if isinstance(value, Decimal) else value for name, value in columns.items()},
    )


@dataclass(frozen=True, slots=True)
class UnsettledGeneration:
    """Holds a generation that is complete except for `created_at` and `balance_after`, which settling sets."""

    figures: RequestColumns
    terms: RouteTerms

    @property
    def public_id(self) -> str:
        """Returns the id that clients see."""
        return generation_id(self.figures.id)

    @property
    def parameters(self) -> list[bytes | None]:
        """Returns the values of COLUMNS as PostgreSQL's text."""
        own = zip(_FIGURE_ENCODERS, self.figures, strict=True)
        return [*(None if value is None else encode(value) for encode, value in own), *self.terms.parameters]

    def serialized(self) -> bytes:
        """Writes JSON of the columns, decimals as text, and of the route whose daily quota counts the tokens."""
        columns = self.terms.columns | self.figures._asdict()
        for name in _EXACT_FIGURES:
            if columns[name] is not None:
                columns[name] = f"{columns[name]}E-10"
        return orjson.dumps({"generation": columns, "quota_region": self.terms.quota_region})

    def generation(self) -> Generation:
        """Returns the unsaved record, with its shared terms."""
        record, _ = deserialized(self.serialized())
        move_frozen_columns_to_terms(record, self.terms.row)
        return record


def encoded(name: str, value: Any) -> bytes | None:
    """Writes a column's value as PostgreSQL's text. Raises LossyValueError for a decimal with too many digits."""
    field = _FIELDS[name]
    prepared = value if isinstance(field, JSONField) else field.get_prep_value(value)
    return None if prepared is None else _ENCODERS[name](prepared)


class BadSerializedGeneration(ValueError):
    """The bytes are not a serialized generation, or lack a column that this version needs."""


def deserialized(content: bytes) -> tuple[Generation, int | None]:
    """Reads an unsaved record and the id of the route whose quota counts it. Raises BadSerializedGeneration."""
    try:
        stored = orjson.loads(content)
        columns: dict[str, Any] = stored["generation"]
        return Generation(**{name: _read(field, columns) for name, field in _FIELDS.items()}), stored["quota_region"]
    except (ValueError, LookupError, TypeError, AttributeError, ValidationError) as error:
        raise BadSerializedGeneration(f"not a serialized generation: {error!r}") from error


def _read(field: "Field[Any, Any]", columns: dict[str, Any]) -> Any:
    """Reads a column. If an upgrade has added it since, returns its default or null; a `db_default` does not count."""
    if field.attname not in columns and not field.primary_key and (field.null or field.has_default()):
        return field.get_default()
    return field.to_python(columns[field.attname])
