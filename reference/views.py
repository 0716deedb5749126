"""`/v1/openapi.json`, for who has no key yet too."""

import hashlib
from functools import cache

from django.http import HttpResponse, HttpResponseNotModified
from django.utils.http import parse_etags
from rest_framework.request import Request

from gateway.edge.control_view import ControlView

from .openapi import document_json

AN_HOUR = "public, max-age=3600"


class OpenApi(ControlView):
    """The description of the API."""

    doing = "describing the API"
    authentication_classes = ()
    permission_classes = ()

    def get(self, request: Request) -> HttpResponse:
        """OpenAPI 3.1 in JSON."""
        headers = {"ETag": _etag(), "Cache-Control": AN_HOUR, "Access-Control-Allow-Origin": "*"}
        if _etag() in [tag.removeprefix("W/") for tag in parse_etags(request.headers.get("If-None-Match", ""))]:
            return HttpResponseNotModified(headers=headers)
        return HttpResponse(document_json(), content_type="application/json", headers=headers)


@cache
def _etag() -> str:
    return f'"{hashlib.sha256(document_json()).hexdigest()[:32]}"'
