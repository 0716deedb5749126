"""Writes generations as the API shows them (docs/api.md#records).

All values come from what the record froze at admission, never from today's catalogue.
"""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from catalogue.pricing import MEASURED, EnergyFactors
from gateway.edge.responses import without_unknown
from gateway.edge.rfc3339 import to_text
from gateway.money import UNITS, to_json

from ..ledger.record_columns import Export, exported
from ..ledger.unsettled import RequestColumns
from ..models import Generation

Json = dict[str, Any]
FOOTPRINT_DETAILS = (
    "energy_wh_low",
    "energy_wh_high",
    "energy_source",
    "energy_method",
    "energy_breakdown",
    "embodied_gco2e",
    "grid_kind",
    "grid_source",
    "grid_as_of",
)
_COLUMNS = {export: exported(export) for export in Export}


def usage_object(
    record: Generation | RequestColumns, *, cost: float | None, balance: float | None, currency: str
) -> Json:
    """Builds the `usage` object of an answer and of its records (docs/api.md#usage).

    It has the tokens, the cost, the balance after the request, and details by kind of token; unknown values are absent.
    """
    usage: Json = {
        "prompt_tokens": record.prompt_tokens,
        "completion_tokens": record.completion_tokens,
        "total_tokens": record.total_tokens,
    }
    if cost is not None:
        usage["cost"] = cost
    if balance is not None:
        usage["remaining_balance"] = balance
    usage["currency"] = currency
    cached = {"cached_tokens": record.cache_read_tokens, "cache_write_tokens": record.cache_write_tokens}
    if known := {name: tokens for name, tokens in cached.items() if tokens is not None}:
        usage["prompt_tokens_details"] = known
    if record.reasoning_tokens is not None:
        usage["completion_tokens_details"] = {"reasoning_tokens": record.reasoning_tokens}
    return usage


def footprint_details(
    record: Generation | RequestColumns, factors: EnergyFactors, number: Callable[[Any], float]
) -> Json:
    """Builds the details of a request's footprint.

    They are the bounds (Wh), source, method and parts of its energy, its embodied emissions (gCO2e), and the source of
    the grid's intensity. `number` turns the record's kind of exact figure into a float.
    """
    details: Json = {"energy_source": record.energy_source, **factors.grid_details}
    if record.energy_wh_low is not None and record.energy_wh_high is not None:
        details |= {"energy_wh_low": number(record.energy_wh_low), "energy_wh_high": number(record.energy_wh_high)}
    if factors.figures is not None and record.energy_source != MEASURED:
        kinds = factors.by_kind(record.completion_tokens, record.prompt_tokens, record.cache_read_tokens or 0)
        parts = zip(("output_wh", "prompt_wh", "cached_wh"), kinds, strict=True)
        details["energy_method"] = factors.figures.method or None
        details["energy_breakdown"] = {name: units / UNITS for name, units in parts}
    if record.embodied_gco2e is not None:
        details["embodied_gco2e"] = number(record.embodied_gco2e)
    return details


def record_of(generation: Generation) -> Json:
    """Builds a GenerationRecord; `cost` is in EUR. What is unknown or does not apply is absent."""
    return without_unknown(_begin(generation) | {"usage": _usage(generation)} | _columns(generation, Export.RECORD))


def stats_of(generation: Generation) -> Json:
    """Builds GenerationStats; money is in the account's currency. `cost` is absent if the request was never priced."""
    return without_unknown(
        _begin(generation)
        | {
            "interrupted": generation.interrupted,
            "usage": _usage(generation),
            "cost": _cost(generation),
            "carbon_metrics": without_unknown(_columns(generation, Export.CARBON)),
            "latency": _columns(generation, Export.LATENCY),
            "routing_info": _routing(generation),
        }
    )


def metrics_of(generation: Generation) -> Json:
    """Builds a GenerationMetricsResponse, in which an unknown figure is null."""
    return {
        "generation_id": generation.public_id,
        "created_at": to_text(generation.created_at),
        "provider": generation.provider,
        "model": generation.route_id,
        **_columns(generation, Export.METRICS),
    }


def _begin(generation: Generation) -> Json:
    return {
        "generation_id": generation.public_id,
        "created_at": to_text(generation.created_at),
        "model": generation.route_id,
        "provider": generation.provider,
        "region": generation.region,
    }


def _usage(generation: Generation) -> Json:
    cost, balance = _number(generation.cost), _number(generation.balance_after)
    return usage_object(generation, cost=cost, balance=balance, currency=generation.currency)


def _columns(generation: Generation, export: Export) -> Json:
    """Returns the fields that an export shows; the footprint's details follow with the source of the energy."""
    fields: Json = {}
    for name, column in _COLUMNS[export].items():
        if column.name == "energy_source":
            unknown = dict.fromkeys(FOOTPRINT_DETAILS) if export is Export.METRICS else {}
            fields |= unknown | footprint_details(generation, generation.energy_factors, to_json)
        else:
            value = column.read(generation)
            fields[name] = to_json(value) if isinstance(value, Decimal) else value
    return fields


def _cost(generation: Generation) -> Json | None:
    if generation.cost is None:
        return None
    return {
        "prompt_cost": _number(generation.prompt_cost),
        "completion_cost": _number(generation.completion_cost),
        "total_cost": _number(generation.cost),
        "currency": generation.currency,
    }


def _routing(generation: Generation) -> Json:
    fields = _columns(generation, Export.ROUTING)
    return without_unknown(fields | {"fallback_occurred": generation.fallback_reason is not None})


def _number(exact: Decimal | None) -> float | None:
    return None if exact is None else to_json(exact)
