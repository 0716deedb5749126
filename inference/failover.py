"""Automatic failover, behind GATEWAY_AUTO_FAILOVER: never for a pinned or aliased request."""

import math
from collections.abc import Callable, Iterator
from typing import TypeVar

from django.conf import settings

from catalogue.routes import Route
from gateway.errors import (
    AllProvidersFailed,
    ProviderTimeout,
    UnpricedRoute,
    UpstreamFailed,
    UpstreamRefused,
)

from .admitting import readmit
from .dialects.errors import CONTEXT_OVERFLOW
from .modality import Side
from .records import Admission

Served = TypeVar("Served")


def with_failover(admission: Admission, side: Side, serve: Callable[[Admission, Side], Served]) -> Served:
    """What `serve` returns for the first candidate that does not fail before its first delivered byte.

    A refusal ends it, since the request would fare no better elsewhere, except for one that is too long for the route:
    then only candidates with a larger context window are left. Raises UpstreamRefused, and AllProvidersFailed when the
    last candidate has failed, worth a retry where one of them is; without failover, the one failure as it is.
    """
    if admission.resolution.routing_mode != "auto" or not settings.GATEWAY_AUTO_FAILOVER:
        return serve(admission, side)
    failures: list[UpstreamFailed | ProviderTimeout] = []
    others, overflowed = iter(admission.resolution.others), 0.0
    while True:
        last: UpstreamFailed | ProviderTimeout | UpstreamRefused
        try:
            return serve(admission, side)
        except UpstreamRefused as error:
            if error.code != CONTEXT_OVERFLOW:
                raise
            last, overflowed = error, max(overflowed, admission.route.context_length or math.inf)
        except (UpstreamFailed, ProviderTimeout) as error:
            last = error
            failures.append(error)
        following = _next(admission, others, last.fallback_reason, window_above=overflowed)
        if following is None:
            break
        admission, side = following
    if isinstance(last, UpstreamRefused):
        raise last
    raise AllProvidersFailed(
        last.message,
        retry=any(failure.retry for failure in failures),
        providers_attempted=admission.attempted,
        headers=_shortest_wait(failures),
    ) from last


def _next(
    admission: Admission, others: Iterator[Route], reason: str, *, window_above: float
) -> tuple[Admission, Side] | None:
    """The same request on the next candidate, all of which can take it; a window that is unknown is not above any."""
    for route in others:
        if window_above and (route.context_length or 0) <= window_above:
            continue
        try:
            return readmit(admission, route, reason=reason)
        except UnpricedRoute:
            continue  # a change of the catalogue has taken its price or its rate since
    return None


def _shortest_wait(failures: list[UpstreamFailed | ProviderTimeout]) -> dict[str, str]:
    """`Retry-After` where each upstream that may serve again has named one: the soonest of them."""
    waits = [failure.headers.get("Retry-After") for failure in failures if failure.retry]
    named = [int(wait) for wait in waits if wait is not None]
    return {"Retry-After": str(min(named))} if named and len(named) == len(waits) else {}
