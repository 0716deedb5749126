"""The limit of one client address on the API (GATEWAY_IP_RATE), the first check (docs/api.md#order-of-checks)."""

from django.conf import settings
from django.core.exceptions import MiddlewareNotUsed
from django.http import HttpRequest, HttpResponseBase
from django_ratelimit.core import get_usage

from .api_paths import is_api
from .client_address import client_network
from .errors import TooManyRequests
from .exception_handler import render
from .middleware import GetResponse


class IpLimitMiddleware:
    """Refuses a client's requests beyond the rate with 429, before anything else is looked at."""

    def __init__(self, get_response: GetResponse) -> None:
        if settings.GATEWAY_IP_RATE is None:
            raise MiddlewareNotUsed
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if is_api(request):
            usage = get_usage(
                request,
                group="api",
                key=lambda _group, request: client_network(request.META),
                rate=settings.GATEWAY_IP_RATE,
                increment=True,
            )
            if usage["should_limit"]:
                return render(_refusal(usage["time_left"]))
        return self.get_response(request)


def _refusal(seconds_left: int) -> TooManyRequests:
    wait = max(1, seconds_left)
    return TooManyRequests(
        f"Too many requests from this address ({settings.GATEWAY_IP_RATE}). Try again in {wait} seconds.",
        headers={"Retry-After": str(wait)},
    )
