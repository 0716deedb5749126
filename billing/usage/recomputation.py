"""Recomputes a record's cost and footprint from its tokens and frozen terms, and its tokens from its upstream's usage.

A record is read as a plain row with figures as the database stores them; only a figure that is shown is converted.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple, Protocol
from uuid import UUID

import orjson
from django.db.models import ExpressionWrapper, F, Field
from django.db.models.functions import Coalesce

from catalogue.pricing import (
    MEASURED,
    ContradictoryUsage,
    EnergyFactors,
    Footprint,
    Price,
    Rates,
    Usage,
    cost_of,
    footprint_of,
    former_eur_units,
)
from gateway.ids import generation_id
from gateway.money import ExactDecimalField, from_units, plain

from ..ledger.endings import PROVIDER_FAILURES
from ..ledger.record_columns import COLUMN_BY_NAME
from ..models import FROZEN, IMPLAUSIBLE_USAGE, ZERO_USAGE, FrozenColumns, FrozenTerms, Generation, content_id

COSTS = (
    "prompt_cost",
    "completion_cost",
    "cost",
    "cost_eur",
)
# A record's columns of its footprint, in the order of `Footprint`.
FOOTPRINT = (
    "energy_wh",
    "carbon_gco2e",
    "energy_wh_low",
    "energy_wh_high",
    "embodied_gco2e",
    "energy_source",
)


class ReadUsage(Protocol):
    """Reads an upstream's usage in a dialect's words (`inference.dialects.read_usage`)."""

    def __call__(self, dialect: str, reported: Any, *, is_embedding: bool, flags: str, prompt: int) -> Usage | None: ...


class Record(NamedTuple):
    """Holds the columns of a record that are verified; exact figures are whole numbers of 10^-10 units."""

    id: UUID
    account_id: UUID
    endpoint: str
    dialect: str | None
    upstream_usage: str | None
    usage_estimated: bool
    flags: str | None
    prompt_tokens: int
    uncached_prompt_tokens: int
    cache_read_tokens: int | None
    cache_write_5m_tokens: int | None
    cache_write_1h_tokens: int | None
    completion_tokens: int
    prompt_cost: int | None
    completion_cost: int | None
    cost: int | None
    cost_eur: int | None
    balance_after: int | None
    ending: str
    energy_wh: int | None
    carbon_gco2e: int | None
    energy_wh_low: int | None
    energy_wh_high: int | None
    embodied_gco2e: int | None
    energy_source: str | None
    terms_id: UUID | None


class RecomputedTerms(NamedTuple):
    """Holds what recomputing needs of a record's terms, and the fault that was found in them, if any."""

    price: Price
    rates: Rates
    factors: EnergyFactors
    fault: str | None


EXACT = {field.attname for field in Generation._meta.concrete_fields if isinstance(field, ExactDecimalField)}


def as_stored(name: str) -> Any:
    """Makes `values_list` return the column as it is stored: an exact decimal as a whole number, JSON as text."""
    return ExpressionWrapper(F(name), output_field=Field[Any, Any]())


def columns_of_record(prefix: str = "") -> list[Any]:
    """Returns for `values_list` a record's columns and then the frozen ones, which are its own or its terms'."""
    own = [as_stored(prefix + name) if name in EXACT else prefix + name for name in Record._fields]
    return own + [
        Coalesce(as_stored(f"{prefix}terms__{name}"), as_stored(prefix + name), output_field=Field[Any, Any]())
        for name in FROZEN
    ]


def read_record(row: tuple[Any, ...]) -> tuple[Record, RecomputedTerms | None]:
    """Splits the values of `columns_of_record`. The frozen columns are None if the record's terms are missing."""
    record = Record._make(row[: len(Record._fields)])
    return record, _recomputed_terms(record.terms_id, row[len(Record._fields) :])


def recompute(record: Record, terms: RecomputedTerms | None, read_usage: ReadUsage) -> Iterator[str]:
    """Yields a line for each figure that differs from what the record's tokens, terms and upstream's usage give."""
    # 1. Tokens and terms.
    name, usage = generation_id(record.id), usage_of(record)
    if record.prompt_tokens != usage.prompt:
        yield f"{name}: {record.prompt_tokens} prompt tokens, its parts add up to {usage.prompt}"
    if terms is None:
        yield f"{name}: its terms {record.terms_id} are missing"
        return
    if terms.fault is not None:
        yield f"{name}: {terms.fault}"
    # 2. Costs and footprint.
    yield from recompute_cost(record, terms, usage)
    yield from recompute_footprint(record, terms.factors, usage)
    # 3. The upstream's usage. Why one was implausible cannot be checked: what was requested and delivered is not kept.
    is_implausible = record.cost is None and IMPLAUSIBLE_USAGE in (record.flags or "").split()
    if record.upstream_usage is not None and not is_implausible:
        odd = _reread(record, usage, terms, read_usage)
        if odd is not None:
            yield f"{name}: {odd}"


def usage_of(record: Record) -> Usage:
    """Returns the tokens of a record."""
    return Usage(
        record.uncached_prompt_tokens,
        record.cache_read_tokens,
        record.cache_write_5m_tokens,
        record.cache_write_1h_tokens,
        record.completion_tokens,
    )


def recompute_cost(record: Record, terms: RecomputedTerms, usage: Usage) -> Iterator[str]:
    """Yields a line for each wrong cost of a record that was billed."""
    if record.cost is None:
        return
    expected = cost_of(terms.price, usage, terms.rates)
    figures = (expected.prompt_units, expected.completion_units, expected.total_units, expected.eur_units)
    stored = _figures(record, COSTS)
    if stored != figures and terms.rates.account != terms.rates.eur:
        former_eur = former_eur_units(terms.price, usage, terms.rates)
        figures = (*figures[:3], former_eur) if record.cost_eur == former_eur else figures
    if stored != figures:
        yield from _unlike(record, COSTS, stored, figures, "prices")


def recompute_footprint(record: Record, factors: EnergyFactors, usage: Usage) -> Iterator[str]:
    """Yields a line for each wrong figure of energy and carbon. Energy that a provider measured is taken as stored."""
    stored = Footprint(*_figures(record, FOOTPRINT))
    measured = stored.energy_units if stored.source == MEASURED else None
    expected = footprint_of(usage, factors, measured)
    if stored.source is None and factors.figures is None:  # sources and figures by kind were not kept then
        expected = expected._replace(source=None)
    if stored != expected:
        yield from _unlike(record, FOOTPRINT, stored, expected, "factors")


def _unlike(
    record: Record, names: tuple[str, ...], stored: tuple[Any, ...], expected: tuple[Any, ...], inputs: str
) -> Iterator[str]:
    """Yields a line for each stored figure that differs from the expected one."""
    for name, found, figure in zip(names, stored, expected, strict=True):
        if found != figure:
            given = f"its tokens and frozen {inputs} give {shown(figure)}"
            yield f"{generation_id(record.id)}: {COLUMN_BY_NAME[name].verified_as} {shown(found)}, {given}"


def _figures(record: Record, names: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(getattr(record, name) for name in names)


def _reread(record: Record, stored: Usage, terms: RecomputedTerms, read_usage: ReadUsage) -> str | None:
    """Returns what is odd about the upstream's usage, read again. An estimate keeps the counts that it ended with."""
    reported, is_embedding = orjson.loads(record.upstream_usage or ""), record.endpoint == Generation.Endpoint.EMBEDDING
    dialect, flags = record.dialect or "", record.flags or ""
    try:
        usage = read_usage(dialect, reported, is_embedding=is_embedding, flags=flags, prompt=record.prompt_tokens)
    except ContradictoryUsage as contradiction:
        if record.cost is None:
            return None
        return f"billed, but its upstream's usage is read as contradictory: {contradiction}"
    except KeyError:
        return f"its upstream's usage is in the dialect {record.dialect!r}, which is unknown"
    if usage is None:
        return None if record.usage_estimated else "its upstream's usage is read as no count of the request"
    is_counted = record.cost is not None or record.ending in PROVIDER_FAILURES
    if record.usage_estimated and is_counted:
        usage = replace(usage, completion=record.completion_tokens)
        if usage.prompt == 0 and ZERO_USAGE in flags.split():  # a prompt that was not counted is estimated
            usage = replace(usage, uncached_prompt=record.prompt_tokens)
    if is_counted and _buckets(usage) == _buckets(stored):
        return None
    return (
        f"its upstream's usage is read as {_described(usage)}, which costs "
        f"{plain(cost_of(terms.price, usage, terms.rates).total)}; "
        f"the record has {_described(stored)} and costs {shown(record.cost)}"
    )


@lru_cache(maxsize=1000)
def _recomputed_terms(terms_id: UUID | None, stored: tuple[Any, ...]) -> RecomputedTerms | None:
    """Converts the frozen columns as they are stored. Returns None if the terms are missing."""
    columns = dict(zip(FROZEN, stored, strict=True))
    columns |= {name: orjson.loads(columns[name] or "null") for name in ("price_tiers", "energy_figures", "grid_basis")}
    if columns["price_currency"] is None:
        return None
    fault = None
    if terms_id is not None and content_id(columns) != terms_id:
        fault = f"its terms {terms_id} are not what they were when they were frozen"
    exact = (field for field in FrozenColumns._meta.fields if isinstance(field, ExactDecimalField))
    columns |= {field.attname: field.from_units(columns[field.attname]) for field in exact}
    terms = FrozenTerms(**columns)
    return RecomputedTerms(
        terms.price, Rates(columns["account_rate"], columns["eur_rate"]), terms.energy_factors, fault
    )


def _buckets(usage: Usage) -> tuple[int, int, int, int, int]:
    return (
        usage.uncached_prompt,
        usage.cache_read or 0,
        usage.cache_write_5m or 0,
        usage.cache_write_1h or 0,
        usage.completion,
    )


def _described(usage: Usage) -> str:
    prompt, read, written_5m, written_1h, completion = _buckets(usage)
    return f"{prompt} prompt + {read} cached + {written_5m + written_1h} written + {completion} completion tokens"


def shown(figure: int | str | None) -> str:
    """Writes a figure as it is stored in plain decimals."""
    if isinstance(figure, str):
        return figure
    return "unknown" if figure is None else plain(from_units(figure))
