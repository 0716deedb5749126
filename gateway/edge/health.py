"""Probes: is this worker up, may it get requests? For orchestrators, load balancers and `make run`.

`/livez`, and `/healthz` and `/health` for those who look there, are 200 whenever a worker answers: it does not accept
before its start hooks have succeeded. They ask nothing of the database, so that one that is away ends no worker.

`/readyz` is 503 where requests should go elsewhere. It looks at what the worker's beat has found, so that it waits for
nothing and takes no connection.
"""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse, JsonResponse

from ..server.hooks import worker_hooks

LIVE_PATHS = ("livez", "healthz", "health")
READY_PATH = "readyz"
_PATHS = frozenset(f"/{path}" for path in (*LIVE_PATHS, READY_PATH))

needs: list[Callable[[], str | None]] = []  # of apps: what is wrong now, in words. They return at once


def is_probe(request: HttpRequest) -> bool:
    """Whether this asks for nothing but that: whatever Host a probe names, such as its pod's address."""
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
