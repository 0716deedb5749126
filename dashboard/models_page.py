"""The page on models: what the API lists, searched; for staff also what is not served, and why.

(Not `models.py`, which Django would take for tables.)
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from typing import Any

from django import forms
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from catalogue import health, listing_cache, quota, snapshot
from catalogue.carbon import carbon_per_token
from catalogue.health import Observed
from catalogue.listing import Info, View, listed
from catalogue.models import WITH_ENDPOINT, Modality, Status
from catalogue.pricing import MILLION, rates_between
from catalogue.routes import AUTO, EMBEDDING, Offer, PublishedPricing, Route, Snapshot, is_eu_sovereign

from .access import named_account, signed_in_page

PER_PAGE = 50
AUTO_NAME = "Automatic routing"
JURISDICTIONS = [
    ("", "Anywhere"),
    ("eu-hosted", "EU-hosted"),
    ("eu-sovereign", "EU-sovereign"),
    ("cloud-act-free", "Beyond US legal reach"),
]
MAIN_PRICES = (("Prompt", "prompt"), ("Completion", "completion"))
FURTHER_PRICES = (
    ("Cache read", "cache_read"),
    ("Cache write", "cache_write"),
    ("Cache write, 1 hour", "cache_write_1h"),
    ("Prompt in a batch", "batch_prompt"),
    ("Completion in a batch", "batch_completion"),
)
Served = tuple[Offer, list[Route]]


class ModelsForm(forms.Form):
    """Search and filters; each may be left out. `everything`, what is not served now too, is for staff alone."""

    q = forms.CharField(label="Search", required=False, max_length=200)
    jurisdiction = forms.ChoiceField(required=False, choices=JURISDICTIONS)
    modality = forms.ChoiceField(required=False, choices=[("", "Any"), *Modality.choices])
    provider = forms.ChoiceField(required=False)
    everything = forms.BooleanField(label="Show unavailable models", required=False)

    def __init__(self, data: Mapping[str, Any], providers: Mapping[str, str], *, staff: bool) -> None:
        super().__init__(data, label_suffix="")
        self.fields["q"].widget = forms.TextInput(attrs={"type": "search", "placeholder": "Name, id or provider"})
        choices = [("", "Any"), (AUTO, AUTO_NAME), *providers.items()]
        self.fields["provider"] = forms.ChoiceField(required=False, choices=choices)
        if not staff:
            del self.fields["everything"]

    def within(self, view: View) -> View:
        """The view, narrowed to the jurisdiction and the modality that a valid form asks for."""
        jurisdiction, modality = self.cleaned_data["jurisdiction"], self.cleaned_data["modality"]
        return replace(view, jurisdiction=jurisdiction or None, modality=modality or None)

    def finds(self, provider: str, *texts: str) -> bool:
        """Whether a valid form asks for this provider (a slug or `auto`), and each of its words is in these texts."""
        text = " ".join(texts).lower()
        words = self.cleaned_data["q"].lower().split()
        return self.cleaned_data["provider"] in ("", provider) and all(word in text for word in words)

    @property
    def is_narrowed(self) -> bool:
        """Whether anything is filtered at all."""
        return any(self.cleaned_data[name] for name in ("q", "jurisdiction", "modality", "provider"))


@dataclass(frozen=True, slots=True)
class RegionLine:
    """A route in the list: grams of CO2e per 1,000,000 output tokens (None: unknown), and why it is not served."""

    route: Route
    carbon: Decimal | None
    is_eu_sovereign: bool
    problems: Sequence[str]

    @property
    def currency(self) -> str:
        """Of the prices; empty where none is known."""
        return self.route.published.currency if self.route.published else ""

    @property
    def prompt(self) -> Decimal | None:
        """Price per 1,000,000 tokens; None is unknown."""
        return self.route.published.prompt if self.route.published else None

    @property
    def completion(self) -> Decimal | None:
        """Price per 1,000,000 tokens; None is unknown."""
        return self.route.published.completion if self.route.published else None

    @property
    def completes(self) -> bool:
        """Whether there is anything that a completion price could be for: embeddings have none."""
        return self.route.modality != EMBEDDING or self.completion is not None

    @property
    def further_prices(self) -> Iterator[tuple[str, Decimal]]:
        """What else has a price per 1,000,000 tokens, and the price; last those of longer prompts."""
        published = self.route.published
        if published is not None:
            yield from _stated(published, FURTHER_PRICES)
            for tier in published.tiers:
                for label, price in _stated(tier, MAIN_PRICES + FURTHER_PRICES):
                    yield f"{label}, prompts above {tier.above_prompt_tokens:,} tokens", price


@dataclass(frozen=True, slots=True)
class ModelLine:
    """An offer in the list. `lead` is the region that its id stands for, and that its figures are of."""

    offer: Offer
    id: str
    lead: RegionLine
    regions: Sequence[RegionLine]
    status: Status
    problems: Sequence[str]

    @property
    def is_pinned(self) -> bool:
        """Whether the id names a region because the model's default region is not among those shown."""
        return self.id != self.offer.id

    @property
    def has_endpoint(self) -> bool:
        """Whether any endpoint of the gateway serves models of this kind: a request of others is refused."""
        return self.offer.modality in WITH_ENDPOINT


@dataclass(frozen=True, slots=True)
class AutoLine:
    """An `auto/…` entry. Ranges are (least, most): EUR, and grams of CO2e, per 1,000,000 tokens; None is unknown."""

    info: Info
    context_length: int | None
    prompt: tuple[Decimal, Decimal] | None
    completion: tuple[Decimal, Decimal] | None
    carbon: tuple[Decimal, Decimal] | None


@signed_in_page()
def model_list(request: HttpRequest) -> HttpResponse:
    """Search, filters and pages, all in the address."""
    context = named_account(request)
    catalogue, now = snapshot.current(), timezone.now()
    view = View(now.date(), quota.held(catalogue.with_quota, now.date()))
    everything = request.user.is_staff and "everything" in request.GET
    offers = catalogue.offers.values() if everything else [offer for offer, _ in listed(catalogue, view)]
    names = {offer.upstream.slug: offer.upstream.name for offer in offers}
    providers = dict(sorted(names.items(), key=lambda item: item[1].lower()))
    form = ModelsForm(request.GET, providers, staff=request.user.is_staff)
    if not form.is_valid():
        return render(request, "dashboard/models.html", context | {"form": form}, status=422)
    view = form.within(view)
    served = [
        (offer, routes)
        for offer, routes in (_all if form.cleaned_data.get("everything") else listed)(catalogue, view)
        if form.finds(offer.upstream.slug, offer.id, offer.name, offer.upstream.name, offer.upstream.slug)
    ]
    autos = [
        info for info in listing_cache.autos(catalogue, view) if form.finds(AUTO, info["id"], info["name"], AUTO_NAME)
    ]
    both: list[Served | Info] = [*served, *autos]
    page = Paginator(both, PER_PAGE).get_page(request.GET.get("page"))
    observed = health.observed(now)
    context |= {
        "form": form,
        "page": page,
        "found": {"models": len(served), "autos": len(autos)},
        "lines": [_model_line(catalogue, view, one, observed) for one in page if isinstance(one, tuple)],
        "autos": [_auto_line(one) for one in page if isinstance(one, dict)],
        "is_anything_served": bool(providers),
    }
    return render(request, "dashboard/models.html", context)


def _all(catalogue: Snapshot, view: View) -> Iterator[Served]:
    """As `listed`, with what is not served now."""
    for _, offer in sorted(catalogue.offers.items()):
        if view.modality is None or offer.modality == view.modality:
            routes = [route for route in offer.routes.values() if view.passes(route)]
            if routes:
                yield offer, routes


def _model_line(catalogue: Snapshot, view: View, served: Served, observed: Mapping[str, Observed]) -> ModelLine:
    offer, routes = served
    regions = [_region_line(catalogue, view, route) for route in routes]
    default = next((line for line in regions if line.route.locode == offer.default_locode), None)
    lead = default or regions[0]
    shared = [problem for problem in lead.problems if all(problem in line.problems for line in regions)]
    return ModelLine(
        offer=offer,
        id=offer.id if default else lead.route.id,
        lead=lead,
        regions=regions,
        status=health.status_of(offer.upstream.status_override, observed.get(offer.upstream.slug))[0],
        problems=[*_problems_of_offer(offer, view.today), *shared],
    )


def _region_line(catalogue: Snapshot, view: View, route: Route) -> RegionLine:
    grams = carbon_per_token(route.energy)
    return RegionLine(
        route=route,
        carbon=None if grams is None else grams * MILLION,
        is_eu_sovereign=is_eu_sovereign(route),
        problems=list(_problems_of_route(catalogue, view, route)),
    )


def _auto_line(info: Info) -> AutoLine:
    pricing: Mapping[str, Any] = info["auto_routing"].get("pricing_range", {})
    carbon: Mapping[str, Any] = info["auto_routing"].get("carbon_range", {})
    return AutoLine(
        info=info,
        context_length=info.get("context_length"),
        prompt=_range(pricing.get("prompt_per_1m_tokens")),
        completion=_range(pricing.get("completion_per_1m_tokens")),
        carbon=_range(carbon.get("carbon_per_token_gco2e"), times=MILLION),
    )


def _problems_of_offer(offer: Offer, today: date) -> Iterator[str]:
    if not offer.upstream.configured:
        yield "not configured"
    if offer.state == "disabled":
        yield "disabled"
    elif offer.is_disabled(today):
        yield f"retired after {offer.retires_on:%Y-%m-%d}"
    if offer.state == "unavailable":
        yield f"unavailable: {offer.unavailable_reason}" if offer.unavailable_reason else "unavailable"


def _problems_of_route(catalogue: Snapshot, view: View, route: Route) -> Iterator[str]:
    if not route.is_served:
        yield "disabled"
    if route.region_id in view.held:
        yield "held until midnight UTC"
    if route.price is None:
        yield "no price"
    elif rates_between(route.price.currency, "EUR", catalogue.units_per_eur) is None:
        yield f"no exchange rate for {route.price.currency}"


def _stated(published: PublishedPricing, names: Iterable[tuple[str, str]]) -> Iterator[tuple[str, Decimal]]:
    for label, name in names:
        price: Decimal | None = getattr(published, name)
        if price is not None:
            yield label, price


def _range(info: Mapping[str, float] | None, times: Decimal = Decimal(1)) -> tuple[Decimal, Decimal] | None:
    return None if info is None else (Decimal(str(info["min"])) * times, Decimal(str(info["max"])) * times)
