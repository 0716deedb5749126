"""Routes the inference endpoints, under `/v1` and `/api/v1`, with and without a trailing slash."""

from django.urls import re_path

from .api import BELOW, ENDPOINTS, view

urlpatterns = [
    *(re_path(f"^{path}/?$", view(endpoint)) for path, endpoint in ENDPOINTS.items()),
    *(re_path(f"^{path}/(?P<id>.+)", view(endpoint)) for path, endpoint in BELOW.items()),
]
