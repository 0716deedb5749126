"""Generation records as the API shows them (docs/api.md#records).

Everything comes from what the record froze at admission, never from today's catalogue.
"""

from decimal import Decimal
from typing import Any

from gateway.money import to_json
from gateway.rfc3339 import to_text

from .models import Generation
from .usage import usage_object

Json = dict[str, Any]


def record_of(generation: Generation) -> Json:
    """GenerationRecord; `cost` is in EUR. What is unknown or does not apply is absent."""
    return _known(
        {
            "generation_id": generation.public_id,
            "created_at": to_text(generation.created_at),
            "model": generation.route_id,
            "provider": generation.provider,
            "region": generation.region,
            "usage": usage_object(generation, generation.balance_after),
            "cost": _number(generation.cost_eur),
            "energy_wh": _number(generation.energy_wh),
            "carbon_gco2e": _number(generation.carbon_gco2e),
            "interrupted": generation.interrupted,
            "usage_estimated": generation.usage_estimated,
            "requested_auto": generation.requested_auto,
            "requested_alias": generation.requested_alias,
            "routing_mode": generation.routing_mode,
            "duration_ms": generation.duration_ms,
        }
    )


def stats_of(generation: Generation) -> Json:
    """GenerationStats; money is in the account's currency. `cost` is absent where the request was never priced."""
    return _known(
        {
            "generation_id": generation.public_id,
            "created_at": to_text(generation.created_at),
            "model": generation.route_id,
            "provider": generation.provider,
            "region": generation.region,
            "interrupted": generation.interrupted,
            "usage": usage_object(generation, generation.balance_after),
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
    """GenerationMetricsResponse, in which an unknown figure is null."""
    return {
        "generation_id": generation.public_id,
        "created_at": to_text(generation.created_at),
        "provider": generation.provider,
        "model": generation.route_id,
        "prompt_tokens": generation.prompt_tokens,
        "completion_tokens": generation.completion_tokens,
        "total_tokens": generation.total_tokens,
        "energy_wh": _number(generation.energy_wh),
        "carbon_gco2e": _number(generation.carbon_gco2e),
        "request_duration_ms": generation.duration_ms,
    }


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
    return _known(
        {
            "energy_wh": _number(generation.energy_wh),
            "carbon_gco2e": _number(generation.carbon_gco2e),
            "grid_carbon_intensity_gco2_per_kwh": generation.grid_intensity,
        }
    )


def _routing(generation: Generation) -> Json:
    return _known(
        {
            "routing_mode": generation.routing_mode,
            "routing_reason": generation.routing_reason,
            "fallback_occurred": generation.fallback_reason is not None,
            "providers_attempted": generation.providers_attempted,
        }
    )


def _known(fields: Json) -> Json:
    return {name: value for name, value in fields.items() if value is not None}


def _number(exact: Decimal | None) -> float | None:
    return None if exact is None else to_json(exact)
