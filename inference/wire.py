"""Answers in OpenAI's shape, with the gateway's `usage` and `gateway_metadata` (docs/api.md#usage)."""

from typing import Any

from billing.models import Generation
from billing.outcomes import Settlement
from billing.usage import usage_object
from catalogue.carbon import METHODOLOGY


def usage_of(record: Generation, settlement: Settlement, reported: Any) -> dict[str, Any]:
    """The Usage object of a settled generation, as its record will show it too.

    Details that the upstream gave beside those that the gateway owns (audio, predictions) are in it as they came.
    """
    usage = usage_object(record, settlement.balance)
    if isinstance(reported, dict):
        for name in ("prompt_tokens_details", "completion_tokens_details"):
            details = reported.get(name)
            if isinstance(details, dict):
                usage[name] = {**details, **usage.get(name, {})}
    return usage


def metadata_of(record: Generation) -> dict[str, Any]:
    """`gateway_metadata`. What is unknown or does not apply is absent."""
    metadata: dict[str, Any] = {
        "provider": record.provider,
        "region": record.region,
        "energy_wh": None if record.energy_wh is None else float(record.energy_wh),
        "carbon_gco2e": None if record.carbon_gco2e is None else float(record.carbon_gco2e),
        "estimation_methodology": None if record.energy_wh is None else METHODOLOGY,
        "carbon_intensity_gco2_per_kwh": record.grid_intensity,
        "routing_mode": record.routing_mode,
        "routing_reason": record.routing_reason,
        "fallback_occurred": record.fallback_reason is not None,
        "fallback_reason": record.fallback_reason,
        "providers_attempted": record.providers_attempted,
        "requested_alias": record.requested_alias,
        "requested_auto": record.requested_auto,
        "eu_sovereign": record.eu_sovereign,
        "cache_read_tokens": record.cache_read_tokens,
        "cache_creation_tokens": record.cache_write_tokens,
        # Its parts are told where the upstream told them apart.
        "cache_creation_5m_tokens": None if record.cache_write_1h_tokens is None else record.cache_write_5m_tokens,
        "cache_creation_1h_tokens": record.cache_write_1h_tokens,
    }
    return {name: value for name, value in metadata.items() if value is not None}
