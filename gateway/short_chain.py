"""The inference endpoints under WSGI, past Django's handler and middleware (docs/decisions/0006-short-chain.md).

That saves 0.45 of a bare pass-through's instructions for each request.
"""

import http.client
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.http import HttpRequest

from . import request_events
from .db import WORK_SECONDS, answering_within, release_all
from .exception_handler import API_PREFIXES, from_exception, plain
from .responses import PlainResponse

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

HOSTS_REMEMBERED = 1000
STATUS_LINES = {status: f"{status} {reason}" for status, reason in http.client.responses.items()}


class ShortChain:
    """A WSGI application that answers ordinary POSTs to `endpoints` (by path) itself and leaves the rest to Django.

    It does what the middleware does for the API: request id, Host, declared length, headers. The limit of the
    address is the endpoint's to count, with its other limits.
    """

    def __init__(
        self, endpoints: Mapping[str, Callable[["WSGIEnvironment"], PlainResponse]], django: Callable[..., Any]
    ) -> None:
        self._endpoints = {
            f"{prefix}{path}{slash}": (path, endpoint)
            for path, endpoint in endpoints.items()
            for prefix in API_PREFIXES
            for slash in ("", "/")
        }
        self._django = django
        self._hosts: set[str] = set()  # those that were found to be allowed

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        found = self._endpoints.get(environ["PATH_INFO"])
        if found is None or not self._is_ordinary(environ):
            django: Iterable[bytes] = self._django(environ, start_response)
            return django
        name, endpoint = found
        event = request_events.begin(environ, name)
        try:
            with answering_within(WORK_SECONDS):
                response = endpoint(environ)
            release_all()  # a client that reads slowly must not keep a connection while its answer is written
        except Exception as error:  # noqa: BLE001  # the boundary: known errors are rendered, others logged as 500
            response = plain(from_exception(error), environ)
        headers, body = response.headers, response.body
        headers["X-Request-Id"] = event.request_id
        event.answered(response.status, response.error)
        if isinstance(body, bytes):
            headers["Content-Length"] = str(len(body))
            body = [body]
            event.complete()  # a stream is complete when it is closed
        start_response(STATUS_LINES[response.status], list(headers.items()))
        return body

    def name_of(self, path: str) -> str | None:
        """The endpoint at this path, without the API's prefix; None where Django's handler answers."""
        found = self._endpoints.get(path)
        return None if found is None else found[0]

    def _is_ordinary(self, environ: "WSGIEnvironment") -> bool:
        """Whether the edge has nothing to refuse or to change, the limit of the address apart."""
        declared = environ.get("CONTENT_LENGTH", "0")
        return (
            environ["REQUEST_METHOD"] == "POST"
            and not environ["SCRIPT_NAME"]
            and declared.isascii()
            and declared.isdigit()
            and int(declared) <= settings.GATEWAY_MAX_BODY_BYTES
            and (environ.get("HTTP_HOST") in self._hosts or self._is_allowed_host(environ))
        )

    def _is_allowed_host(self, environ: "WSGIEnvironment") -> bool:
        request = HttpRequest()
        request.META = environ
        try:
            request.get_host()
        except DisallowedHost:
            return False
        if "HTTP_HOST" in environ and len(self._hosts) < HOSTS_REMEMBERED:
            self._hosts.add(environ["HTTP_HOST"])
        return True
