"""The dashboard's page on models: for whoever is signed in, the catalogue as the API lists it."""

from collections.abc import Callable

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from accounts.pages import member_page, named_place, person_of

from . import browse, health, quota, snapshot
from .forms import BrowseForm
from .listing import Info, View
from .models import Status

PER_PAGE = 50


@member_page()
def models(request: HttpRequest) -> HttpResponse:
    """Search, filters and pages, all in the address. Staff may ask for what is not served too."""
    place = named_place(request)
    catalogue = snapshot.current()
    today = timezone.now().date()
    unfiltered = View(today, quota.held(catalogue.with_quota, today))
    staff = person_of(request).is_staff
    providers = browse.providers(catalogue, unfiltered, everything=staff and "everything" in request.GET)
    form = BrowseForm(request.GET, providers, staff=staff)
    if not form.is_valid():
        return render(request, "catalogue/models.html", place | {"form": form}, status=422)
    view = form.within(unfiltered)
    served = browse.find_models(catalogue, view, form.search)
    autos = browse.find_autos(catalogue, view, form.search)
    found: list[browse.Served | Info] = [*served, *autos]
    page = Paginator(found, PER_PAGE).get_page(request.GET.get("page"))
    status_of = _statuses()
    context = {
        "form": form,
        "page": page,
        "found": {"models": len(served), "autos": len(autos)},
        "lines": [browse.model_line(catalogue, view, one, status_of) for one in page if isinstance(one, tuple)],
        "autos": [browse.auto_line(one) for one in page if isinstance(one, dict)],
        "is_anything_served": bool(providers),
    }
    return render(request, "catalogue/models.html", place | context)


def _statuses() -> Callable[[str, str], Status]:
    observed = health.observed(timezone.now())
    return lambda slug, override: health.status_of(override, observed.get(slug))[0]
