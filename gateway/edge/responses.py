"""Writes the answers of the HTTP API, for WSGI endpoints without Django's handler and for DRF."""

import http.client
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.http.response import ResponseHeaders
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request

from ..db.pool import WORK_SECONDS, answering_within, release_all
from ..errors import ApiError, InvalidRequest
from ..observing import request_events
from .bodies import too_large

Environ = dict[str, Any]
STATUS_LINES = {status: f"{status} {reason}" for status, reason in http.client.responses.items()}
ANTHROPIC_VERSION = "HTTP_ANTHROPIC_VERSION"  # in META if the client speaks Anthropic's API


def name_request(headers: dict[str, str] | ResponseHeaders, environ: Mapping[str, Any], request_id: str) -> None:
    """Sets the request's id in the answer's headers, also as `request-id` for Anthropic's clients."""
    headers["X-Request-Id"] = request_id
    if speaks_messages(environ):
        headers["request-id"] = request_id


def speaks_messages(environ: Mapping[str, Any]) -> bool:
    """Tells whether the client expects errors in the form of Anthropic's API."""
    path = environ["PATH_INFO"].partition("/v1/")[2]
    return path.startswith("messages") or (path.startswith("models") and ANTHROPIC_VERSION in environ)


def known(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields that have a value: unknown ones are left out."""
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


def require_allowed(request: HttpRequest) -> None:
    """Raises an error for an unknown Host, and for a Content-Length that is not a number or too large."""
    request.get_host()
    declared = request.META.get("CONTENT_LENGTH")
    if not declared:
        return
    if not (declared.isascii() and declared.isdigit()):
        raise InvalidRequest("Content-Length is not a number.")
    if int(declared) > settings.GATEWAY_MAX_BODY_BYTES:
        raise too_large()


class _RequestHead(HttpRequest):
    """A request of which only the headers are looked at. Django's constructor costs ten times the check itself."""

    def __init__(self, environ: Environ) -> None:
        self.META = environ


def is_allowed(environ: Environ) -> bool:
    """Tells whether `require_allowed` would pass."""
    try:
        require_allowed(_RequestHead(environ))
    except (ApiError, DisallowedHost):
        return False
    return True


class Endpoint:
    """Runs an endpoint as a WSGI application, without middleware. `answer` counts the limit of the address itself."""

    def __init__(
        self,
        name: str,
        answer: Callable[[Environ], PlainResponse],
        refused: Callable[[Exception, Environ], PlainResponse],
    ) -> None:
        self.name, self._answer, self._refused = name, answer, refused

    def __call__(self, environ: Environ, start_response: Callable[..., object]) -> Iterable[bytes]:
        event = request_events.begin(environ, self.name)
        try:
            with answering_within(WORK_SECONDS):
                response = self._answer(environ)
            release_all()
        except Exception as error:  # noqa: BLE001  # the boundary: known errors are rendered, others logged as 500
            response = self._refused(error, environ)
        headers, body = response.headers, response.body
        name_request(headers, environ, event.request_id)
        event.answered(response.status, response.error)
        if isinstance(body, bytes):
            headers["Content-Length"] = str(len(body))
            body = [body]
            event.complete()  # a stream is complete when it is closed
        start_response(STATUS_LINES[response.status], list(headers.items()))
        return body
