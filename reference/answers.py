"""The objects of answers, as JSON Schemas (docs/api.md). The tests check every response that they receive against them.

Objects of the gateway's own have these fields and no others. Those that pass on what a provider says are `open_to`
more. Clients read neither as closed: within v1 fields are added.
"""

from typing import Any, Final

from aliases.models import AliasEvent
from catalogue.footprint.carbon import MEASURED, MODELLED
from catalogue.models import Modality, Status
from gateway.edge.exception_handler import MESSAGE_ERRORS

Schema = dict[str, Any]

STRING: Final[Schema] = {"type": "string"}
BOOLEAN: Final[Schema] = {"type": "boolean"}
WHOLE: Final[Schema] = {"type": "integer", "minimum": 0}
COUNTED: Final[Schema] = {"type": "integer", "minimum": 1}
NUMBER: Final[Schema] = {"type": "number"}
AMOUNT: Final[Schema] = {"type": "number", "minimum": 0}
MOMENT: Final[Schema] = {"type": "string", "format": "date-time"}
STRINGS: Final[Schema] = {"type": "array", "items": STRING}
ANYTHING: Final[Schema] = {"type": "array", "items": {}}
CURRENCY: Final[Schema] = {"type": "string", "pattern": "^[A-Z]{3}$", "description": "ISO 4217."}
FOUR_PART_ID: Final[Schema] = {"type": "string", "pattern": "^[^/]+/[^/]+/[^/]+/[^/]+$"}
GENERATION_ID: Final[Schema] = {"type": "string", "pattern": "^gen-[0-9a-f]{32}$"}
ROUTING_MODE: Final[Schema] = {"enum": ["auto", "explicit"]}
ROUTING_REASONS = ("lowest_carbon_intensity", "lowest_cost", "round_robin", "eu_sovereign_preferred", "only_route")
FALLBACK_REASONS = ("primary_rate_limited", "primary_timeout", "primary_unavailable", "primary_error")


def record(required: Schema, optional: Schema | None = None) -> Schema:
    """An object of these fields."""
    return {"type": "object", "required": list(required), "properties": {**required, **(optional or {})}}


def open_to(what: str, schema: Schema) -> Schema:
    """The same with more fields: `what` says whose."""
    return {**schema, "additionalProperties": True, "description": what}


def ref(name: str) -> Schema:
    """A component by its name."""
    return {"$ref": f"#/components/schemas/{name}"}


def nullable(schema: Schema) -> Schema:
    """The same, or null."""
    return {"anyOf": [schema, {"type": "null"}]}


def described(schema: Schema, description: str) -> Schema:
    """The same with a description."""
    return {**schema, "description": description}


def list_of(name: str, optional: Schema | None = None) -> Schema:
    """A list envelope of components."""
    return record({"object": {"const": "list"}, "data": {"type": "array", "items": ref(name)}}, optional)


DETAILS = open_to("And what else the provider said there.", record({}, {"cached_tokens": WHOLE}))
_GRID = {
    "grid_kind": described(STRING, "What the grid's intensity rests on: `measured`, `forecast`, `annual` or `stated`."),
    "grid_source": described(STRING, "Whose figure it is."),
    "grid_as_of": described(STRING, "The start of its slot, or the date of an annual figure."),
}
_INTENSITY = {"grid_carbon_intensity_gco2_per_kwh": described(WHOLE, "Of the region's electricity.")}
_FOOTPRINT = {
    "energy_wh": described(AMOUNT, "Wh."),
    "energy_wh_low": described(AMOUNT, "Wh, the lower bound of an estimate."),
    "energy_wh_high": described(AMOUNT, "Wh, the upper bound of an estimate."),
    "energy_source": {"enum": [MEASURED, "provider", MODELLED]},
    "energy_method": described(STRING, "The id of the method."),
    "energy_breakdown": described(
        record({}, {"output_wh": AMOUNT, "prompt_wh": AMOUNT, "cached_wh": AMOUNT}), "Wh by kind of token."
    ),
    "embodied_gco2e": described(AMOUNT, "Grams of CO2e of the hardware's manufacture, beside `carbon_gco2e`."),
    "carbon_gco2e": described(AMOUNT, "Grams of CO2e."),
    **_GRID,
}
MONEY = {
    "cost": described(AMOUNT, "In `currency`; absent where the request was never priced, which is not zero."),
    "remaining_balance": described(NUMBER, "In `currency`: the balance that this request left. May be below zero."),
}
_TOKENS = {"prompt_tokens": WHOLE, "completion_tokens": WHOLE, "total_tokens": WHOLE}
_RANGE = record({"min": AMOUNT, "max": AMOUNT})
_PRICES = {
    f"{name}_per_1m_tokens": AMOUNT
    for name in ("prompt", "completion", "cache_read", "cache_write", "batch_prompt", "batch_completion")
}
_ENTRY = {
    "id": described(STRING, "`{provider}/{creator}/{model}`, or `auto/{creator}/{model}`."),
    "object": {"const": "model"},
    "created": described(WHOLE, "Unix seconds."),
    "owned_by": described(STRING, "The creator."),
    "name": STRING,
    "provider": described(STRING, "The provider's slug; `auto` on auto entries."),
}
_ALIAS_TOTALS = {
    "requests": WHOLE,
    **_TOKENS,
    "cost": described(NUMBER, "In the account's currency."),
    "carbon_gco2e": described(AMOUNT, "Grams, of the requests that know it."),
}

SCHEMAS: Final[dict[str, Schema]] = {
    "Error": record(
        {
            "error": record(
                {
                    "type": described(STRING, "The family. Branch on `code` and status."),
                    "code": described(nullable(STRING), "What to branch on."),
                    "message": described(STRING, "For people."),
                    "param": described(nullable(STRING), "The field, with its path (`messages[2].role`)."),
                },
                {
                    "providers_attempted": described(STRINGS, "After failover of an auto request only."),
                    "last_error": described(STRING, "Likewise."),
                },
            )
        }
    ),
    "MessageError": open_to(
        "Anthropic's envelope, with the gateway's `code` and `param`. In an open stream `usage` and `gateway_metadata` "
        "of what was delivered are beside it.",
        record(
            {
                "type": {"const": "error"},
                "error": record(
                    {
                        "type": described(
                            {"enum": [*dict.fromkeys(MESSAGE_ERRORS.values()), "api_error"]},
                            "By the status, and of a 503 by whether a retry may help.",
                        ),
                        "code": described(nullable(STRING), "What to branch on."),
                        "message": described(STRING, "For people."),
                        "param": nullable(STRING),
                    },
                    {"providers_attempted": STRINGS, "last_error": STRING},
                ),
            },
            {"request_id": STRING},
        ),
    ),
    "Usage": record(
        {**_TOKENS, "currency": CURRENCY},
        {
            **MONEY,
            "prompt_tokens_details": DETAILS,
            "completion_tokens_details": open_to(
                "And what else the provider said there.", record({}, {"reasoning_tokens": WHOLE})
            ),
        },
    ),
    "GatewayMetadata": record(
        {"provider": STRING, "routing_mode": ROUTING_MODE, "fallback_occurred": BOOLEAN},
        {
            "region": described(STRING, "A UN/LOCODE, `global`, or `unknown` where it cannot be resolved."),
            **_FOOTPRINT,
            "estimation_methodology": STRING,
            "carbon_intensity_gco2_per_kwh": WHOLE,
            "routing_reason": {"enum": list(ROUTING_REASONS)},
            "fallback_reason": {"enum": list(FALLBACK_REASONS)},
            "providers_attempted": STRINGS,
            "requested_alias": STRING,
            "requested_auto": STRING,
            "eu_sovereign": BOOLEAN,
            "cache_read_tokens": WHOLE,
            "cache_creation_tokens": WHOLE,
            "cache_creation_5m_tokens": WHOLE,
            "cache_creation_1h_tokens": WHOLE,
        },
    ),
    "ModelInfo": record(
        _ENTRY,
        {
            "context_length": COUNTED,
            "max_output_tokens": COUNTED,
            "modality": described({"enum": Modality.values}, "Absent means unknown, not chat."),
            "capabilities": record({"streaming": BOOLEAN}, {"function_calling": BOOLEAN}),
            "regions": {"type": "array", "items": ref("ModelRegion"), "minItems": 1},
            "auto_routing": ref("AutoRouting"),
        },
    ),
    "ModelRegion": record(
        {"id": FOUR_PART_ID, "locode": STRING},
        {
            "pricing": record(
                {"currency": CURRENCY},
                {
                    **_PRICES,
                    "tiers": {
                        "type": "array",
                        "items": record({"above_prompt_tokens": COUNTED}, _PRICES),
                        "minItems": 1,
                    },
                },
            ),
            "carbon_metrics": {
                "type": "object",
                "description": "By region label; `GLOBAL-AVERAGE` for `global`.",
                "additionalProperties": record(
                    {},
                    {
                        "energy_per_token_wh": AMOUNT,
                        "carbon_per_token_gco2e": AMOUNT,
                        **_INTENSITY,
                        **_GRID,
                    },
                ),
            },
        },
    ),
    "AutoRouting": record(
        {
            "candidates": described(
                {"type": "array", "items": FOUR_PART_ID, "minItems": 1}, "In the order of the ranking."
            )
        },
        {
            "pricing_range": record(
                {"prompt_per_1m_tokens": _RANGE, "completion_per_1m_tokens": _RANGE, "currency": {"const": "EUR"}}
            ),
            "carbon_range": record({"carbon_per_token_gco2e": _RANGE, "grid_carbon_intensity_gco2_per_kwh": _RANGE}),
        },
    ),
    "ModelList": list_of("ModelInfo"),
    "AnthropicModel": record(
        {
            "type": {"const": "model"},
            "id": STRING,
            "display_name": STRING,
            "created_at": MOMENT,
            "lifecycle": {"const": "active"},
            "max_input_tokens": described(nullable(COUNTED), "Null where it is not known."),
            "max_tokens": described(nullable(COUNTED), "Null where it is not known."),
        }
    ),
    "AnthropicModelPage": record(
        {
            "data": {"type": "array", "items": ref("AnthropicModel")},
            "has_more": BOOLEAN,
            "first_id": described(nullable(STRING), "Null where the page is empty."),
            "last_id": described(nullable(STRING), "For `after_id` of the next page."),
        }
    ),
    "ProviderInfo": record(
        {"name": described(STRING, "The slug."), "status": {"enum": Status.values}},
        {
            "regions": STRINGS,
            "model_count": WHOLE,
            "carbon_metrics": {"type": "object", "additionalProperties": record({}, {**_INTENSITY, **_GRID})},
        },
    ),
    "ProviderList": list_of("ProviderInfo"),
    "GenerationRecord": record(
        {
            "generation_id": GENERATION_ID,
            "created_at": described(MOMENT, "When it was settled."),
            "model": FOUR_PART_ID,
            "provider": STRING,
            "usage": ref("Usage"),
            "interrupted": described(BOOLEAN, "A stream that ended early. It is billed."),
        },
        {
            "region": STRING,
            "cost": described(AMOUNT, "In EUR; absent where the request was never priced, which is not zero."),
            **_FOOTPRINT,
            **_INTENSITY,
            "usage_estimated": BOOLEAN,
            "requested_auto": STRING,
            "requested_alias": STRING,
            "routing_mode": ROUTING_MODE,
            "duration_ms": WHOLE,
        },
    ),
    "GenerationList": list_of(
        "GenerationRecord", {"next_cursor": described(STRING, "For `after`; absent on the last page.")}
    ),
    "GenerationStats": record(
        {
            "generation_id": GENERATION_ID,
            "created_at": MOMENT,
            "model": FOUR_PART_ID,
            "provider": STRING,
            "region": STRING,
            "interrupted": BOOLEAN,
            "usage": ref("Usage"),
            "carbon_metrics": record({}, {**_FOOTPRINT, **_INTENSITY}),
        },
        {
            "cost": record(
                {"prompt_cost": AMOUNT, "completion_cost": AMOUNT, "total_cost": AMOUNT, "currency": CURRENCY}
            ),
            "latency": record({"request_duration_ms": WHOLE, "time_to_first_token_ms": nullable(WHOLE)}),
            "routing_info": record(
                {"routing_mode": ROUTING_MODE, "fallback_occurred": BOOLEAN, "providers_attempted": STRINGS},
                {"routing_reason": {"enum": list(ROUTING_REASONS)}},
            ),
        },
    ),
    "GenerationMetrics": record(
        {"generation_id": GENERATION_ID, **_TOKENS, "created_at": MOMENT},
        {
            "provider": STRING,
            "model": FOUR_PART_ID,
            **{name: nullable(schema) for name, schema in (_FOOTPRINT | _INTENSITY).items()},
            "request_duration_ms": nullable(WHOLE),
        },
    ),
    "Alias": record(
        {
            "id": described({"type": "string", "format": "uuid"}, "Stable across renames."),
            "name": STRING,
            "full_name": described(STRING, "`alias/{name}`, the form to put in `model`."),
            "provider": STRING,
            "canonical_id": STRING,
            "locode": STRING,
            "target": FOUR_PART_ID,
            "created_at": MOMENT,
            "updated_at": MOMENT,
        }
    ),
    "AliasList": record(
        {"aliases": {"type": "array", "items": ref("Alias")}, "quota": record({"used": WHOLE, "max": WHOLE})}
    ),
    "AliasStats": record(
        {
            "alias": ref("Alias"),
            "days": COUNTED,
            "totals": record(_ALIAS_TOTALS),
            "breakdown": {
                "type": "array",
                "items": record(
                    {"provider": STRING, "model": STRING, "region": STRING, **_ALIAS_TOTALS}, {"display_name": STRING}
                ),
            },
        }
    ),
    "AliasHistory": record(
        {
            "alias": ref("Alias"),
            "events": {
                "type": "array",
                "items": record(
                    {
                        "id": {"type": "string", "format": "uuid"},
                        "event_type": {"enum": AliasEvent.Type.values},
                        "created_at": MOMENT,
                    },
                    dict.fromkeys(("old_name", "new_name", "old_target", "new_target"), STRING),
                ),
            },
        }
    ),
}
