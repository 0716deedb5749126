"""Shows the pages on models: the list, one model, and routes side by side. Staff also see what is not served."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, TypeVar
from urllib.parse import urlencode
from uuid import UUID

from django import forms
from django.conf import settings
from django.core.paginator import Paginator
from django.core.validators import RegexValidator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone

from accounts.models import ApiKey
from accounts.policies import policies_of_key
from billing.usage.percentiles import read_times
from billing.usage.route_hours import figures_of
from billing.usage.statistics import Days, GroupColumn, Scope
from billing.usage.times import Times
from catalogue import listing, price_history
from catalogue.listing import Info, View, auto_info, is_allowed, servable, served_now
from catalogue.models import Modality
from catalogue.routing import health, quota, snapshot
from catalogue.routing.model_ids import AUTO
from catalogue.routing.routes import EU, Offer, Route, Snapshot
from gateway.server.turns import take_turns

from .parts.access import AccountContext, account_context_if_any, signed_in_page
from .parts.comparison import differing_facts
from .parts.policy_words import JURISDICTIONS, TRANSFERS
from .parts.routes import RouteLine, ShownPrice, lines_of, price_label

PER_PAGE = 50
OWN_DAYS = 30
MOST_CHANGES = 50
MOST_KEYS = 500
FEWEST_COMPARED, MOST_COMPARED = 2, 4
LONGEST_SHOWN = 100  # characters of an unknown id
MOST_PRICE, MOST_DAYS = 1_000_000, 100_000
MOST_LISTED = 20  # routes that a refused comparison names
AUTO_NAME = "Automatic routing"
WITHOUT_ACCOUNT = "EUR"  # the currency of prices for people without an account
# The sort keys of models and of their routes, lowest first; None is unknown and comes last.
Measure = Callable[[RouteLine], Decimal | int | None]
STORAGE = [("", "Anywhere"), (EU, "In the EU only")]
SORTS: dict[str, Measure] = {
    "context": lambda line: line.offer.context_length and -line.offer.context_length,
    "prompt": lambda line: _amount(line.comparable(line.prompt)),
    "completion": lambda line: _amount(line.comparable(line.completion)),
    "carbon": lambda line: line.carbon,
}
ROUTE_SORTS: dict[str, Measure] = SORTS | {
    "first-token": lambda line: line.speed.first_token.value,
    "speed": lambda line: _negative(line.speed.tokens_per_second.value),
    "success": lambda line: _negative(line.speed.success.value),
}
PLACE = RegexValidator(
    r"^(?:[A-Za-z]{2}(?:[A-Za-z0-9]{3})?|global)\Z", "Not a country such as FR, a region such as FRPAR, or global."
)
T = TypeVar("T")


class ModelsForm(forms.Form):
    """Reads the search and the filters; only staff have `everything`."""

    q = forms.CharField(label="Search", required=False, max_length=200)
    jurisdiction = forms.ChoiceField(required=False, choices=[("", "Anywhere"), *JURISDICTIONS.items()])
    modality = forms.ChoiceField(required=False, choices=[("", "Any"), *Modality.choices])
    provider = forms.ChoiceField(required=False)
    storage = forms.ChoiceField(label="Data is kept", required=False, choices=STORAGE)
    transfer = forms.ChoiceField(label="Data transfer", required=False, choices=[("", "Any"), *TRANSFERS.items()])
    place = forms.CharField(
        label="Country or region",
        required=False,
        validators=[PLACE],
        widget=forms.TextInput(attrs={"placeholder": "FR or FRPAR", "autocapitalize": "characters"}),
    )
    prompt = forms.DecimalField(required=False, min_value=0, max_value=MOST_PRICE)
    completion = forms.DecimalField(required=False, min_value=0, max_value=MOST_PRICE)
    context = forms.IntegerField(label="Min context", required=False, min_value=1, max_value=10**9)
    retention_days = forms.IntegerField(label="Max retention, days", required=False, min_value=0, max_value=MOST_DAYS)
    tools = forms.BooleanField(label="Function calling", required=False)
    images = forms.BooleanField(label="Image input", required=False)
    zero_data_retention = forms.BooleanField(label="No prompts or answers are kept", required=False)
    confidential = forms.BooleanField(label="Confidential computing", required=False)
    everything = forms.BooleanField(label="Show unavailable models", required=False)
    key = forms.ChoiceField(label="May be used by", required=False)
    sort = forms.ChoiceField(
        required=False, widget=forms.HiddenInput, choices=[("", ""), *((name, name) for name in SORTS)]
    )

    def __init__(
        self,
        data: Mapping[str, Any],
        providers: Mapping[str, str],
        keys: Mapping[str, str],
        *,
        currency: str,
        staff: bool,
    ) -> None:
        super().__init__(data, label_suffix="")
        self.fields["q"].widget = forms.TextInput(attrs={"type": "search", "placeholder": "Name, id or provider"})
        self.fields["prompt"].label = f"Max prompt, {currency}/1M"
        self.fields["completion"].label = f"Max completion, {currency}/1M"
        choices = [("", "Any"), (AUTO, AUTO_NAME), *providers.items()]
        self.fields["provider"] = forms.ChoiceField(required=False, choices=choices)
        self.fields["key"].choices = [("", "Any key"), *keys.items()]  # type: ignore[attr-defined]
        if not keys:
            del self.fields["key"]
        if not staff:
            del self.fields["everything"]

    def within(self, view: View) -> View:
        chosen = self.cleaned_data
        return replace(
            view,
            jurisdiction=chosen["jurisdiction"] or None,
            modality=chosen["modality"] or None,
            zero_data_retention=chosen["zero_data_retention"],
            storage=chosen["storage"] or None,
            transfer=chosen["transfer"] or None,
            confidential=chosen["confidential"],
            policies=policies_of_key(UUID(chosen["key"])) if chosen.get("key") else (),
        )

    def admits(self, line: RouteLine) -> bool:
        """Tells whether the route passes the filters that the API's list does not have. What is unknown passes none."""
        chosen, offer, route = self.cleaned_data, line.offer, line.route
        country = route.place.country if route.place else ""
        retention = None if offer.retention is None else offer.retention.value
        prices = (("prompt", line.prompt, True), ("completion", line.completion, line.completes))
        return (
            chosen["place"].upper() in ("", country, route.locode.upper())
            and (not chosen["tools"] or offer.function_calling is True)
            and (not chosen["images"] or offer.image_input is True)
            and _is_within(-(chosen["context"] or 0) or None, offer.context_length and -offer.context_length)
            and _is_within(chosen["retention_days"], retention)
            and all(
                _is_within(chosen[name], _amount(line.comparable(price)))
                for name, price, has_price in prices
                if has_price
            )
        )

    def finds(self, offer: Offer, route: Route) -> bool:
        """Tells whether the provider is the chosen one, if any, and each word is in the route's names or ids."""
        place = route.place.name if route.place else ""
        words = (offer.name, offer.upstream.name, place, route.id, f"{AUTO}/{offer.canonical_id}")
        text = " ".join(words).lower()
        return self.cleaned_data["provider"] in ("", AUTO, offer.upstream.slug) and all(
            word in text for word in self.cleaned_data["q"].lower().split()
        )

    @property
    def is_narrowed(self) -> bool:
        return any(
            value not in (None, "") and value is not False
            for name, value in self.cleaned_data.items()
            if name not in ("everything", "sort")
        )


@dataclass(frozen=True, slots=True)
class ModelLine:
    """Holds a canonical model, its `auto/…` entry, and the routes that are shown, at least one."""

    canonical_id: str
    auto: Info | None
    routes: Sequence[RouteLine]

    @property
    def name(self) -> str:
        return self.routes[0].offer.name

    @property
    def id(self) -> str | None:
        """Returns the id for requests: of automatic routing, or else of the only route; None if there is neither."""
        if self.auto is not None:
            return f"{AUTO}/{self.canonical_id}"
        return self.routes[0].route.id if len(self.routes) == 1 and self.has_endpoint else None

    @property
    def has_endpoint(self) -> bool:
        return any(line.has_endpoint for line in self.routes)

    @property
    def modalities(self) -> list[str]:
        return sorted({line.offer.modality or "" for line in self.routes})

    @property
    def providers(self) -> int:
        return len({line.offer.upstream.slug for line in self.routes})

    @property
    def eu_sovereign(self) -> int:
        return sum(line.is_eu_sovereign for line in self.routes)

    @property
    def is_in_us_reach(self) -> bool:
        return all(line.offer.upstream.us_legal_reach for line in self.routes)

    @property
    def problems(self) -> list[str]:
        """Returns the problems that all routes have."""
        return [one for one in self.routes[0].problems if all(one in line.problems for line in self.routes)]

    @property
    def context_length(self) -> tuple[int, int] | None:
        """Returns the smallest and the largest known value, as do the properties below."""
        return _range((line.offer.context_length for line in self.routes), key=int)

    @property
    def prompt(self) -> tuple[ShownPrice, ShownPrice] | None:
        return _range((line.comparable(line.prompt) for line in self.routes), key=_amount)

    @property
    def completion(self) -> tuple[ShownPrice, ShownPrice] | None:
        return _range((line.comparable(line.completion) for line in self.routes), key=_amount)

    @property
    def completes(self) -> bool:
        return any(line.completes for line in self.routes)

    @property
    def carbon(self) -> tuple[Decimal, Decimal] | None:
        """Returns gCO2e per 1,000,000 output tokens."""
        return _range((line.carbon for line in self.routes), key=Decimal)


@signed_in_page()
def model_list(request: HttpRequest) -> HttpResponse:
    """Lists models with search, filters, order and pages."""
    current = account_context_if_any(request)
    context = current.template_context if current else {}
    catalogue, now = snapshot.current(), timezone.now()
    view = View(now.date(), quota.held(catalogue.with_quota, now.date()))
    everything = request.user.is_staff and "everything" in request.GET
    shown = []
    for offer in catalogue.offers.values():
        take_turns()
        shown += [(offer, route) for route in (offer.routes.values() if everything else servable(offer, view))]
    names = {offer.upstream.slug: offer.upstream.name for offer, _ in shown}
    currency = current.account.currency if current else WITHOUT_ACCOUNT
    form = ModelsForm(
        request.GET,
        dict(sorted(names.items(), key=lambda item: item[1].lower())),
        _key_names(current),
        currency=currency,
        staff=request.user.is_staff,
    )
    context |= {"form": form, "currency": currency, "kept": _kept(request), "cleared": _kept(request)}
    if not form.is_valid():
        return render(request, "dashboard/models.html", context, status=422)
    view = replace(form.within(view), currency=currency)
    found = []
    for offer, route in shown:
        take_turns()
        is_chosen = view.passes(route) and view.modality in (None, offer.modality)
        if is_chosen and is_allowed(catalogue, view, route):
            found.append((offer, route))
    lines = list(lines_of(found, catalogue, view, currency, health.recent_calls(now)))
    # As in the API's list, automatic routing is left out if it may choose a route that does not pass.
    mixed = {line.offer.canonical_id for line in lines if not form.admits(line)}
    lines = [line for line in lines if form.admits(line) and form.finds(line.offer, line.route)]
    provider, sort = form.cleaned_data["provider"], form.cleaned_data["sort"]
    # A filter by provider leaves out automatic routing, which may choose other providers.
    autos = listing.autos(catalogue, view) if provider in ("", AUTO) else []
    autos = [auto for auto in autos if auto["id"].removeprefix(f"{AUTO}/") not in mixed]
    models = models_of(lines, autos, sort)
    if provider == AUTO:
        models = [model for model in models if model.auto is not None]
    context |= {
        "page": Paginator(models, PER_PAGE).get_page(request.GET.get("page")),
        "sort": sort,
        "cleared": _kept(request, sort=sort),
        "is_anything_served": bool(names),
    }
    return render(request, "dashboard/models.html", context)


@signed_in_page()
def model_detail(request: HttpRequest, canonical_id: str) -> HttpResponse:
    """Shows the routes of a model that are served now or, to staff with `everything`, all of them."""
    current = account_context_if_any(request)
    catalogue, now = snapshot.current(), timezone.now()
    view = View(now.date(), quota.held(catalogue.with_quota, now.date()))
    everything = request.user.is_staff and "everything" in request.GET
    routes = [
        (offer, route)
        for offer in catalogue.by_canonical_id.get(canonical_id, ())
        for route in (offer.routes.values() if everything else servable(offer, view))
    ]
    sort = request.GET.get("sort", "")
    if not routes or sort not in ("", *ROUTE_SORTS):
        raise Http404
    currency = current.account.currency if current else WITHOUT_ACCOUNT
    auto = auto_info(catalogue, canonical_id, view, settings.GATEWAY_AUTO_OBJECTIVE)
    figures = figures_of([canonical_id], now)
    lines = lines_of(routes, catalogue, view, currency, health.recent_calls(now), figures)
    [model] = models_of(lines, [] if auto is None else [auto], sort)
    choices = {line.route.id: line.offer.modality for line in model.routes if line.has_endpoint}
    if auto is not None:
        choices = {auto["id"]: auto.get("modality", Modality.CHAT), **choices}
    chosen = request.GET.get("route", next(iter(choices), ""))
    if chosen not in (*choices, ""):
        raise Http404
    own: dict[Any, Times] = {}
    if current:
        scope = Scope(current.account.pk, model=canonical_id)
        own = read_times(scope, Days.until(now, OWN_DAYS), GroupColumn.PROVIDER, GroupColumn.REGION).by_group
    ids = [line.route.id for line in model.routes]
    context = {
        "model": model,
        "routes": [(line, own.get((line.offer.upstream.slug, line.route.locode), Times())) for line in model.routes],
        "has_own_times": any(times.first_token_p50 is not None for times in own.values()),
        "offers": sorted(
            {line.offer.id: line.offer for line in model.routes}.values(),
            key=lambda offer: offer.upstream.name.lower(),
        ),
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


@signed_in_page()
def compare_routes(request: HttpRequest) -> HttpResponse:
    """Shows two to four routes that are served now side by side, or says why it cannot."""
    current = account_context_if_any(request)
    catalogue, now = snapshot.current(), timezone.now()
    view = View(now.date(), quota.held(catalogue.with_quota, now.date()))
    asked = [*dict.fromkeys(request.GET.getlist("route"))]
    found = {id_: _served_route(catalogue, view, id_) for id_ in asked[:MOST_LISTED]}
    routes = {id_: route for id_, route in found.items() if route is not None}
    currency = current.account.currency if current else WITHOUT_ACCOUNT
    context = (current.template_context if current else {}) | {"currency": currency, "kept": _kept(request)}
    context["switch"] = reverse("models")
    faults = [f"No route {id_[:LONGEST_SHOWN]!r} is served now." for id_, route in found.items() if route is None]
    if len(asked) > MOST_COMPARED:
        surplus = ", ".join(id_[:LONGEST_SHOWN] for id_ in asked[MOST_COMPARED:MOST_LISTED])
        faults.append(f"At most {MOST_COMPARED} routes can be compared. Too many: {surplus}.")
    elif len(asked) < FEWEST_COMPARED:
        faults.append(f"Choose {FEWEST_COMPARED} to {MOST_COMPARED} routes to compare.")
    if faults:
        refused = context | {"faults": faults, "routes": routes}
        return render(request, "dashboard/compare.html", refused, status=422)
    figures = figures_of({offer.canonical_id for offer, _ in routes.values()}, now)
    lines = list(lines_of(routes.values(), catalogue, view, currency, health.recent_calls(now), figures))
    context |= {
        "columns": [(f"Route {number}", line) for number, line in enumerate(lines, 1)],
        "differing": differing_facts(lines),
        "is_measured": True,
        "may_use": current is not None and not current.is_seen_by_staff,
    }
    return render(request, "dashboard/compare.html", context)


def _served_route(catalogue: Snapshot, view: View, id_: str) -> tuple[Offer, Route] | None:
    provider, _, rest = id_.partition("/")
    canonical_id, _, locode = rest.rpartition("/")
    offer = catalogue.offers.get((provider, canonical_id))
    routes = [] if offer is None else [route for route in served_now(offer, view) if route.locode == locode]
    return (offer, routes[0]) if offer is not None and routes else None


def _kept(request: HttpRequest, **more: str) -> str:
    """Returns the query of an address that keeps the account, and what staff see."""
    fields = {name: request.GET[name] for name in ("account", "everything") if name in request.GET}
    return f"?{urlencode(fields | {name: value for name, value in more.items() if value})}"


def models_of(lines: Iterable[RouteLine], autos: Iterable[Info], sort: str) -> list[ModelLine]:
    """Groups routes by canonical model, and sorts models and routes by ROUTE_SORTS.

    Without `sort`, models are sorted by name, and routes as automatic routing prefers them.
    """
    auto_of = {info["id"].removeprefix(f"{AUTO}/"): info for info in autos}
    by_id: dict[str, list[RouteLine]] = {}
    for line in lines:
        by_id.setdefault(line.offer.canonical_id, []).append(line)
    models = []
    for canonical_id, routes in by_id.items():
        take_turns()
        auto = auto_of.get(canonical_id)
        preferred = {id_: number for number, id_ in enumerate(auto["auto_routing"]["candidates"])} if auto else {}
        routes.sort(key=lambda line: (preferred.get(line.route.id, len(preferred)), line.offer.id))
        if sort:
            routes.sort(key=lambda line: _last_if_unknown(ROUTE_SORTS[sort](line)))
        models.append(ModelLine(canonical_id, auto, routes))
    models.sort(key=lambda model: (model.name.lower(), model.canonical_id))
    if sort:
        models.sort(key=lambda model: _last_if_unknown(ROUTE_SORTS[sort](model.routes[0])))
    return models


def _key_names(current: AccountContext | None) -> dict[str, str]:
    """Returns the names of the account's keys by id, as choices of the filter."""
    if current is None:
        return {}
    live = ApiKey.objects.filter(account=current.account, deleted_at=None)
    return {str(pk): name for pk, name in live.order_by("name").values_list("pk", "name")[:MOST_KEYS]}


def _last_if_unknown(value: Decimal | int | None) -> tuple[bool, Decimal]:
    return value is None, Decimal(value or 0)


def _range(values: Iterable[T | None], key: Callable[[T], Any]) -> tuple[T, T] | None:
    known = [value for value in values if value is not None]
    return (min(known, key=key), max(known, key=key)) if known else None


def _is_within(most: Decimal | int | None, value: Decimal | int | None) -> bool:
    """Tells whether a value is at most `most`. Without `most`, every value is; an unknown value is within no limit."""
    return most is None or (value is not None and value <= most)


def _negative(value: Decimal | None) -> Decimal | None:
    return None if value is None else -value


def _amount(price: ShownPrice | None) -> Decimal | None:
    return None if price is None else price.amount
