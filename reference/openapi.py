"""Serves `/v1/openapi.json`: the description of the API in `openapi.yaml`, with this gateway's address and models."""

import hashlib
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import orjson
from django.conf import settings
from django.http import HttpResponse, HttpResponseNotModified
from django.utils import timezone
from django.utils.http import parse_etags
from rest_framework.request import Request
from ruamel.yaml import YAML

from gateway.edge.control_view import ControlView

from .samples import replaced, samples

AN_HOUR = "public, max-age=3600"


class OpenApi(ControlView):
    """Serves the description of the API, also to clients without a key."""

    doing = "describing the API"
    authentication_classes = ()
    permission_classes = ()

    def get(self, request: Request) -> HttpResponse:
        """Returns OpenAPI 3.1 in JSON."""
        body, etag = _sent(settings.PUBLIC_URL, tuple(samples(timezone.now()).words.items()))
        headers = {"ETag": etag, "Cache-Control": AN_HOUR, "Access-Control-Allow-Origin": "*"}
        if etag in [tag.removeprefix("W/") for tag in parse_etags(request.headers.get("If-None-Match", ""))]:
            return HttpResponseNotModified(headers=headers)
        return HttpResponse(body, content_type="application/json", headers=headers)


@cache
def document_json() -> bytes:
    """Returns the description as JSON, in the demo's words."""
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


@lru_cache(maxsize=4)  # the words change when the catalogue does
def _sent(origin: str, words: tuple[tuple[str, str], ...]) -> tuple[bytes, str]:
    """Returns the description with this gateway's address, and examples for models that it serves, and its ETag."""
    servers = [each | {"url": f"{origin}{each['url']}"} for each in document()["servers"]]
    text = orjson.dumps(document() | {"servers": servers}).decode()
    body = replaced(text, dict(words)).encode()
    return body, f'"{hashlib.sha256(body).hexdigest()[:32]}"'
