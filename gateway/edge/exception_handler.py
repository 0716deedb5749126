"""Renders every error as a response body; nothing else does."""

import math
from collections.abc import Mapping
from typing import Any

import orjson
from django.core import exceptions as django
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect, UnreadablePostError
from django.shortcuts import render as render_page
from django.template.loader import render_to_string
from django.urls import Resolver404, is_valid_path, resolve
from django.utils.cache import add_never_cache_headers
from django.utils.encoding import iri_to_uri
from django.utils.http import escape_leading_slashes
from rest_framework import exceptions as drf
from rest_framework.response import Response

from ..errors import (
    ApiError,
    InvalidRequest,
    MethodNotAllowed,
    MissingAuthorization,
    NotFound,
    RequestTooLarge,
    StepFailed,
    TooManyRequests,
    WorkerBusy,
    log_failure,
)
from ..observing.request_events import EVENT, event_of
from .responses import PlainResponse, speaks_messages
from .rules import name_request

UNNAMED_STEP = "handling the request"
API_PREFIXES = ("/v1/", "/api/v1/")
UNAUTHORIZED = 401
# The `type` that Anthropic gives to an error with this status.
MESSAGE_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    409: "invalid_request_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def is_api(request: HttpRequest) -> bool:
    """Tells whether the path belongs to the HTTP API."""
    return f"{request.path_info}/".startswith(API_PREFIXES)


def error_body(error: ApiError) -> dict[str, dict[str, Any]]:
    """Returns the error object. `param` and `code` are always there, because SDKs expect them."""
    body: dict[str, Any] = {"type": error.type, "message": error.message, "code": error.code, "param": error.param}
    if error.providers_attempted is not None:
        body["providers_attempted"] = list(error.providers_attempted)
    if error.last_error is not None:
        body["last_error"] = error.last_error
    return {"error": body}


def error_body_of_messages(error: ApiError, request_id: str | None = None) -> dict[str, Any]:
    """Returns the error object in the form of Anthropic's API."""
    # Claude Code repeats a request for minutes after `overloaded_error`, even if `x-should-retry` is false.
    kind = "api_error" if error.status == 503 and not error.retry else MESSAGE_ERRORS.get(error.status, "api_error")
    details = error_body(error)["error"] | {"type": kind}
    return {"type": "error", "error": details} | ({} if request_id is None else {"request_id": request_id})


def body_of(error: ApiError, environ: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns the error object in the form that the request's client understands."""
    if environ is None or EVENT not in environ or not speaks_messages(environ):
        return error_body(error)
    return error_body_of_messages(error, event_of(environ).request_id)


def headers_of(error: ApiError) -> dict[str, str]:
    """Returns the headers of an error's response."""
    headers = error.headers | ({"WWW-Authenticate": "Bearer"} if error.status == UNAUTHORIZED else {})
    return headers if error.retry else headers | {"x-should-retry": "false"}


def plain(error: ApiError, environ: Mapping[str, Any] | None = None) -> PlainResponse:
    """Returns the response for an error. `environ` is the request's environ or META."""
    error.__traceback__ = None
    headers = headers_of(error) | {"Content-Type": "application/json"}
    return PlainResponse(error.status, headers, orjson.dumps(body_of(error, environ)), error)


def response_bytes(status_line: str, first: dict[str, str], error: ApiError, environ: Mapping[str, Any]) -> bytes:
    """Returns a whole HTTP/1.1 response with an error, for a socket. Its headers begin with `first`."""
    body = orjson.dumps(body_of(error, environ))
    headers = first | headers_of(error) | {"Content-Type": "application/json", "Content-Length": str(len(body))}
    name_request(headers, environ, environ[EVENT].request_id)
    lines = [f"HTTP/1.1 {status_line}", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode() + body


def render(error: ApiError, request: HttpRequest | None = None) -> HttpResponseBase:
    """Returns the response for an error as Django's HttpResponse."""
    return plain(error, None if request is None else request.META).for_django()


def refusal_page(error: RequestTooLarge | WorkerBusy) -> HttpResponse:
    """Returns a page for an error, without using the session or the database."""
    title = "The gateway is busy" if error.status == WorkerBusy.status else "Request too large"
    context = {"status": error.status, "title": title, "message": error.message}
    page = HttpResponse(render_to_string("refused.html", context), status=error.status, headers=error.headers)
    page._has_been_logged = True  # type: ignore[attr-defined]
    return _never_cached(page)


def from_exception(error: Exception, doing: str = UNNAMED_STEP) -> ApiError:
    """Converts an exception of DRF or Django to an ApiError. Any other exception is logged and becomes a 500."""
    known = error if isinstance(error, ApiError) else _from_drf(error) or _from_django(error)
    if known is None:
        log_failure(doing, error)
        return StepFailed(doing)
    return known


def _from_drf(error: Exception) -> ApiError | None:
    known: ApiError | None = None
    match error:
        case drf.ValidationError():
            rule, path = first_fault(error.detail)
            known = InvalidRequest(rule) if path is None else InvalidRequest.of_field(path, rule)
        case drf.MethodNotAllowed():
            known = MethodNotAllowed(str(error.detail))
        case drf.NotAuthenticated() | drf.AuthenticationFailed():
            known = MissingAuthorization()
        case drf.Throttled():
            wait = getattr(error, "wait", None)
            known = TooManyRequests(
                str(error.detail), headers={} if wait is None else {"Retry-After": str(math.ceil(wait))}
            )
        case drf.ParseError() | drf.UnsupportedMediaType() | drf.NotAcceptable():
            known = InvalidRequest(str(error.detail))
        case drf.NotFound() | drf.PermissionDenied():
            known = NotFound()  # hides that it exists
    return known


def _from_django(error: Exception) -> ApiError | None:
    known: ApiError | None = None
    match error:
        case Http404() | django.PermissionDenied():
            known = NotFound()
        case django.RequestDataTooBig():
            known = RequestTooLarge("The request body is too large.")
        case django.ValidationError():
            known = InvalidRequest(" ".join(error.messages))
        case django.BadRequest() | django.SuspiciousOperation() | UnreadablePostError():
            known = InvalidRequest()
    return known


def drf_exception_handler(error: Exception, context: dict[str, Any]) -> Response:
    """Renders an exception raised in a view of DRF (settings.REST_FRAMEWORK)."""
    known = from_exception(error, getattr(context.get("view"), "doing", UNNAMED_STEP))
    request = context.get("request")
    body = body_of(known, None if request is None else request.META)
    response = Response(body, status=known.status, headers=headers_of(known))
    response.api_error = known  # type: ignore[attr-defined]  # for the request's event
    return response


def first_fault(detail: Any, path: str = "") -> tuple[str, str | None]:
    """Returns the first message in DRF's nested detail, and the path of its field (`messages[2].role`)."""
    if not detail:
        return InvalidRequest.message, path or None
    if isinstance(detail, dict):
        key, inner = next(iter(detail.items()))
        if key == "non_field_errors":
            return first_fault(inner, path)
        if isinstance(key, int) or key.isdigit():
            return first_fault(inner, f"{path}[{key}]")
        return first_fault(inner, f"{path}.{key}" if path else key)
    if isinstance(detail, list):
        position, inner = next(((i, item) for i, item in enumerate(detail) if item), (0, None))
        return first_fault(inner, f"{path}[{position}]" if isinstance(inner, dict | list) else path)
    return str(detail), path or None


def handler400(request: HttpRequest, exception: Exception) -> HttpResponseBase:  # noqa: ARG001  # Django passes it by name
    """Answers requests that Django refuses, for example for an unknown Host."""
    return render(InvalidRequest("Bad request: the Host header is invalid, or the request is malformed."), request)


def handler403(request: HttpRequest, exception: django.PermissionDenied) -> HttpResponse:
    """Answers with a page that says what is not permitted, in the exception's words if it has some."""
    return _never_cached(render_page(request, "403.html", {"words": str(exception)}, status=403))


def handler404(request: HttpRequest, exception: Http404) -> HttpResponseBase:  # noqa: ARG001  # Django passes it by name
    """Answers with a redirect if only the last slash is wrong, with a page to a browser, else with an error object."""
    if (address := _with_or_without_slash(request)) is not None:
        return HttpResponseRedirect(address)
    asks_for_a_page = request.resolver_match is not None or _takes_html(request)
    if asks_for_a_page and not is_api(request):
        return _never_cached(render_page(request, "404.html", status=404))
    below = f"{API_PREFIXES[0].rstrip('/')}{request.path_info}"
    hint = f". Did you mean {below}?" if not is_api(request) and is_valid_path(below) else ""
    return render(NotFound(f"Unknown path: {request.path}{hint}"), request)


def _with_or_without_slash(request: HttpRequest) -> str | None:
    """Returns the address of a page that differs only by its last slash, if there is one."""
    path, match = request.path_info, request.resolver_match
    if request.method not in ("GET", "HEAD") or is_api(request):
        return None
    if path.endswith("/"):
        other = path.rstrip("/")
    elif match is None or match.url_name is None:
        other = f"{path}/"
    else:
        return None
    query = request.META.get("QUERY_STRING", "")
    return escape_leading_slashes(f"{iri_to_uri(other)}{'?' if query else ''}{query}") if _is_page(other) else None


def _is_page(path: str) -> bool:
    try:
        return resolve(path).url_name is not None  # the admin's pattern without a name matches any path
    except Resolver404:
        return False


def _takes_html(request: HttpRequest) -> bool:
    return "text/html" in request.headers.get("Accept", "")


def not_allowed_page(request: HttpRequest, allow: str) -> HttpResponse | None:
    """Returns a page for a browser whose method the address does not take, or None for other clients."""
    if not _takes_html(request):
        return None
    page = render_page(request, "405.html", status=405)
    page.headers["Allow"] = allow
    return _never_cached(page)


def _never_cached(page: HttpResponse) -> HttpResponse:
    add_never_cache_headers(page)
    return page


def handler500(request: HttpRequest) -> HttpResponseBase:
    """Answers an exception that nothing else handled; Django logs it afterwards."""
    if request.resolver_match is not None and not is_api(request):
        return HttpResponse(render_to_string("500.html"), status=500)
    response = render(StepFailed(UNNAMED_STEP), request)
    response._has_been_logged = False  # type: ignore[attr-defined]
    return response
