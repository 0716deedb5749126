"""Shows `/docs`: the documents as pages and as Markdown, and the reference, made from the API's description."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import mistune
from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.safestring import SafeString, mark_safe
from django.views.decorators.http import require_safe

from .openapi import document, followed

DOCUMENTS = settings.RESOURCES_DIR / "docs"
GUIDE, REFERENCE, INDEX = "guide", "reference", "index"
# The documents that clients read first, in this order; the last lists all of them.
CONTENTS = {
    GUIDE: "Guide",
    "api": "HTTP API",
    REFERENCE: "Reference",
    "energy": "Energy and carbon",
    "catalogue": "Catalogue",
    "statements": "Statements",
    INDEX: "All documents",
}

_BOUNDS = {"minimum": "at least", "maximum": "at most", "default": "else"}


@require_safe
def page(request: HttpRequest, name: str) -> HttpResponse:
    """Shows one document, by its name without `.md`."""
    return _shown(request, "reference/document.html", name, {"text": _html(_path_of(name))})


@require_safe
def markdown(_request: HttpRequest, name: str) -> HttpResponse:
    """Returns one document as it is written."""
    return HttpResponse(_path_of(name).read_text(encoding="utf-8"), content_type="text/markdown; charset=utf-8")


@require_safe
def llms(request: HttpRequest) -> HttpResponse:
    """Lists the documents with their addresses as Markdown, as https://llmstxt.org proposes."""
    _title, summary, *sections = _path_of(INDEX).read_text(encoding="utf-8").split("\n\n")
    text = "\n\n".join(["# Inference Gateway", f"> {summary}", *sections])
    folder = request.build_absolute_uri(reverse("docs-markdown", args=[INDEX])).removesuffix(f"{INDEX}.md")
    return HttpResponse(text.replace("](", f"]({folder}"), content_type="text/plain; charset=utf-8")


@require_safe
def reference(request: HttpRequest) -> HttpResponse:
    """Shows every endpoint and object of the API."""
    openapi = document()
    endpoints = [
        {
            "method": method.upper(),
            "path": path,
            **operation,
            "example": _example(operation),
            "parameters": [
                _parameter(each) for each in (*item.get("parameters", ()), *operation.get("parameters", ()))
            ],
            "body": _components(operation.get("requestBody", {})),
            "answered": _components(next(iter(operation["responses"].values()))),
            "statuses": [
                (status, _marked(followed(answer)["description"])) for status, answer in operation["responses"].items()
            ],
        }
        for path, item in openapi["paths"].items()
        for method, operation in item.items()
        if method != "parameters"
    ]
    objects = [
        (name, _marked(_about(schema)), _members(schema)) for name, schema in openapi["components"]["schemas"].items()
    ]
    return _shown(request, "reference/reference.html", REFERENCE, {"endpoints": endpoints, "objects": objects})


def _shown(request: HttpRequest, template: str, name: str, context: dict[str, Any]) -> HttpResponse:
    return render(request, template, {**context, "contents": CONTENTS, "current": name})


def _example(operation: dict[str, Any]) -> str:
    body = operation.get("requestBody")
    return json.dumps(body["content"]["application/json"]["example"], indent=2) if body else ""


def _parameter(parameter: dict[str, Any]) -> dict[str, Any]:
    schema = parameter["schema"]
    bounds = [f"{what} {schema[name]}" for name, what in _BOUNDS.items() if name in schema]
    return {**parameter, "kind": ", ".join([_kind(schema), *bounds]), "meaning": _marked(schema.get("description", ""))}


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


def _path_of(name: str) -> Path:
    path = _paths().get(name)
    if path is None:
        raise Http404
    return path


@cache
def _paths() -> dict[str, Path]:
    return {path.relative_to(DOCUMENTS).with_suffix("").as_posix(): path for path in DOCUMENTS.rglob("*.md")}


@cache
def _marked(text: str) -> SafeString:
    """Renders one of our descriptions, with its code and its lists."""
    return mark_safe(str(mistune.create_markdown(escape=True)(text)))  # noqa: S308  # of our own texts


class _Renderer(mistune.HTMLRenderer):
    """Renders headings with anchors, links between documents, and blocks that scroll."""

    def heading(self, text: str, level: int, **attrs: Any) -> str:
        plain = re.sub(r"<[^>]+>", "", text).strip().lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        return f'<h{level} id="{anchor}">{text}</h{level}>\n'

    def link(self, text: str, url: str, title: str | None = None) -> str:
        return super().link(text, re.sub(r"\.md(?=#|$)", "", url), title)

    def block_code(self, code: str, info: str | None = None) -> str:
        return f'<pre tabindex="0"><code>{mistune.escape(code)}</code></pre>\n'


@cache
def _html(path: Path) -> SafeString:
    """Renders one of our documents; markup in its text is escaped."""
    markdown = mistune.create_markdown(renderer=_Renderer(escape=True), plugins=["table"])
    html = str(markdown(path.read_text(encoding="utf-8")))
    html = html.replace("<table>", '<div class="scroll" tabindex="0"><table>').replace("</table>", "</table></div>")
    return mark_safe(html)  # noqa: S308  # of our own files
