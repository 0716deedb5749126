"""The edge of every request, and of pages."""

import functools
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import DataError
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.urls import get_resolver, resolve
from django.utils.cache import add_never_cache_headers

from ..errors import ApiError, MethodNotAllowed, RequestTooLarge, WorkerBusy
from ..observing import request_events
from ..server.db import WORK_SECONDS, answering_within, release_all
from . import address_limit
from .exception_handler import (
    API_PREFIXES,
    from_exception,
    handler400,
    is_api,
    not_allowed_page,
    plain,
    refusal_page,
    render,
)
from .health import is_probe
from .responses import Endpoint, Environ, PlainResponse, name_request, require_allowed

logger = logging.getLogger(__name__)
GetResponse = Callable[[HttpRequest], HttpResponseBase]

NO_CONTENT = 204
WITHOUT_LENGTH = frozenset({NO_CONTENT, 304})  # RFC 9110: no content, or that of another response
# Everything from this origin, nothing inline. `data:` pictures are for the admin's style sheets.
CONTENT_SECURITY_POLICY = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
PROXY_NAMES_NO_PROTOCOL = """The proxy in front of this gateway does not say whether this request came by HTTPS, so
every page would redirect to itself. Have the proxy set X-Forwarded-Proto (nginx: proxy_set_header X-Forwarded-Proto
$scheme;). docs/operations.md has the rest.
"""


class RequestIdMiddleware:
    """Gives each response an id and a length, and returns database connections."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        event = request_events.begin(request.META)
        with answering_within(WORK_SECONDS):
            response = self.get_response(request)
        release_all()  # a client that reads slowly must not keep a connection while its answer is written
        name_request(response.headers, request.META, event.request_id)
        if response.status_code == NO_CONTENT:
            del response["Content-Type"]
        has_length = response.has_header("Content-Length") or response.status_code in WITHOUT_LENGTH
        if not response.streaming and not has_length:
            response["Content-Length"] = str(len(response.content))  # type: ignore[attr-defined]  # whole responses
        if request.method == "HEAD" and not response.streaming:
            response.content = b""  # type: ignore[attr-defined]  # its length has been told
        error = getattr(response, "api_error", None)
        if is_api(request) or error is not None:  # an unknown path elsewhere is answered in the API's shape too
            match = request.resolver_match
            event.endpoint = "" if match is None else _endpoint(match.route)
            event.answered(response.status_code, error)
            if not response.streaming:  # a stream is complete when it is closed
                event.complete()
        return response


@functools.cache
def _endpoint(route: str) -> str:
    # a pattern of an address, as its path below `/v1`: `generation/<generation_id>`
    return re.sub(r"\(\?P(<\w+>)[^()]*\)|/\?\$$|\^(\(\?:api/\)\?v1/)?", r"\1", route)


def endpoints() -> list[str]:
    """Every endpoint of the API, by its path below `/v1`."""
    api: Any = get_resolver().url_patterns[0]
    return [_endpoint(route) for route in _routes([api])]


def _routes(patterns: Iterable[Any]) -> Iterator[str]:
    for pattern in patterns:
        yield from _routes(pattern.url_patterns) if hasattr(pattern, "url_patterns") else [str(pattern.pattern)]


class ApiMiddleware:
    """Answers the API and probes past the page middleware.

    Its checks come in the order of docs/api.md#order-of-checks.
    """

    def __init__(self, get_response: GetResponse) -> None:
        self.get_page = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if is_api(request):
            try:
                address_limit.begin(request.META).check()
                require_allowed(request)
            except ApiError as refusal:
                return render(refusal, request)
        elif not is_probe(request):
            return self.get_page(request)
        # What Django's handler does behind its last middleware.
        request.resolver_match = match = resolve(request.path_info)
        response: HttpResponseBase = match.func(request, *match.args, **match.kwargs)
        return response.render() if hasattr(response, "render") else response


def _refused(error: Exception, environ: Environ) -> PlainResponse:
    return plain(from_exception(error), environ)


def at_each_path(endpoints: Mapping[str, Callable[[Environ], PlainResponse]]) -> dict[str, Endpoint]:
    """The endpoints by their paths."""
    return {
        f"{prefix}{name}{slash}": Endpoint(name, answer, _refused)
        for name, answer in endpoints.items()
        for prefix in API_PREFIXES
        for slash in ("", "/")
    }


class PageMiddleware:
    """The policy of contents, cookies and sizes of pages."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        # A cookie that can be no session's is not looked for: PostgreSQL takes no NUL, which a quoted one may hold.
        key = request.COOKIES.get(settings.SESSION_COOKIE_NAME, "")
        if not (key.isascii() and key.isalnum()):
            request.COOKIES.pop(settings.SESSION_COOKIE_NAME, None)
        response = _explanation(request) or self.get_response(request)
        # A view that needs another policy sets its own header.
        response.headers.setdefault("Content-Security-Policy", CONTENT_SECURITY_POLICY)
        # What was made for a session shows its person and their account, documents and errors included.
        is_of_session = "Cookie" in response.headers.get("Vary", "") and settings.SESSION_COOKIE_NAME in request.COOKIES
        if is_of_session and "Cache-Control" not in response.headers:
            add_never_cache_headers(response)
        return response

    def process_view(
        self, request: HttpRequest, _view: object, _args: object, _kwargs: object
    ) -> HttpResponseBase | None:
        # a 413 for a form that is too large, before anything has read of it
        if int(request.META.get("CONTENT_LENGTH") or 0) <= settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
            return None
        return refusal_page(RequestTooLarge("A form holds 1 MiB at most, and no files."))

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponseBase | None:
        # The admin takes any column's filter and any row's id from an address: a NUL in a text, a number beyond 64
        # bits. No database can be asked for these.
        if isinstance(error, WorkerBusy):
            return refusal_page(error)
        if request.path_info.startswith("/admin/") and isinstance(error, DataError | OverflowError | ValidationError):
            logger.warning("the admin was asked what the database cannot be", exc_info=error)
            return handler400(request, error)
        return None


class NotAllowedMiddleware:
    """Gives a browser a page if a method is not allowed. It is the innermost: the page shows who is signed in."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        if response.status_code != MethodNotAllowed.status:
            return response
        return not_allowed_page(request, response.headers.get("Allow", "")) or response


def _explanation(request: HttpRequest) -> HttpResponse | None:
    # in place of an endless redirect to HTTPS
    says_how = not settings.GATEWAY_TRUSTED_PROXIES or "HTTP_X_FORWARDED_PROTO" in request.META
    if says_how or request.is_secure() or not settings.SECURE_SSL_REDIRECT:
        return None
    headers = {"Content-Type": "text/plain; charset=utf-8", "Cache-Control": "no-store"}
    return HttpResponse(PROXY_NAMES_NO_PROTOCOL, status=500, headers=headers)
