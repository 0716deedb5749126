"""Probes.

`/livez` is 200 whenever a worker answers; `/readyz` is 503 where requests should go elsewhere. Neither takes a
connection.
"""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse, JsonResponse

from ..server.hooks import worker_hooks

LIVE_PATHS = ("livez", "healthz", "health")
READY_PATH = "readyz"
_PATHS = frozenset(f"/{path}" for path in (*LIVE_PATHS, READY_PATH))

needs: list[Callable[[], str | None]] = []  # of apps: what is wrong now, in words. They return at once


def is_probe(request: HttpRequest) -> bool:
    """True for a probe, whatever its Host."""
    return request.path_info in _PATHS


def live(_request: HttpRequest) -> HttpResponse:
    """200, since a worker answers."""
    return JsonResponse({"status": "ok"})


def ready(_request: HttpRequest) -> HttpResponse:
    """200, or 503 with the reasons."""
    reasons = [reason for need in needs if (reason := need()) is not None]
    if worker_hooks.is_draining():
        reasons.insert(0, "This worker is stopping.")
    if reasons:
        response = JsonResponse({"status": "not ready", "reasons": reasons}, status=503)
        response._has_been_logged = True  # type: ignore[attr-defined]  # a probe a second would fill Django's log
        return response
    return JsonResponse({"status": "ready"})
