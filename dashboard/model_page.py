"""The page of one canonical model: its routes beside each other, how to call them, and how their prices changed."""

from collections.abc import Iterable

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from billing.models import Generation
from billing.usage.request_failures import RequestFailure
from billing.usage.statistics import By, Days, Scope, Totals, breakdown
from catalogue import price_history
from catalogue.listing import View, auto_info, servable
from catalogue.models import Modality
from catalogue.routing import health, quota, snapshot

from .access import account_if_any, signed_in_page
from .models_page import SORTS, WITHOUT_ACCOUNT, models_of
from .route_lines import lines_of, price_label

OWN_DAYS = 30
MOST_CHANGES = 50


def listed_models(requests: Iterable[Generation | RequestFailure]) -> set[str]:
    """The canonical ids of their models that have a page now; none while the catalogue is not loaded."""
    if not snapshot.is_loaded():
        return set()
    catalogue, today = snapshot.current(), timezone.now().date()
    view = View(today, quota.held(catalogue.with_quota, today))
    wanted = {request.model for request in requests} & catalogue.by_canonical_id.keys()
    return {id_ for id_ in wanted if any(servable(offer, view) for offer in catalogue.by_canonical_id[id_])}


@signed_in_page()
def model_detail(request: HttpRequest, canonical_id: str) -> HttpResponse:
    """Those routes that the account may be served over now; staff see the others too, where they ask for everything."""
    current = account_if_any(request)
    catalogue, now = snapshot.current(), timezone.now()
    view = View(now.date(), quota.held(catalogue.with_quota, now.date()))
    everything = request.user.is_staff and "everything" in request.GET
    routes = [
        (offer, route)
        for offer in catalogue.by_canonical_id.get(canonical_id, ())
        for route in (offer.routes.values() if everything else servable(offer, view))
    ]
    sort = request.GET.get("sort", "")
    if not routes or sort not in ("", *SORTS):
        raise Http404
    currency = current.account.currency if current else WITHOUT_ACCOUNT
    auto = auto_info(catalogue, canonical_id, view, settings.GATEWAY_AUTO_OBJECTIVE)
    lines = lines_of(routes, catalogue, view, currency, health.observed(now))
    [model] = models_of(lines, [] if auto is None else [auto], sort)
    choices = {line.route.id: line.offer.modality for line in model.routes if line.has_endpoint}
    if auto is not None:
        choices = {auto["id"]: auto.get("modality", Modality.CHAT), **choices}
    chosen = request.GET.get("route", next(iter(choices), ""))
    if chosen not in (*choices, ""):
        raise Http404
    own = {}
    if current:
        days = Days.until(now, OWN_DAYS)
        for row in breakdown(Scope(current.account.pk, model=canonical_id), days, By.PROVIDER, By.REGION):
            own[row.provider, row.region] = row.totals
    ids = [line.route.id for line in model.routes]
    context = {
        "model": model,
        "routes": [(line, own.get((line.offer.upstream.slug, line.route.locode), Totals())) for line in model.routes],
        "currency": currency,
        "rates": sorted({(line.own_currency, line.rate) for line in model.routes if line.is_converted}),
        "sort": sort,
        "choices": choices,
        "chosen": chosen,
        "chosen_modality": choices.get(chosen),
        "is_cost_first": settings.GATEWAY_AUTO_OBJECTIVE == "cost",
        "changes": [(price_label(change.field), change) for change in price_history.changes_of(ids, MOST_CHANGES)],
        "recorded_since": price_history.recorded_since(ids),
        "public_url": settings.PUBLIC_URL,
    }
    return render(request, "dashboard/model.html", (current.template_context if current else {}) | context)
