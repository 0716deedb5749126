"""`GET /v1/generations`, `/v1/generation/{id}` and `/v1/metrics/{id}`: what was served, from its records."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.authentication import caller_behind
from gateway.control_view import ControlView
from gateway.fields import LimitField, MomentField, TextField

from . import generations
from .models import Generation
from .representations import metrics_of, record_of, stats_of


class GenerationsQuery(serializers.Serializer[Any]):
    """`since` and `until` are inclusive; `after` is the `next_cursor` of the page before."""

    since = MomentField(required=False, round_up=True)
    until = MomentField(required=False)
    limit = LimitField(maximum=1000, default=100)
    after = TextField(required=False)


class Generations(ControlView):
    """The calling key's records."""

    doing = "listing the generations"

    def get(self, request: Request) -> Response:
        """`{object: list, data: [GenerationRecord], next_cursor?}`, newest first."""
        # As a plain dict: DRF takes an empty field of a form for an absent one, and `since=` is a mistake.
        query = GenerationsQuery(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        asked = query.validated_data
        listing = generations.Listing(caller_behind(request).key_id, asked.get("since"), asked.get("until"))
        page = generations.page(listing, limit=asked["limit"], after=asked.get("after"))
        body = {"object": "list", "data": [record_of(record) for record in page.rows]}
        if page.older is not None:
            body["next_cursor"] = page.older
        return Response(body)


class Statistics(ControlView):
    """One record of the account, in full."""

    doing = "reading the generation"

    def get(self, request: Request, generation_id: str) -> Response:
        """GenerationStats."""
        return Response(stats_of(_wanted(request, generation_id)))


class Metrics(ControlView):
    """The tokens and the footprint of one record of the account."""

    doing = "reading the generation's metrics"

    def get(self, request: Request, generation_id: str) -> Response:
        """GenerationMetricsResponse."""
        return Response(metrics_of(_wanted(request, generation_id)))


def _wanted(request: Request, generation_id: str) -> Generation:
    return generations.of_account(caller_behind(request).account_id, generation_id)
