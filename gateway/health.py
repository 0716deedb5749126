"""`GET /healthz`: this worker is up and has loaded what it needs to route; for load balancers and `make run`."""

from django.http import HttpRequest, HttpResponse, JsonResponse

PATH = "healthz"


def is_probe(request: HttpRequest) -> bool:
    """Whether this asks for nothing but that: whatever Host a probe names, such as its pod's address."""
    return request.path_info == f"/{PATH}"


def healthz(_request: HttpRequest) -> HttpResponse:
    """200 whenever a worker answers: it does not accept before its start hooks have succeeded.

    It asks nothing of the database, so that a database that is away takes no worker out of rotation.
    """
    return JsonResponse({"status": "ok"})
