"""Writes generations as the API shows them (docs/api.md#records).

All values come from what the record froze at admission, never from today's catalogue.
"""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from catalogue.pricing import MEASURED, EnergyFactors
from gateway.edge.responses import known
from gateway.edge.rfc3339 import to_text
from gateway.money import UNITS, to_json

from ..ledger.unsettled import Figures
from ..models import Generation

Json = dict[str, Any]
FOOTPRINT_DETAILS = (
    *("energy_wh_low", "energy_wh_high", "energy_source", "energy_method", "energy_breakdown", "embodied_gco2e"),
    *("grid_kind", "grid_source", "grid_as_of"),
)


def usage_object(record: Generation | Figures, *, cost: float | None, balance: float | None, currency: str) -> Json:
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


def footprint_details(record: Generation | Figures, factors: EnergyFactors, number: Callable[[Any], float]) -> Json:
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
    return known(
        {
            "generation_id": generation.public_id,
            "created_at": to_text(generation.created_at),
            "model": generation.route_id,
            "provider": generation.provider,
            "region": generation.region,
            "usage": _usage(generation),
            "cost": _number(generation.cost_eur),
            "energy_wh": _number(generation.energy_wh),
            **_footprint_details(generation),
            "carbon_gco2e": _number(generation.carbon_gco2e),
            "grid_carbon_intensity_gco2_per_kwh": generation.frozen.grid_intensity,
            "interrupted": generation.interrupted,
            "usage_estimated": generation.usage_estimated,
            "requested_auto": generation.requested_auto,
            "requested_alias": generation.requested_alias,
            "routing_mode": generation.routing_mode,
            "duration_ms": generation.duration_ms,
        }
    )


def stats_of(generation: Generation) -> Json:
    """Builds GenerationStats; money is in the account's currency. `cost` is absent if the request was never priced."""
    return known(
        {
            "generation_id": generation.public_id,
            "created_at": to_text(generation.created_at),
            "model": generation.route_id,
            "provider": generation.provider,
            "region": generation.region,
            "interrupted": generation.interrupted,
            "usage": _usage(generation),
            "cost": _cost(generation),
            "carbon_metrics": _carbon(generation),
            "latency": {
                "request_duration_ms": generation.duration_ms,
                "time_to_first_token_ms": generation.first_token_ms,
            },
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
        "prompt_tokens": generation.prompt_tokens,
        "completion_tokens": generation.completion_tokens,
        "total_tokens": generation.total_tokens,
        "energy_wh": _number(generation.energy_wh),
        **dict.fromkeys(FOOTPRINT_DETAILS),
        **_footprint_details(generation),
        "carbon_gco2e": _number(generation.carbon_gco2e),
        "grid_carbon_intensity_gco2_per_kwh": generation.frozen.grid_intensity,
        "request_duration_ms": generation.duration_ms,
    }


def _usage(generation: Generation) -> Json:
    cost, balance = _number(generation.cost), _number(generation.balance_after)
    return usage_object(generation, cost=cost, balance=balance, currency=generation.currency)


def _footprint_details(generation: Generation) -> Json:
    return footprint_details(generation, generation.energy_factors, to_json)


def _cost(generation: Generation) -> Json | None:
    if generation.cost is None:
        return None
    return {
        "prompt_cost": _number(generation.prompt_cost),
        "completion_cost": _number(generation.completion_cost),
        "total_cost": _number(generation.cost),
        "currency": generation.currency,
    }


def _carbon(generation: Generation) -> Json:
    return known(
        {
            "energy_wh": _number(generation.energy_wh),
            **_footprint_details(generation),
            "carbon_gco2e": _number(generation.carbon_gco2e),
            "grid_carbon_intensity_gco2_per_kwh": generation.frozen.grid_intensity,
        }
    )


def _routing(generation: Generation) -> Json:
    return known(
        {
            "routing_mode": generation.routing_mode,
            "routing_reason": generation.routing_reason,
            "fallback_occurred": generation.fallback_reason is not None,
            "providers_attempted": generation.providers_attempted,
            "providers_skipped": generation.providers_skipped,
        }
    )


def _number(exact: Decimal | None) -> float | None:
    return None if exact is None else to_json(exact)
