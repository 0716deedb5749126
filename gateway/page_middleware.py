"""Django's page middleware, which lets API requests through untouched: sessions, CSRF and frames are for browsers."""

import logging

from django.conf import settings
from django.contrib.auth import middleware as auth
from django.contrib.messages import middleware as messages
from django.contrib.sessions import middleware as sessions
from django.core.exceptions import ValidationError
from django.db import DataError
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.middleware import clickjacking, common, csrf, security
from whitenoise.middleware import WhiteNoiseMiddleware as WhiteNoise

from .api_paths import is_api
from .exception_handler import handler400
from .health import is_probe
from .middleware import GetResponse

logger = logging.getLogger(__name__)


class PagesOnly:
    """Mixin: steps aside for the API and for probes."""

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if is_api(request) or is_probe(request):
            return self.get_response(request)  # type: ignore[attr-defined,no-any-return]  # the other base has it
        return super().__call__(request)  # type: ignore[misc,no-any-return]


PROXY_NAMES_NO_PROTOCOL = """The proxy in front of this gateway does not say whether this request came by HTTPS, so
every page would redirect to itself. Have the proxy set X-Forwarded-Proto (nginx: proxy_set_header X-Forwarded-Proto
$scheme;). docs/operations.md has the rest.
"""


class SecurityMiddleware(PagesOnly, security.SecurityMiddleware):
    """HTTPS redirect, HSTS and content-type headers."""

    def process_request(self, request: HttpRequest) -> HttpResponse | None:  # type: ignore[override]  # one more answer
        """The redirect of a page asked for in clear; an explanation where the proxy does not say how it was."""
        redirect = super().process_request(request)
        if redirect is None or not settings.GATEWAY_TRUSTED_PROXIES or "HTTP_X_FORWARDED_PROTO" in request.META:
            return redirect
        headers = {"Content-Type": "text/plain; charset=utf-8", "Cache-Control": "no-store"}
        return HttpResponse(PROXY_NAMES_NO_PROTOCOL, status=500, headers=headers)


class WhiteNoiseMiddleware(PagesOnly, WhiteNoise):  # type: ignore[misc]  # published without types
    """Static files, straight from the worker."""


class SessionMiddleware(PagesOnly, sessions.SessionMiddleware):
    """Sessions for signed-in members and staff."""

    def process_request(self, request: HttpRequest) -> None:
        """A cookie that can be no session's is not looked for: PostgreSQL takes no NUL, which a quoted one may hold."""
        key = request.COOKIES.get(settings.SESSION_COOKIE_NAME, "")
        if not (key.isascii() and key.isalnum()):
            request.COOKIES.pop(settings.SESSION_COOKIE_NAME, None)
        super().process_request(request)


class CommonMiddleware(PagesOnly, common.CommonMiddleware):
    """Content-Length and the Host check of pages."""


class CsrfViewMiddleware(PagesOnly, csrf.CsrfViewMiddleware):
    """CSRF protection of forms."""


class AuthenticationMiddleware(PagesOnly, auth.AuthenticationMiddleware):
    """`request.user` for pages."""


class MessageMiddleware(PagesOnly, messages.MessageMiddleware):
    """One-time notices."""


class XFrameOptionsMiddleware(PagesOnly, clickjacking.XFrameOptionsMiddleware):
    """No page of ours in another's frame."""


# Everything from this origin, nothing inline. `data:` pictures are for the admin's style sheets.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'self'",
        "img-src 'self' data:",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)


class ContentSecurityPolicyMiddleware:
    """Tells browsers what a page of ours may load. A view that needs another policy sets its own header."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        if not is_api(request):
            response.headers.setdefault("Content-Security-Policy", CONTENT_SECURITY_POLICY)
        return response


class AdminQuestionsMiddleware:
    """Django's admin takes any column's filter and any row's id from an address, and fails on what no database can be
    asked: a NUL in a text, a number beyond 64 bits. That is a bad request.
    """

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponseBase | None:
        """A 400 for those of the admin; None leaves every other exception as it is."""
        if request.path_info.startswith("/admin/") and isinstance(error, DataError | OverflowError | ValidationError):
            logger.warning("the admin was asked what the database cannot be", exc_info=error)
            return handler400(request, error)
        return None
