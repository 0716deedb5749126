"""Which requests are the HTTP API's, and answered in its envelope whatever happens."""

from django.http import HttpRequest

PREFIXES = ("/v1/", "/api/v1/")


def is_api(request: HttpRequest) -> bool:
    """Whether the path belongs to the HTTP API (`/v1` and its older name `/api/v1`)."""
    return request.path_info.startswith(PREFIXES)
