"""Calling the upstream of an admitted request, up to the head of a successful answer.

Automatic failover, behind GATEWAY_AUTO_FAILOVER, calls the next one where that fails: never for a pinned or aliased
request.
"""

import math
from collections.abc import Callable, Iterator
from typing import TypeVar

from django.conf import settings

from catalogue import health
from catalogue.routes import Route
from gateway.errors import (
    NOTHING_BILLED,
    AllProvidersFailed,
    ProviderTimeout,
    UnpricedRoute,
    UpstreamFailed,
    UpstreamRefused,
    step,
)

from .admission import Admitted, readmit
from .call import Call
from .dialects.errors import CONTEXT_OVERFLOW, REFUSED, report_of_body
from .failures import failed, refusal_of_status
from .upstream.client import Deadlines, UpstreamCall, first_byte_seconds
from .upstream.faults import BrokenAnswer, Unreachable, UpstreamFault
from .upstream.watch import Client

Served = TypeVar("Served")


def dispatch(admitted: Admitted, call: Call, client: Client, *, comes_at_once: bool = False) -> UpstreamCall:
    """Sends `call`, the admitted one in the upstream's shape, and waits for the head of a successful answer.

    An answer that `comes_at_once` sends no byte before it is complete, however long: it has the overall budget alone.

    Raises the ApiError of an upstream that fails or refuses, ClientLeft and WorkerStopped.
    """
    route = admitted.route
    with step("preparing the upstream request", NOTHING_BILLED):
        request = admitted.dialect.request(call, route)
    deadlines = Deadlines(first_byte_seconds(len(request.body)))
    if comes_at_once:
        deadlines.whole_answer()
    upstream = UpstreamCall(request, deadlines, client)
    del request  # so that its body is freed when it is sent
    attempt = upstream.attempt
    attempt.provider, attempt.route, attempt.model = route.upstream.slug, route.id, route.upstream_model
    admitted.event.attempts.append(attempt)
    if admitted.event.trace is not None:
        upstream.trace_headers = admitted.event.trace.begin_attempt()
    try:
        upstream.open()
        if not 200 <= upstream.status < 300:
            report = report_of_body(upstream.status, _refusal_body(upstream))
            refused = refusal_of_status(report, admitted, retry_after=upstream.headers.get("retry-after", ""))
            health.note(route.upstream.slug, failed=health.is_failure(upstream.status), words=refused.message)
            raise refused
    except UpstreamFault as fault:
        upstream.close()
        raise failed(fault, admitted) from fault
    except BaseException:
        upstream.close()
        raise
    return upstream


def _refusal_body(upstream: UpstreamCall) -> bytes:
    """The body of an answer that is no success. A refusal is one by its status, though its body breaks off."""
    if upstream.status < 400:
        return b""
    try:
        return upstream.read_error()
    except (Unreachable, BrokenAnswer):
        if upstream.status not in REFUSED:
            raise
        return b""


def with_failover(admitted: Admitted, serve: Callable[[Admitted], Served]) -> Served:
    """What `serve` returns for the first candidate that does not fail before its first delivered byte.

    A refusal ends it, since the request would fare no better elsewhere, except for one that is too long for the route:
    then only candidates with a larger context window are left. Raises UpstreamRefused, and AllProvidersFailed when the
    last candidate has failed, worth a retry where one of them is; without failover, the one failure as it is.
    """
    if admitted.resolution.routing_mode != "auto" or not settings.GATEWAY_AUTO_FAILOVER:
        return serve(admitted)
    failures: list[UpstreamFailed | ProviderTimeout] = []
    others, overflowed = iter(admitted.resolution.others), 0.0
    while True:
        last: UpstreamFailed | ProviderTimeout | UpstreamRefused
        try:
            return serve(admitted)
        except UpstreamRefused as error:
            if error.code != CONTEXT_OVERFLOW:
                raise
            last, overflowed = error, max(overflowed, admitted.route.context_length or math.inf)
        except (UpstreamFailed, ProviderTimeout) as error:
            last = error
            failures.append(error)
        following = _next(admitted, others, last.fallback_reason, window_above=overflowed)
        if following is None:
            break
        admitted = following
    if isinstance(last, UpstreamRefused):
        raise last
    raise AllProvidersFailed(
        last.message,
        retry=any(failure.retry for failure in failures),
        providers_attempted=admitted.attempted,
        headers=_shortest_wait(failures),
    ) from last


def _next(admitted: Admitted, others: Iterator[Route], reason: str, *, window_above: float) -> Admitted | None:
    """The same request on the next candidate, all of which can take it; a window that is unknown is not above any."""
    for route in others:
        if window_above and (route.context_length or 0) <= window_above:
            continue
        try:
            return readmit(admitted, route, reason=reason)
        except UnpricedRoute:
            continue  # a change of the catalogue has taken its price or its rate since
    return None


def _shortest_wait(failures: list[UpstreamFailed | ProviderTimeout]) -> dict[str, str]:
    """`Retry-After` where each upstream that may serve again has named one: the soonest of them."""
    waits = [failure.headers.get("Retry-After") for failure in failures if failure.retry]
    named = [int(wait) for wait in waits if wait is not None]
    return {"Retry-After": str(min(named))} if named and len(named) == len(waits) else {}
