"""Holds the rules of the edge, which both handlers call: Django's (`middleware`) and the fast path's (`endpoint`).

The limit of a client's address, which comes first, is in `address_limit`. A rule that is added here holds for both
handlers: the fast path hands a request that `is_allowed` rejects to Django's handler, which writes the refusal.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from django.core.exceptions import DisallowedHost
from django.http import HttpRequest
from django.http.response import ResponseHeaders

from ..db.pool import WORK_SECONDS, answering_within, release_all
from ..errors import ApiError
from ..observing import request_events
from ..observing.request_events import RequestEvent
from .bodies import require_allowed_length
from .responses import speaks_messages

Headers = dict[str, str] | ResponseHeaders


class _HasHeaders(Protocol):
    @property
    def headers(self) -> Headers: ...


Response = TypeVar("Response", bound=_HasHeaders)


class _RequestHead(HttpRequest):
    """Holds the headers of a request alone. Django's constructor costs ten times the check of the Host."""

    def __init__(self, environ: Mapping[str, Any]) -> None:
        self.META = environ  # type: ignore[assignment]


def require_allowed(environ: Mapping[str, Any]) -> None:
    """Raises DisallowedHost for an unknown Host, and InvalidRequest or RequestTooLarge for a bad Content-Length."""
    _RequestHead(environ).get_host()
    require_allowed_length(environ)


def is_allowed(environ: Mapping[str, Any]) -> bool:
    """Tells whether `require_allowed` would pass."""
    try:
        require_allowed(environ)
    except (ApiError, DisallowedHost):
        return False
    return True


def answer_request(
    environ: dict[str, Any],
    answer: Callable[[], Response],
    refuse: Callable[[Exception], Response],
    endpoint: str = "",
) -> tuple[RequestEvent, Response]:
    """Begins the event of a request, and answers it by `answer`, or by `refuse` if `answer` raises an exception.

    The response gets the request's id. Database connections are returned first: a client that reads slowly must not
    keep one while its answer is written.
    """
    event = request_events.begin(environ, endpoint)
    try:
        with answering_within(WORK_SECONDS):
            response = answer()
        release_all()
    except Exception as error:  # noqa: BLE001  # the boundary: known errors are rendered, others logged as 500
        response = refuse(error)
    name_request(response.headers, environ, event.request_id)
    return event, response


def name_request(headers: Headers, environ: Mapping[str, Any], request_id: str) -> None:
    """Sets the request's id in the answer's headers, also as `request-id` for Anthropic's clients."""
    headers["X-Request-Id"] = request_id
    if speaks_messages(environ):
        headers["request-id"] = request_id
