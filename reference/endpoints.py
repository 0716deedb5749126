"""Prepares the API's description for pages: its endpoints and objects, in groups by tag."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import mistune
from django.utils.safestring import SafeString, mark_safe

from .openapi import document, followed

_BOUNDS = {"minimum": "at least", "maximum": "at most", "default": "else"}


@dataclass(frozen=True, slots=True)
class Group:
    """Holds a page of the reference: the endpoints of a tag, and the objects that no earlier group has."""

    label: str
    endpoints: list[dict[str, Any]]
    objects: list[dict[str, Any]]

    @property
    def name(self) -> str:
        return self.label.lower()


@cache
def groups() -> dict[str, Group]:
    """Returns the groups by name, in the order of the description."""
    openapi = document()
    found: dict[str, Group] = {}
    left = dict(openapi["components"]["schemas"])
    for tag in openapi["tags"]:
        own = [
            (path, method, item, operation)
            for path, item in openapi["paths"].items()
            for method, operation in item.items()
            if method != "parameters" and tag["name"] in operation["tags"]
        ]
        used: dict[str, None] = {}
        for *_, operation in own:
            _note_objects(operation, used)
        objects = [_object(name, left.pop(name)) for name in [*left] if name in used]
        group = Group(tag["name"], [_endpoint(*each) for each in own], objects)
        found[group.name] = group
    found[next(reversed(found))].objects.extend(_object(name, schema) for name, schema in left.items())
    return found


@cache
def group_of_objects() -> dict[str, str]:
    """Returns the name of the group that has each object."""
    return {each["name"]: group.name for group in groups().values() for each in group.objects}


def _note_objects(node: Any, used: dict[str, None]) -> None:
    """Adds the names of the objects that a part of the description refers to, directly or not."""
    for ref in _references(node):
        _, _, kind, name = ref.split("/")
        if kind != "schemas":
            _note_objects(document()["components"][kind][name], used)
        elif name not in used:
            used[name] = None
            _note_objects(document()["components"]["schemas"][name], used)


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, list):
        for one in node:
            yield from _references(one)
    elif isinstance(node, dict):
        for name, value in node.items():
            if name == "$ref" and isinstance(value, str):
                yield value
            elif name not in ("example", "examples"):
                yield from _references(value)


def _endpoint(path: str, method: str, item: dict[str, Any], operation: dict[str, Any]) -> dict[str, Any]:
    return {
        "method": method.upper(),
        "path": path,
        **operation,
        "example": _example(operation),
        "parameters": [_parameter(each) for each in (*item.get("parameters", ()), *operation.get("parameters", ()))],
        "body": _components(operation.get("requestBody", {})),
        "answered": _components(next(iter(operation["responses"].values()))),
        "statuses": [
            (status, _marked(followed(answer)["description"])) for status, answer in operation["responses"].items()
        ],
    }


def _object(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "description": _marked(_about(schema)), "members": _members(schema)}


def _example(operation: dict[str, Any]) -> str:
    body = operation.get("requestBody")
    return json.dumps(body["content"]["application/json"]["example"], indent=2) if body else ""


def _parameter(parameter: dict[str, Any]) -> dict[str, Any]:
    schema = parameter["schema"]
    bounds = [f"{what} {schema[name]}" for name, what in _BOUNDS.items() if name in schema]
    return {
        **parameter,
        "kind": ", ".join([_kind(schema), *bounds]),
        "meaning": _marked(parameter.get("description") or schema.get("description", "")),
    }


def _components(body: dict[str, Any]) -> list[str]:
    """Returns the names of the objects that a body or an answer may be, and of a stream's events."""
    content = body.get("content", {})
    schema = content.get("application/json", {}).get("schema", {})
    events = content.get("text/event-stream", {}).get("x-event-schema", {})
    refs = [one.get("$ref", "") for one in (*schema.get("anyOf", [schema]), events)]
    return [ref.rpartition("/")[2] for ref in refs if ref]


def _about(schema: dict[str, Any]) -> str:
    """Describes a component in words, with the type if it is a plain value."""
    description = str(schema.get("description", ""))
    is_plain = "properties" not in schema and "anyOf" not in schema
    return f"`{_kind(schema)}` {description}" if is_plain else description


def _members(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns a row for each field, or for each of the objects that the component may be."""
    if "anyOf" in schema:
        return [
            {"name": _kind_of(one), "kind": ", ".join(followed(one).get("properties", ()))} for one in schema["anyOf"]
        ]
    required = schema.get("required", ())
    return [
        {
            "name": name,
            "kind": _kind(member),
            "is_required": name in required,
            "description": _marked(member.get("description", "")),
        }
        for name, member in schema.get("properties", {}).items()
    ]


def _kind_of(one: dict[str, Any]) -> str:
    """Names one of several objects by its `type`, or by its own name if it has no `type` of its own."""
    kind = followed(one).get("properties", {}).get("type", {})
    return "another type" if "not" in kind else _kind(kind if "const" in kind else one)


def _kind(schema: dict[str, Any]) -> str:
    """Describes a schema in a few words."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "const" in schema:
        return str(schema["const"])
    if "enum" in schema:
        return " | ".join(each if isinstance(each, str) else json.dumps(each) for each in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(_kind, schema["anyOf"])))
    kinds = schema.get("type", "any")
    listed = [kinds] if isinstance(kinds, str) else kinds
    return " or ".join(f"array of {_kind(schema['items'])}" if kind == "array" else kind for kind in listed)


@cache
def _marked(text: str) -> SafeString:
    """Renders one of our descriptions, with its code and its lists."""
    return mark_safe(str(mistune.create_markdown(escape=True)(text)))  # noqa: S308  # of our own texts
