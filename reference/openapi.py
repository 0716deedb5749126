"""The OpenAPI 3.1 document: made once in a worker, when it is first asked for."""

from functools import cache
from http import HTTPStatus
from typing import Any

import orjson
from rest_framework import serializers
from rest_framework.fields import empty

from gateway.edge.exception_handler import envelope, message_envelope
from gateway.errors import (
    ApiError,
    AuthenticationError,
    KeyBudgetSpent,
    MethodNotAllowed,
    ProviderError,
    UpstreamRefused,
)

from . import answers, inference_answers, stream_events
from .answers import STRING, Schema, described, nullable, record, ref
from .operations import COUNTING, HEADERS, OF_ANSWERS, OPERATIONS, PATH_PARAMETERS, RATE_LIMITS, Operation

Json = dict[str, Any]

VERSION = "1.0.0"  # of the API
ABOUT = (
    "One OpenAI-compatible API in front of many language-model providers. A request names a route, an automatic choice "
    "or an alias in `model`; what is pinned is what is served. Answers carry their cost, the remaining balance, energy "
    "and carbon. Unknown figures are absent, never zero; within v1 fields are added, so ignore what you do not know."
)
PASSED_ON = (
    "What is not named here goes to the provider as it came, but for what would change price, place or provider."
)
ANTHROPIC_VERSION = described(STRING, "Whatever it is: the answer, and errors, are in Anthropic's shape.")


@cache
def document() -> Json:
    """The whole document."""
    paths: dict[str, Json] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _operation(operation)
    for path, item in paths.items():
        item["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": schema}
            for name, schema in PATH_PARAMETERS.items()
            if f"{{{name}}}" in path
        ]
    requests = {
        operation.body.__name__: request_schema(operation.body, operation.more_fields)
        for operation in OPERATIONS
        if isinstance(operation.body, type)
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Inference Gateway",
            "version": VERSION,
            "description": ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/v1"}, {"url": "/api/v1", "description": "The same, for existing integrations."}],
        "security": [{"key": []}, {"x-api-key": []}],
        "tags": [{"name": name} for name in dict.fromkeys(operation.group for operation in OPERATIONS)],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "`sk-gw-` and 43 characters."},
                "x-api-key": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "x-api-key",
                    "description": "On `/messages` and, with `anthropic-version`, `/models`.",
                },
            },
            "headers": {name: {"description": text, "schema": {"type": "string"}} for name, text in HEADERS.items()},
            "schemas": {**requests, **inference_answers.SCHEMAS, **stream_events.SCHEMAS, **answers.SCHEMAS},
        },
    }


@cache
def document_json() -> bytes:
    """The document as it is sent."""
    return orjson.dumps(document())


def request_schema(serializer: type[serializers.Serializer[Any]], more: Schema | None = None) -> Schema:
    """The body that a serializer checks. Null means absent, so what may be absent may be null."""
    fields = serializer().fields
    required = {name: _schema_of(field) for name, field in fields.items() if field.required} | (more or {})
    optional = {name: nullable(_schema_of(field)) for name, field in fields.items() if not field.required}
    return record(required, optional) | {"additionalProperties": True, "description": PASSED_ON}


def _schema_of(field: serializers.Field[Any, Any, Any, Any]) -> Schema:
    schema: Schema = dict(field.schema)  # type: ignore[attr-defined]  # every field of a request has one
    return schema if field.default is empty else schema | {"default": field.default}


def _operation(operation: Operation) -> Json:
    documented: Json = {
        "operationId": operation.id,
        "summary": operation.summary,
        "tags": [operation.group],
        "responses": {
            **{str(status): _answer(operation, status, name) for status, name in operation.answers.items()},
            **_refusals(operation),
        },
    }
    if not operation.needs_key:
        documented["security"] = []
    parameters: list[Json] = []
    if operation.query is not None:
        parameters += [
            {"name": name, "in": "query", "required": field.required, "schema": _schema_of(field)}
            for name, field in operation.query().fields.items()
        ]
    parameters += [
        {"name": name, "in": "query", "required": False, "schema": schema}
        for name, schema in operation.more_parameters.items()
    ]
    if operation.to_anthropic is not None:
        parameters.append({"name": "anthropic-version", "in": "header", "required": False, "schema": ANTHROPIC_VERSION})
    if parameters:
        documented["parameters"] = parameters
    if operation.body is not None:
        schema = ref(operation.body.__name__) if isinstance(operation.body, type) else operation.body
        documented["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema, "example": operation.example}},
        }
    return documented


def _answer(operation: Operation, status: int, component: str | None) -> Json:
    answer: Json = {"description": operation.summary if status == 200 else HTTPStatus(status).phrase}
    if component is not None:
        schema = ref(component)
        if operation.to_anthropic is not None:
            schema = {"anyOf": [schema, ref(operation.to_anthropic)]}
        answer["content"] = {"application/json": {"schema": schema}}
    if operation.events is not None:
        answer["content"]["text/event-stream"] = {
            "x-event-schema": ref(operation.events),
            "x-description": f"Frames of `data: ` with a {operation.events} each{_ending(operation)} A stream that "
            f"breaks off has a frame with {'an Error' if operation.errors == ('Error',) else 'a MessageError'}.",
        }
    if operation.path == "/openapi.json":
        answer["content"] = {"application/json": {"schema": {"type": "object"}}}
    return answer | {"headers": _headers(operation, status)}


def _ending(operation: Operation) -> str:
    return "." if operation.events == "MessageEvent" else ", then `data: [DONE]`."


def _refusals(operation: Operation) -> Json:
    by_status: dict[int, list[type[ApiError]]] = {}
    kinds: tuple[type[ApiError], ...] = (*operation.refusals, MethodNotAllowed)
    for kind in kinds:
        by_status.setdefault(kind.status, []).append(kind)
    refusals = {str(status): _refusal(operation, kinds) for status, kinds in sorted(by_status.items())}
    other: Json = {"description": "HTTP that is not understood.", "headers": _headers(operation)}
    other["content"] = {"application/json": {"schema": {"anyOf": [ref(name) for name in operation.errors]}}}
    return {**refusals, "default": other}


def _refusal(operation: Operation, kinds: list[type[ApiError]]) -> Json:
    code: Schema = {"enum": list(dict.fromkeys(kind.code for kind in kinds))}
    if UpstreamRefused in kinds:
        code = {"anyOf": [code, {"type": "string", "description": "The provider's own word."}]}
    its_code = {"properties": {"error": {"properties": {"code": code}}}}
    error = kinds[0](kinds[0].message)
    example = message_envelope(error) if operation.errors == ("MessageError",) else envelope(error)
    schema = {"anyOf": [ref(name) for name in operation.errors], "allOf": [its_code]}
    return {
        "description": "\n".join(f"- `{kind.code}`: {_summary_of(kind)}" for kind in kinds),
        "headers": _headers(operation, kinds[0].status),
        "content": {"application/json": {"schema": schema, "example": example}},
    }


def _summary_of(kind: type[ApiError]) -> str:
    """The first line of its docstring, without the status that it begins with."""
    line = (kind.__doc__ or "").strip().splitlines()[0]
    return line.removeprefix(f"{kind.status}: ")


def _headers(operation: Operation, status: int | None = None) -> Json:
    """Headers that an answer of this status may have; without one, an answer to HTTP that is not understood."""
    path, names = operation.path, ["X-Request-Id"]
    if status is not None:
        if "MessageError" in operation.errors:
            names.append("request-id")
        if status == MethodNotAllowed.status or not operation.is_inference:
            names.append("Allow")
        if operation.is_inference:
            names += RATE_LIMITS
        if status >= HTTPStatus.BAD_REQUEST:
            names.append("x-should-retry")
    if status == AuthenticationError.status:
        names.append("WWW-Authenticate")
    if status in (KeyBudgetSpent.status, ProviderError.status):
        names.append("Retry-After")
    is_recorded = operation.is_inference and path not in COUNTING
    if is_recorded and status in (HTTPStatus.OK, ProviderError.status):
        names.append("X-Generation-Id")
    if status in (HTTPStatus.OK, HTTPStatus.NOT_MODIFIED):
        names += ["X-Gateway-Adjusted-Params"] if is_recorded else []
        names += ["Cache-Control", "X-Accel-Buffering"] if operation.events else []
        names += OF_ANSWERS.get(path, ())
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}
