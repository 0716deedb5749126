"""Holds the tables of docs/api.md#models as JSON Schemas. No other field may appear: new fields are added here.

If an unknown value must be absent, zero is refused. Entries carry `object`, `created` and `owned_by` in the list too.
"""

from typing import Any

import jsonschema

Schema = dict[str, Any]

SEGMENT = "[a-z0-9][a-z0-9._-]*"
LOCODE = "(global|[A-Z]{2}[A-Z0-9]{3})"
STRING: Schema = {"type": "string", "minLength": 1}
WHOLE: Schema = {"type": "integer", "minimum": 0}
COUNTED: Schema = {"type": "integer", "minimum": 1}
FLOAT: Schema = {"type": "number", "minimum": 0}
MODALITY: Schema = {"enum": ["chat", "embedding", "responses", "completion", "realtime"]}
CURRENCY: Schema = {"type": "string", "pattern": "^[A-Z]{3}$"}
THREE_PARTS = f"^{SEGMENT}/{SEGMENT}/{SEGMENT}$"
FOUR_PARTS = f"^{SEGMENT}/{SEGMENT}/{SEGMENT}/{LOCODE}$"


def record(required: Schema, optional: Schema | None = None) -> Schema:
    """Builds the schema of an object with these fields and no others."""
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }


def closed_interval(of: Schema) -> Schema:
    return record({"min": of, "max": of})


CAPABILITIES = record({"streaming": {"type": "boolean"}}, {"function_calling": {"type": "boolean"}})
PRICES = {
    f"{name}_per_1m_tokens": FLOAT
    for name in ("prompt", "completion", "cache_read", "cache_write", "batch_prompt", "batch_completion")
}
TIERS = {"type": "array", "items": record({"above_prompt_tokens": COUNTED}, PRICES), "minItems": 1}
PRICING = record({"currency": CURRENCY}, {**PRICES, "tiers": TIERS})
CARBON = record(
    {},
    {
        "energy_per_token_wh": FLOAT,
        "carbon_per_token_gco2e": FLOAT,
        "grid_carbon_intensity_gco2_per_kwh": WHOLE,
        "grid_kind": {"enum": ["measured", "forecast", "annual", "stated"]},
        "grid_source": STRING,
        "grid_as_of": STRING,
    },
)
REGION = record(
    {"id": {"type": "string", "pattern": FOUR_PARTS}, "locode": {"type": "string", "pattern": f"^{LOCODE}$"}},
    {
        "pricing": PRICING,
        "carbon_metrics": {
            "type": "object",
            "patternProperties": {"^(GLOBAL-AVERAGE|[A-Z]{2}[A-Z0-9]{3})$": CARBON},
            "additionalProperties": False,
            "minProperties": 1,
        },
    },
)
ENVELOPE = record(
    {"candidates": {"type": "array", "items": {"type": "string", "pattern": FOUR_PARTS}, "minItems": 1}},
    {
        "pricing_range": record(
            {
                "prompt_per_1m_tokens": closed_interval(FLOAT),
                "completion_per_1m_tokens": closed_interval(FLOAT),
                "currency": {"const": "EUR"},
            }
        ),
        "carbon_range": record(
            {
                "carbon_per_token_gco2e": closed_interval(FLOAT),
                "grid_carbon_intensity_gco2_per_kwh": closed_interval(WHOLE),
            }
        ),
    },
)
_ENTRY: Schema = {
    "id": {"type": "string", "pattern": THREE_PARTS},
    "object": {"const": "model"},
    "created": WHOLE,
    "owned_by": STRING,
    "name": STRING,
    "provider": STRING,
}
_LIMITS: Schema = {
    "context_length": COUNTED,
    "max_output_tokens": COUNTED,
    "modality": MODALITY,
    "capabilities": CAPABILITIES,
}
MODEL = record({**_ENTRY, "regions": {"type": "array", "items": REGION, "minItems": 1}}, _LIMITS)
AUTO_MODEL = record({**_ENTRY, "provider": {"const": "auto"}, "auto_routing": ENVELOPE}, _LIMITS)
PROVIDER = record(
    {"name": {"type": "string", "pattern": f"^{SEGMENT}$"}, "status": {"enum": ["healthy", "degraded", "down"]}},
    {
        "regions": {"type": "array", "items": {"type": "string", "pattern": f"^{LOCODE}$"}},
        "model_count": WHOLE,
        "carbon_metrics": {"type": "object"},
        "retention": record({"days": WHOLE}, {"source": {"type": "string"}, "as_of": {"format": "date"}}),
    },
)


def list_of(entries: Schema) -> Schema:
    return record({"object": {"const": "list"}, "data": {"type": "array", "items": entries}})


MODELS = list_of({"if": {"properties": {"provider": {"const": "auto"}}}, "then": AUTO_MODEL, "else": MODEL})
PROVIDERS = list_of(PROVIDER)


def check(instance: object, schema: Schema) -> None:
    """Raises ValidationError, which names the place of the first fault."""
    jsonschema.Draft202012Validator(schema).validate(instance)
