"""Answers an ordinary inference request as a WSGI application, without Django's handler and middleware."""

import http.client
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .exception_handler import API_PREFIXES, from_exception, plain
from .responses import PlainResponse
from .rules import answer_request

Environ = dict[str, Any]
STATUS_LINES = {status: f"{status} {reason}" for status, reason in http.client.responses.items()}


class WsgiEndpoint:
    """Runs one endpoint.

    `rules.is_allowed` has checked the Host and the Content-Length before (gateway/wsgi.py); Django's handler gets the
    requests that it rejects. The limit of the client's address is not checked yet: `answer` counts it.
    """

    def __init__(self, name: str, answer: Callable[[Environ], PlainResponse]) -> None:
        self.name, self._answer = name, answer

    def __call__(self, environ: Environ, start_response: Callable[..., object]) -> Iterable[bytes]:
        event, response = answer_request(
            environ,
            answer=lambda: self._answer(environ),
            refuse=lambda error: plain(from_exception(error), environ),
            endpoint=self.name,
        )
        event.answered(response.status, response.error)
        headers, body = response.headers, response.body
        if isinstance(body, bytes):
            headers["Content-Length"] = str(len(body))
            body = [body]
            event.complete()  # a stream is complete when it is closed
        start_response(STATUS_LINES[response.status], list(headers.items()))
        return body


def at_each_path(endpoints: Mapping[str, Callable[[Environ], PlainResponse]]) -> dict[str, WsgiEndpoint]:
    """Returns the endpoints by path: with both prefixes, with and without a slash at the end."""
    return {
        f"{prefix}{name}{slash}": WsgiEndpoint(name, answer)
        for name, answer in endpoints.items()
        for prefix in API_PREFIXES
        for slash in ("", "/")
    }
