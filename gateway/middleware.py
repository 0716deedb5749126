"""The edge of every request: its id, and for the API the bound on its body."""

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase

from .api_paths import is_api
from .db import WORK_SECONDS, answering_within, release_all
from .errors import InvalidRequest
from .exception_handler import render
from .ids import request_id
from .jsonbody import too_large

GetResponse = Callable[[HttpRequest], HttpResponseBase]
NO_CONTENT = 204
WITHOUT_LENGTH = frozenset({NO_CONTENT, 304})  # RFC 9110: no content, or that of another response


class RequestIdMiddleware:
    """Gives each request an id of our own and puts it on every response."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        identifier = request_id()
        request.META["GATEWAY_REQUEST_ID"] = identifier
        with answering_within(WORK_SECONDS):
            response = self.get_response(request)
        release_all()  # a client that reads slowly must not keep a connection while its answer is written
        response["X-Request-Id"] = identifier
        if response.status_code == NO_CONTENT:
            del response["Content-Type"]
        has_length = response.has_header("Content-Length") or response.status_code in WITHOUT_LENGTH
        if not response.streaming and not has_length:
            response["Content-Length"] = str(len(response.content))  # type: ignore[attr-defined]  # whole responses
        if request.method == "HEAD" and not response.streaming:
            response.content = b""  # type: ignore[attr-defined]  # its length has been told
        return response


class ApiBoundsMiddleware:
    """Refuses an API request with a foreign Host, or a declared body that is too large, before a byte of it is read."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if not is_api(request):
            return self.get_response(request)
        request.get_host()  # raises DisallowedHost, which becomes a 400
        declared = request.META.get("CONTENT_LENGTH")
        if declared:
            if not (declared.isascii() and declared.isdigit()):
                return render(InvalidRequest("Content-Length is not a number."))
            if int(declared) > settings.GATEWAY_MAX_BODY_BYTES:
                return render(too_large())
        return self.get_response(request)
