"""JSON Schemas are adapted for Anthropic, which refuses parts of the standard in structured output and strict tools."""

import cProfile
from typing import Any

import orjson
import pytest

from gateway.errors import InvalidRequest
from inference.dialects.anthropic import AnthropicDialect
from tests.inference.dialects.routes import call, route

Json = dict[str, Any]

DIALECT = AnthropicDialect()
CITY: Json = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "Of the city.", "minLength": 1, "maxLength": 80},
        "age": {"type": "integer", "minimum": 0, "exclusiveMaximum": 10_000},
        "districts": {"type": "array", "minItems": 2, "uniqueItems": True, "items": {"type": "string", "format": "x"}},
        "tags": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/Tag"}},
        "site": {"oneOf": [{"type": "string", "format": "uri"}, {"type": "null"}]},
        "founded": {"type": "string", "format": "date"},
    },
    "required": ["name", "age"],
    "$defs": {"Tag": {"enum": ["old", "new"]}},
}
SIMPLER: Json = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "Of the city.\n\n{minLength: 1, maxLength: 80}"},
        "age": {"type": "integer", "description": "{minimum: 0, exclusiveMaximum: 10000}"},
        "districts": {
            "type": "array",
            "items": {"type": "string", "description": "{format: x}"},
            "description": "{minItems: 2, uniqueItems: true}",
        },
        "tags": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/Tag"}},
        "site": {"anyOf": [{"type": "string", "format": "uri"}, {"type": "null"}]},
        "founded": {"type": "string", "format": "date"},
    },
    "required": ["name", "age"],
    "$defs": {"Tag": {"enum": ["old", "new"]}},
    "additionalProperties": False,
}
LEFT_OUT = ("minLength", "maxLength", "minimum", "exclusiveMaximum", "minItems", "uniqueItems", "format", "oneOf")
PLAIN: Json = {
    "type": "object",
    "properties": {"name": {"type": "string", "pattern": "^[A-Z]{1,3}$", "default": "A"}},
    "additionalProperties": False,
}


def of_an_answer(schema: Json) -> tuple[Json, tuple[str, ...]]:
    """Returns an answer's schema as it is sent, and what the answer discloses about changes."""
    form = {"type": "json_schema", "json_schema": {"name": "city", "schema": schema, "strict": True}}
    request = DIALECT.request(call(response_format=form), route())
    return orjson.loads(request.body)["output_config"]["format"]["schema"], request.adjusted


def of_a_tool(schema: Json, **fields: Any) -> tuple[Json, tuple[str, ...]]:
    """Returns the schema of a tool's input as it is sent, and what the answer discloses about changes."""
    function = {"name": "city", "parameters": schema, **fields}
    request = DIALECT.request(call(tools=[{"type": "function", "function": function}]), route())
    return orjson.loads(request.body)["tools"][0]["input_schema"], request.adjusted


def test_keywords_that_are_refused_become_words_of_the_description() -> None:
    assert of_an_answer(CITY) == (SIMPLER, ("response_format",))
    assert of_a_tool(CITY, strict=True) == (SIMPLER, LEFT_OUT)


def test_a_tool_that_is_not_strict_keeps_its_schema() -> None:
    for fields in ({}, {"strict": False}, {"strict": None}):
        assert of_a_tool(CITY, **fields) == (CITY, ())


def test_a_schema_that_is_taken_is_sent_as_it_is() -> None:
    assert of_an_answer(PLAIN) == (PLAIN, ())
    assert of_a_tool(PLAIN, strict=True) == (PLAIN, ())


def test_a_schema_that_leaves_objects_open_by_silence_closes_them_undisclosed() -> None:
    open_one = {"type": "object", "properties": {"a": {"type": ["object", "null"]}}}
    closed = {**open_one, "properties": {"a": {"type": ["object", "null"], "additionalProperties": False}}}
    assert of_an_answer(open_one) == ({**closed, "additionalProperties": False}, ())


@pytest.mark.parametrize(
    ("schema", "simpler", "left_out"),
    [
        (
            {"type": "object", "additionalProperties": {"type": "integer"}},
            {
                "type": "object",
                "additionalProperties": False,
                "description": '{additionalProperties: {"type":"integer"}}',
            },
            ("additionalProperties",),
        ),
        (
            {"$ref": "#/$defs/A", "description": "An A.", "$defs": {"A": {"type": "number", "multipleOf": 2}}},
            {"$ref": "#/$defs/A", "$defs": {"A": {"type": "number", "description": "{multipleOf: 2}"}}},
            ("description", "multipleOf"),
        ),
        (
            {"type": "string", "pattern": "(?=a)b"},
            {"type": "string", "description": "{pattern: (?=a)b}"},
            ("pattern",),
        ),
        ({"enum": [{"a": 1}]}, {"description": '{enum: [{"a":1}]}'}, ("enum",)),
        (
            {"type": "array", "items": [{"type": "string"}], "minItems": 0},
            {"type": "array", "minItems": 0, "description": '{items: [{"type":"string"}]}'},
            ("items",),
        ),
        ({"oneOf": 5}, {"description": "{oneOf: 5}"}, ("oneOf",)),
        ({"allOf": [{"minimum": 1}, True]}, {"allOf": [{"description": "{minimum: 1}"}, True]}, ("minimum",)),
    ],
    ids=str,
)
def test_a_keyword_is_left_out_wherever_it_stands(schema: Json, simpler: Json, left_out: tuple[str, ...]) -> None:
    found, names = of_a_tool({"properties": {"p": schema}}, strict=True)
    assert (found["properties"]["p"], names) == (simpler, left_out)


def test_anthropics_own_sdk_changes_nothing_more_of_the_types() -> None:
    from anthropic import transform_schema  # noqa: PLC0415  # it takes a second and a half

    assert transform_schema(SIMPLER) == SIMPLER


def test_a_schema_that_is_nested_too_deeply_is_refused() -> None:
    schema: Json = {"type": "string"}
    for _ in range(400):
        schema = {"type": "array", "items": schema}
    with pytest.raises(InvalidRequest, match="nested too deeply"):
        of_an_answer(schema)
    with pytest.raises(InvalidRequest, match="nested too deeply"):
        of_a_tool(schema, strict=True)


def test_a_check_takes_no_longer_for_a_larger_schema() -> None:
    """Every region of every offer is checked: translating 100,000 properties in each blocked the worker."""

    def calls_for(properties: int) -> int:
        schema = {"type": "object", "properties": {str(number): {"minLength": 1} for number in range(properties)}}
        form = {"type": "json_schema", "json_schema": {"name": "city", "schema": schema}}
        asked, offered = call(response_format=form), route()
        with cProfile.Profile() as profile:
            DIALECT.check(asked, offered)
        return sum(each.callcount for each in profile.getstats())

    calls_for(1)  # whatever is cached at the first call is cached now
    assert calls_for(1000) == calls_for(1)
