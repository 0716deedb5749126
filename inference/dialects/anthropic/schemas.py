"""Simplifies JSON Schemas to the part of the standard that Anthropic supports in structured output and strict tools.

A keyword that the API refuses is moved into the description next to it, which the model reads, and is disclosed. This
is what Anthropic's own SDKs do.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from gateway.errors import InvalidRequest
from gateway.server.turns import in_turns

from ..base import DroppedFields, encoded

Schema = dict[str, Any]

SUPPORTED = frozenset({"type", "description", "title", "default", "required"})
DEFINITIONS = ("$defs", "definitions")
ANNOTATIONS = frozenset({"$schema", "$id", "$comment"})  # left out, since they do not restrict values
FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"})
_HARD_PATTERN = re.compile(r"\\[1-9bB]|\(\?(?!:)")  # backreferences, word boundaries, lookaround
SUPPORTED_IF: Mapping[str, Callable[[Any], bool]] = {
    "additionalProperties": lambda value: value is False,
    "const": lambda value: not isinstance(value, dict | list),
    "enum": lambda value: isinstance(value, list) and not any(isinstance(each, dict | list) for each in value),
    "format": lambda value: isinstance(value, str) and value in FORMATS,
    "minItems": lambda value: value in (0, 1),
    "pattern": lambda value: isinstance(value, str) and not _HARD_PATTERN.search(value),
}


def wants_json(body: Mapping[str, Any]) -> bool:
    """Tells whether an answer in JSON without a schema is asked for, which takes an instruction to the model."""
    form = body.get("response_format")
    return isinstance(form, dict) and form.get("type") == "json_object"


def schema_of(response_format: Any) -> Schema | None:
    """Returns the client's schema for an answer in JSON; None if there is none. Raises InvalidRequest."""
    if response_format is None:
        return None
    kind = response_format.get("type") if isinstance(response_format, dict) else None
    if kind == "text":
        return None
    if kind == "json_object":
        return None  # `wants_json`
    if kind != "json_schema":
        rule = "must be of the type 'text', 'json_object' or 'json_schema': this model's provider takes no other."
        raise InvalidRequest.of_field("response_format", rule)
    named = response_format.get("json_schema")
    schema = named.get("schema") if isinstance(named, dict) else None
    if not isinstance(schema, dict):
        raise InvalidRequest.of_field("response_format.json_schema.schema", "must be an object, a JSON Schema.")
    return schema


def simplified(schema: Mapping[str, Any], dropped: DroppedFields) -> Schema:
    """Returns the schema without the keywords that the API refuses, and adds their names to `dropped`.

    Raises InvalidRequest for a schema that is nested too deep to be sent.
    """
    encoded(schema)
    simpler: Schema = _simplified(schema, dropped)
    return simpler


def _simplified(schema: Any, dropped: DroppedFields) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    if isinstance(schema.get("$ref"), str):
        return _reference(schema, dropped)
    kept: Schema = {}
    hints: Schema = {}
    for name, value in schema.items():
        if name == "oneOf" and isinstance(value, list) and "anyOf" not in schema:
            kept["anyOf"] = _within("anyOf", value, dropped)
            dropped[name] = None
        elif (parts := _within(name, value, dropped)) is not None:
            kept[name] = parts
        elif _is_supported(name, value):
            kept[name] = value
        elif name not in ANNOTATIONS:
            dropped[name] = None
            hints[name] = value
    if _is_of_objects(schema):
        kept["additionalProperties"] = False  # the API requires it
    if hints:
        told = "{" + ", ".join(f"{name}: {_text(value)}" for name, value in hints.items()) + "}"
        description = kept.get("description")
        kept["description"] = f"{description}\n\n{told}" if description else told
    return kept


def _reference(schema: Mapping[str, Any], dropped: DroppedFields) -> Schema:
    """Simplifies a reference, next to which the API allows only definitions."""
    kept: Schema = {}
    for name, value in schema.items():
        if name == "$ref":
            kept[name] = value
        elif name in DEFINITIONS:
            kept[name] = _within(name, value, dropped)
        elif name not in ANNOTATIONS:
            dropped[name] = None
    return kept


def _within(name: str, value: Any, dropped: DroppedFields) -> Any:
    """Returns the schemas within a keyword, simplified; None for a keyword that holds no schemas."""
    if isinstance(value, dict):
        if name == "properties" or name in DEFINITIONS:
            return {key: _simplified(each, dropped) for key, each in in_turns(value.items())}
        if name == "items":
            return _simplified(value, dropped)
    if isinstance(value, list) and name in ("anyOf", "allOf"):
        return [_simplified(each, dropped) for each in in_turns(value)]
    return None


def _is_supported(name: str, value: Any) -> bool:
    return name in SUPPORTED or (name in SUPPORTED_IF and SUPPORTED_IF[name](value))


def _is_of_objects(schema: Mapping[str, Any]) -> bool:
    kind = schema.get("type")
    return kind == "object" or (isinstance(kind, list) and "object" in kind) or "properties" in schema


def _text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()
