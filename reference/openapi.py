"""Serves `/v1/openapi.json`: the description of the API, kept in `openapi.yaml` and read once per worker."""

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

import orjson
from django.http import HttpResponse, HttpResponseNotModified
from django.utils.http import parse_etags
from rest_framework.request import Request
from ruamel.yaml import YAML

from gateway.edge.control_view import ControlView

AN_HOUR = "public, max-age=3600"


class OpenApi(ControlView):
    """Serves the description of the API, also to clients without a key."""

    doing = "describing the API"
    authentication_classes = ()
    permission_classes = ()

    def get(self, request: Request) -> HttpResponse:
        """Returns OpenAPI 3.1 in JSON."""
        headers = {"ETag": _etag(), "Cache-Control": AN_HOUR, "Access-Control-Allow-Origin": "*"}
        if _etag() in [tag.removeprefix("W/") for tag in parse_etags(request.headers.get("If-None-Match", ""))]:
            return HttpResponseNotModified(headers=headers)
        return HttpResponse(document_json(), content_type="application/json", headers=headers)


@cache
def document_json() -> bytes:
    """Returns the description as the bytes that are sent."""
    return orjson.dumps(YAML(typ="safe").load(Path(__file__).with_name("openapi.yaml")))


@cache
def document() -> dict[str, Any]:
    """Returns the description as an object."""
    loaded: dict[str, Any] = orjson.loads(document_json())
    return loaded


def followed(node: dict[str, Any]) -> dict[str, Any]:
    """Returns an object of the description, or the component that it refers to."""
    if "$ref" not in node:
        return node
    _, _, kind, name = node["$ref"].split("/")
    component: dict[str, Any] = document()["components"][kind][name]
    return component


@cache
def _etag() -> str:
    return f'"{hashlib.sha256(document_json()).hexdigest()[:32]}"'
