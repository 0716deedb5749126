"""Holds the middleware of the API and of pages."""

import functools
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.handlers.exception import response_for_exception
from django.db import DataError
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.urls import get_resolver, resolve
from django.utils.cache import add_never_cache_headers

from ..errors import ApiError, MethodNotAllowed, RequestTooLarge, WorkerBusy
from . import address_limit
from .exception_handler import handler400, is_api, not_allowed_page, refusal_page, render
from .health import is_probe
from .rules import answer_request, require_allowed

logger = logging.getLogger(__name__)
GetResponse = Callable[[HttpRequest], HttpResponseBase]

NO_CONTENT = 204
WITHOUT_LENGTH = frozenset({NO_CONTENT, 304})  # RFC 9110: no body, or a length that describes another response
# Allows everything from this origin and nothing inline. The admin's style sheets use `data:` images.
CONTENT_SECURITY_POLICY = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
PROXY_NAMES_NO_PROTOCOL = """The proxy in front of this gateway does not say whether this request came by HTTPS, so
every page would redirect to itself. Make the proxy set X-Forwarded-Proto (nginx: proxy_set_header X-Forwarded-Proto
$scheme;). See docs/operations.md for more.
"""


class RequestIdMiddleware:
    """Gives each response an id and a length, and returns database connections."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        # 1. Get the response.
        event, response = answer_request(
            request.META,
            answer=lambda: self.get_response(request),
            refuse=lambda error: response_for_exception(request, error),
        )
        # 2. Complete its headers.
        if response.status_code == NO_CONTENT:
            del response["Content-Type"]
        has_length = response.has_header("Content-Length") or response.status_code in WITHOUT_LENGTH
        if not response.streaming and not has_length:
            response["Content-Length"] = str(len(response.content))  # type: ignore[attr-defined]  # whole responses
        if request.method == "HEAD" and not response.streaming:
            response.content = b""  # type: ignore[attr-defined]  # after its length was set
        # 3. Record the event.
        error = getattr(response, "api_error", None)
        if is_api(request) or error is not None:  # unknown paths may get the API's error object too
            match = request.resolver_match
            event.endpoint = "" if match is None else _endpoint(match.route)
            event.answered(response.status_code, error)
            if not response.streaming:  # a stream is complete when it is closed
                event.complete()
        return response


@functools.cache
def _endpoint(route: str) -> str:
    # Turns a URL pattern into the path below `/v1`, such as `generation/<generation_id>`.
    return re.sub(r"\(\?P(<\w+>)[^()]*\)|/\?\$$|\^(\(\?:api/\)\?v1/)?", r"\1", route)


def endpoints() -> list[str]:
    """Returns the path below `/v1` of every endpoint of the API."""
    api: Any = get_resolver().url_patterns[0]
    return [_endpoint(route) for route in _routes([api])]


def _routes(patterns: Iterable[Any]) -> Iterator[str]:
    for pattern in patterns:
        yield from _routes(pattern.url_patterns) if hasattr(pattern, "url_patterns") else [str(pattern.pattern)]


class ApiMiddleware:
    """Answers the API and probes directly, without the middleware of pages.

    The checks are in the order of docs/api.md#order-of-checks.
    """

    def __init__(self, get_response: GetResponse) -> None:
        self.get_page = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if is_api(request):
            try:
                address_limit.begin(request.META).check()
                require_allowed(request.META)
            except ApiError as refusal:
                return render(refusal, request)
        elif not is_probe(request):
            return self.get_page(request)
        # Django's handler does this after its last middleware.
        request.resolver_match = match = resolve(request.path_info)
        response: HttpResponseBase = match.func(request, *match.args, **match.kwargs)
        return response.render() if hasattr(response, "render") else response


class PageMiddleware:
    """Sets the security headers of pages, and bounds the size of their forms."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        # Drops a session cookie that cannot be valid: it may hold a NUL, which PostgreSQL rejects.
        key = request.COOKIES.get(settings.SESSION_COOKIE_NAME, "")
        if not (key.isascii() and key.isalnum()):
            request.COOKIES.pop(settings.SESSION_COOKIE_NAME, None)
        response = _explanation(request) or self.get_response(request)
        # A view that needs another policy sets its own header.
        response.headers.setdefault("Content-Security-Policy", CONTENT_SECURITY_POLICY)
        # A page that depends on the session shows private data, also if it is an error; so it must not be cached.
        is_of_session = "Cookie" in response.headers.get("Vary", "") and settings.SESSION_COOKIE_NAME in request.COOKIES
        if is_of_session and "Cache-Control" not in response.headers:
            add_never_cache_headers(response)
        return response

    def process_view(
        self, request: HttpRequest, _view: object, _args: object, _kwargs: object
    ) -> HttpResponseBase | None:
        # Answers 413 to a form that is too large, before any of it is read.
        if int(request.META.get("CONTENT_LENGTH") or 0) <= settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
            return None
        return refusal_page(RequestTooLarge("A form holds 1 MiB at most, and no files."))

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponseBase | None:
        # The admin takes filters and ids from the address. The database rejects some of them: a text with a NUL, a
        # number of more than 64 bits.
        if isinstance(error, WorkerBusy):
            return refusal_page(error)
        if request.path_info.startswith("/admin/") and isinstance(error, DataError | OverflowError | ValidationError):
            logger.warning("an address of the admin has a value that the database rejects", exc_info=error)
            return handler400(request, error)
        return None


class NotAllowedMiddleware:
    """Gives a browser a page if a method is not allowed. It comes last, because the page shows the signed-in user."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        if response.status_code != MethodNotAllowed.status:
            return response
        return not_allowed_page(request, response.headers.get("Allow", "")) or response


def _explanation(request: HttpRequest) -> HttpResponse | None:
    # The explanation replaces an endless redirect to HTTPS.
    says_how = not settings.GATEWAY_TRUSTED_PROXIES or "HTTP_X_FORWARDED_PROTO" in request.META
    if says_how or request.is_secure() or not settings.SECURE_SSL_REDIRECT:
        return None
    headers = {"Content-Type": "text/plain; charset=utf-8", "Cache-Control": "no-store"}
    return HttpResponse(PROXY_NAMES_NO_PROTOCOL, status=500, headers=headers)
