"""Writes the answers of the HTTP API, for WSGI endpoints without Django's handler and for DRF."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request

from ..errors import ApiError

ANTHROPIC_VERSION = "HTTP_ANTHROPIC_VERSION"  # in META if the client speaks Anthropic's API


def speaks_messages(environ: Mapping[str, Any]) -> bool:
    """Tells whether the client expects errors in the form of Anthropic's API."""
    path = environ["PATH_INFO"].partition("/v1/")[2]
    return path.startswith("messages") or (path.startswith("models") and ANTHROPIC_VERSION in environ)


def without_unknown(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields whose value is known: those that are None are left out."""
    return {name: value for name, value in fields.items() if value is not None}


@dataclass(slots=True)
class PlainResponse:
    """Holds a response outside Django. The body is whole or an iterable of blocks, whose `close` the server calls."""

    status: int
    headers: dict[str, str]
    body: bytes | Iterable[bytes]
    error: ApiError | None = None

    def for_django(self) -> HttpResponseBase:
        kind: type[Any] = HttpResponse if isinstance(self.body, bytes) else StreamingHttpResponse
        response: HttpResponseBase = kind(self.body, status=self.status, headers=self.headers)
        # Stops Django from logging each 4xx and 5xx with its path; errors were logged where they happened.
        response._has_been_logged = True  # type: ignore[attr-defined]
        response.api_error = self.error  # type: ignore[attr-defined]  # for the request's event
        return response


class AlwaysJson(BaseContentNegotiation):
    """Always chooses the first renderer, because every answer is JSON."""

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        renderer = next(iter(renderers))
        return renderer, renderer.media_type


class OrjsonRenderer(BaseRenderer):
    """Writes JSON with orjson. It takes no Decimal: convert money with `money.to_json` first."""

    media_type = "application/json"
    format = "json"
    charset = None
    render_style = "binary"

    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Mapping[str, Any] | None = None
    ) -> bytes:
        return b"" if data is None else orjson.dumps(data)
