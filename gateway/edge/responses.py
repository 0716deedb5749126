"""Answers of the HTTP API: responses of the inference endpoints, and how DRF answers in the control plane."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.http.response import ResponseHeaders
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request

if TYPE_CHECKING:
    from ..errors import ApiError

ANTHROPIC_VERSION = "HTTP_ANTHROPIC_VERSION"  # of a request's META: a client that speaks Anthropic's API


def name_request(headers: dict[str, str] | ResponseHeaders, environ: Mapping[str, Any], request_id: str) -> None:
    """Puts a request's id into the headers of its answer; `request-id` is the one that Anthropic's clients read."""
    headers["X-Request-Id"] = request_id
    if speaks_messages(environ):
        headers["request-id"] = request_id


def speaks_messages(environ: Mapping[str, Any]) -> bool:
    """True where the client of a request knows Anthropic's envelope, and no other."""
    path = environ["PATH_INFO"].partition("/v1/")[2]
    return path.startswith("messages") or (path.startswith("models") and ANTHROPIC_VERSION in environ)


def known(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that have a value: what is unknown is absent, never null or zero."""
    return {name: value for name, value in fields.items() if value is not None}


@dataclass(slots=True)
class PlainResponse:
    """A response that is no object of Django's, which the inference endpoints give to both of their chains.

    A status, headers, and a body that is whole or comes in blocks; the server closes what has `close`.
    `error` is what the body tells, where that is an error.
    """

    status: int
    headers: dict[str, str]
    body: bytes | Iterable[bytes]
    error: "ApiError | None" = None

    def for_django(self) -> HttpResponseBase:
        """The same as Django's views return it."""
        kind: type[Any] = HttpResponse if isinstance(self.body, bytes) else StreamingHttpResponse
        response: HttpResponseBase = kind(self.body, status=self.status, headers=self.headers)
        # Django would log each 4xx and 5xx with its path; what deserves a line has been logged where it happened.
        response._has_been_logged = True  # type: ignore[attr-defined]
        response.api_error = self.error  # type: ignore[attr-defined]  # for the request's event
        return response


class AlwaysJson(BaseContentNegotiation):
    """The API has one representation, so there is nothing to negotiate."""

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        renderer = next(iter(renderers))
        return renderer, renderer.media_type


class OrjsonRenderer(BaseRenderer):
    """JSON by orjson. Decimals never get here: money leaves through `money.to_json`."""

    media_type = "application/json"
    format = "json"
    charset = None
    render_style = "binary"

    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Mapping[str, Any] | None = None
    ) -> bytes:
        return b"" if data is None else orjson.dumps(data)
