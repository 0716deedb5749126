"""Answers `GET /v1/models`, `/v1/models/{model}` and `/v1/providers`."""

from dataclasses import replace
from datetime import date
from typing import Any

from django.conf import settings
from django.http import HttpResponse, HttpResponseNotModified
from django.utils import timezone
from django.utils.http import parse_etags
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.keys import KeyAuthentication, caller_of_request
from accounts.policies import policies_of_key
from gateway.edge.control_view import ControlView
from gateway.edge.responses import ANTHROPIC_VERSION
from gateway.edge.strict_fields import ChoiceField
from gateway.edge.tables import PatternField
from gateway.errors import ApiError, NotFound

from . import anthropic_models, listing
from .listing import Info, View, auto_info, is_allowed, model_info, providers, servable
from .models import Modality, Transfer
from .routing import health, nearest, quota, snapshot
from .routing.model_ids import AliasId, AutoId, ExplicitId, parse_model_id
from .routing.routes import JURISDICTIONS, Snapshot


class SwitchField(ChoiceField):
    """Accepts `true` or `false`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(["true", "false"], **options)

    def to_internal_value(self, data: Any) -> bool:
        return bool(super().to_internal_value(data) == "true")


class ProvidersQuery(serializers.Serializer[Any]):
    """Reads the filters on routes. Each may be absent, but not empty."""

    jurisdiction = ChoiceField(sorted(JURISDICTIONS), required=False)
    zero_data_retention = SwitchField(required=False)
    storage = PatternField("[A-Z]{2}", "EU or a country code of two capital letters.", required=False)
    transfer = ChoiceField(Transfer.values, required=False)
    confidential = SwitchField(required=False)


class ModelsQuery(ProvidersQuery):
    """Reads the filters on routes, the one by modality, and whether to show what policies do not allow."""

    modality = ChoiceField(Modality.values, required=False)
    all = SwitchField(required=False)


class Models(ControlView):
    """Lists the models that can be served now."""

    doing = "listing the models"
    authentication_classes = (KeyAuthentication,)

    def get(self, request: Request) -> HttpResponse | Response:
        # The body is prepared once for each catalogue version and filter.
        catalogue = snapshot.current()
        query = ModelsQuery(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        view = _with_policies(View(*_now(catalogue), **query.validated_data), request)
        if ANTHROPIC_VERSION in request.META:
            return Response(anthropic_models.page(catalogue, view, request.query_params.dict()))
        found = listing.models(catalogue, view)
        headers = {
            "ETag": found.etag,
            "Cache-Control": "private, no-cache",
            "Content-Length": str(len(found.body)),  # also on a 304, which does not send the body
        }
        # Compares weakly, because proxies that compress turn a strong validator into a weak one.
        known = [etag.removeprefix("W/") for etag in parse_etags(request.headers.get("If-None-Match", ""))]
        if "*" in known or found.etag in known:
            return HttpResponseNotModified(headers=headers)
        return HttpResponse(found.body, content_type="application/json", headers=headers)


class Model(ControlView):
    """Shows one model by its id, which contains slashes."""

    doing = "reading the model"
    authentication_classes = (KeyAuthentication,)

    def get(self, request: Request, model_id: str) -> Response:
        # Answers 404 for any id that is not listed, also for a malformed one.
        try:
            wanted = parse_model_id(model_id)
        except ApiError as error:
            raise NotFound(f"The catalogue lists no such model: {error.message}", param="model") from None
        catalogue = snapshot.current()
        found = _found(catalogue, wanted, _with_policies(View(*_now(catalogue)), request))
        if found is None:
            words = nearest.suggestion(catalogue, model_id)
            raise NotFound(f"The catalogue lists no such model. {words}", param="model")
        return Response(anthropic_models.entry(found) if ANTHROPIC_VERSION in request.META else found)


class Providers(ControlView):
    """Lists the configured providers."""

    doing = "listing the providers"

    def get(self, request: Request) -> Response:
        catalogue = snapshot.current()
        query = ProvidersQuery(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        view = View(*_now(catalogue), **query.validated_data)
        counts = health.counts_by_provider(timezone.now())

        def status_of(slug: str, override: str) -> str:
            return health.status_of(override, counts.get(slug))[0]

        return Response({"object": "list", "data": providers(catalogue, view, status_of)})


def _found(catalogue: Snapshot, wanted: ExplicitId | AutoId | AliasId, view: View) -> Info | None:
    match wanted:
        case AutoId():
            return auto_info(catalogue, wanted.canonical_id, view, settings.GATEWAY_AUTO_OBJECTIVE)
        case ExplicitId():
            offer = catalogue.offers.get((wanted.provider, wanted.canonical_id))
            routes = [] if offer is None else servable(offer, view)
            routes = [route for route in routes if wanted.locode in (None, route.locode)]
            routes = [route for route in routes if is_allowed(catalogue, view, route)]
            return model_info(catalogue, view, offer, routes) if offer is not None and routes else None
        case _:
            return None


def _with_policies(view: View, request: Request) -> View:
    """Returns the view with the policies of the caller's key, and the currency in which they state prices."""
    caller = caller_of_request(request)
    return replace(view, policies=policies_of_key(caller.key_id), currency=caller.currency)


def _now(catalogue: Snapshot) -> tuple[date, frozenset[int]]:
    """Returns today (UTC), and the region ids whose quota is used up; reads the counters each time."""
    today = timezone.now().date()
    return today, quota.held(catalogue.with_quota, today)
