"""Answers the probes of load balancers.

`/livez` is 200 whenever a worker answers; `/readyz` is 503 if requests should go to another replica. Neither uses a
database connection.
"""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse, JsonResponse

from ..server.hooks import worker_hooks

LIVE_PATHS = ("livez", "healthz", "health")
READY_PATH = "readyz"
_PATHS = frozenset(f"/{path}" for path in (*LIVE_PATHS, READY_PATH))

needs: list[Callable[[], str | None]] = []  # added by apps; each returns at once what is wrong now, or None


def is_probe(request: HttpRequest) -> bool:
    """Tells whether the path is a probe's. Probes are answered for any Host."""
    return request.path_info in _PATHS


def live(_request: HttpRequest) -> HttpResponse:
    """Answers 200."""
    return JsonResponse({"status": "ok"})


def ready(_request: HttpRequest) -> HttpResponse:
    """Answers 200, or 503 with the reasons."""
    reasons = [reason for need in needs if (reason := need()) is not None]
    if worker_hooks.is_draining():
        reasons.insert(0, "This worker is stopping.")
    if reasons:
        response = JsonResponse({"status": "not ready", "reasons": reasons}, status=503)
        response._has_been_logged = True  # type: ignore[attr-defined]  # Django would log each probe
        return response
    return JsonResponse({"status": "ready"})
