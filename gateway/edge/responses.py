"""Answers of the HTTP API: endpoints past Django's handler, and DRF's."""

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

from ..errors import ApiError, InvalidRequest
from ..observing import request_events
from ..server.db import WORK_SECONDS, answering_within, release_all
from .bodies import too_large

Environ = dict[str, Any]
STATUS_LINES = {status: f"{status} {reason}" for status, reason in http.client.responses.items()}
ANTHROPIC_VERSION = "HTTP_ANTHROPIC_VERSION"  # of a request's META: a client that speaks Anthropic's API


def name_request(headers: dict[str, str] | ResponseHeaders, environ: Mapping[str, Any], request_id: str) -> None:
    """Puts a request's id into its answer's headers; Anthropic's clients read `request-id`."""
    headers["X-Request-Id"] = request_id
    if speaks_messages(environ):
        headers["request-id"] = request_id


def speaks_messages(environ: Mapping[str, Any]) -> bool:
    """True where the client knows Anthropic's envelope only."""
    path = environ["PATH_INFO"].partition("/v1/")[2]
    return path.startswith("messages") or (path.startswith("models") and ANTHROPIC_VERSION in environ)


def known(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that have a value: what is unknown is absent."""
    return {name: value for name, value in fields.items() if value is not None}


@dataclass(slots=True)
class PlainResponse:
    """A response that is no object of Django's. Its body is whole or in blocks; the server closes what has `close`."""

    status: int
    headers: dict[str, str]
    body: bytes | Iterable[bytes]
    error: ApiError | None = None

    def for_django(self) -> HttpResponseBase:
        kind: type[Any] = HttpResponse if isinstance(self.body, bytes) else StreamingHttpResponse
        response: HttpResponseBase = kind(self.body, status=self.status, headers=self.headers)
        # Django would log each 4xx and 5xx with its path; what deserves a line has been logged where it happened.
        response._has_been_logged = True  # type: ignore[attr-defined]
        response.api_error = self.error  # type: ignore[attr-defined]  # for the request's event
        return response


class AlwaysJson(BaseContentNegotiation):
    """No negotiation: there is one representation."""

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        renderer = next(iter(renderers))
        return renderer, renderer.media_type


class OrjsonRenderer(BaseRenderer):
    """JSON by orjson; money has left Decimal by `money.to_json`."""

    media_type = "application/json"
    format = "json"
    charset = None
    render_style = "binary"

    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Mapping[str, Any] | None = None
    ) -> bytes:
        return b"" if data is None else orjson.dumps(data)


def require_allowed(request: HttpRequest) -> None:
    """Refuses a foreign Host, and a Content-Length that is no number or too large."""
    request.get_host()
    declared = request.META.get("CONTENT_LENGTH")
    if not declared:
        return
    if not (declared.isascii() and declared.isdigit()):
        raise InvalidRequest("Content-Length is not a number.")
    if int(declared) > settings.GATEWAY_MAX_BODY_BYTES:
        raise too_large()


def is_allowed(environ: Environ) -> bool:
    """True where `require_allowed` passes."""
    request = HttpRequest.__new__(HttpRequest)  # its initial state costs ten times what is asked of it here
    request.META = environ
    try:
        require_allowed(request)
    except (ApiError, DisallowedHost):
        return False
    return True


class Endpoint:
    """An endpoint as a WSGI application, doing the middleware's work. The address' limit is the endpoint's to count."""

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
