"""Automatic failover, behind GATEWAY_AUTO_FAILOVER (contract decision 3): never for a pinned or aliased request."""

from collections.abc import Callable
from typing import TypeVar

from django.conf import settings

from gateway.errors import AllProvidersFailed, InvalidRequest, ProviderTimeout, UnpricedRoute, UpstreamFailed

from .admitting import readmit
from .modality import Side
from .records import Admission

Served = TypeVar("Served")


def with_failover(admission: Admission, side: Side, serve: Callable[[Admission, Side], Served]) -> Served:
    """What `serve` returns for the first candidate that does not fail before its first delivered byte.

    Raises AllProvidersFailed when each has, worth a retry where one of them is; without failover, the one failure as it
    is.
    """
    try:
        return serve(admission, side)
    except (UpstreamFailed, ProviderTimeout) as error:
        if admission.resolution.routing_mode != "auto" or not settings.GATEWAY_AUTO_FAILOVER:
            raise
        last, is_futile = error, not error.retry
    for route in admission.resolution.others:
        try:
            admission, side = readmit(admission, route, reason=last.fallback_reason)
        except (InvalidRequest, UnpricedRoute):
            continue  # the request is in order, the first candidate took it: this one cannot, and is passed by
        try:
            return serve(admission, side)
        except (UpstreamFailed, ProviderTimeout) as error:
            last, is_futile = error, is_futile and not error.retry
    raise AllProvidersFailed(last.message, retry=not is_futile, providers_attempted=admission.attempted) from last
