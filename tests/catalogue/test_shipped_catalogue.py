"""In the shipped catalogue every route is pinned, priced and placed, and every figure has its source."""

import functools
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from catalogue import loader
from catalogue.loader.files import read as read_file
from catalogue.loader.release import released_on
from catalogue.models import FACTS, EnergyEstimate, Provider
from catalogue.pricing import Usage, cost_of, rates_between
from catalogue.routing import pinning, snapshot
from catalogue.routing.model_ids import GLOBAL, ExplicitId
from catalogue.routing.routes import EMBEDDING, Offer, Route, Snapshot
from gateway.errors import ModelUnavailable, ProviderNotConfigured
from tests.factories import forget_snapshot
from tests.servers.process import ROOT
from tools.management.commands.estimate_energy import SIZES

TODAY = date(2026, 11, 29)  # the day the facts were gathered: some offers end later
MILLION = 1_000_000
TABLES = ("places", "grid", "energy", "exchange_rates")
DOCUMENTATION = ROOT / "docs" / "catalogue.md"
UNPRICED = {"infomaniak/google/gemma-4-31b-it/CHGVA", "infomaniak/swiss-ai/apertus-v1.5-70b/CHGVA"}
UNAVAILABLE = "google-vertex"  # takes OAuth tokens, which the gateway does not obtain
# For these ids auto/{creator}/{model} has a real choice.
FLAGSHIPS = {
    "meta/llama-3.3-70b-instruct",
    "mistralai/mistral-medium-3.5",
    "mistralai/mistral-small-3.2-24b-instruct",
    "moonshotai/kimi-k2.6",
    "openai/gpt-oss-120b",
    "openai/gpt-oss-20b",
    "qwen/qwen3-235b-a22b-instruct-2507",
    "qwen/qwen3-coder-next",
    "qwen/qwen3.5-397b-a17b",
    "zai/glm-5.2",
}
WITH_PUE = {"berget": Decimal("1.15"), "scaleway": Decimal("1.37")}
NOT_ESTIMATED = set(read_file(SIZES)["unknown"])


@pytest.fixture(scope="module")
def rows(module_rows: None) -> None:
    loader.seed()


@pytest.fixture
def seeded(rows: None, db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Writes the shipped catalogue, without any provider's credential."""
    for variable in variables():
        monkeypatch.delenv(variable, raising=False)
    yield
    forget_snapshot()


@pytest.fixture
def shipped(seeded: None, monkeypatch: pytest.MonkeyPatch) -> Snapshot:
    """Takes a snapshot of the shipped catalogue, with every provider's credential."""
    for variable in variables():
        monkeypatch.setenv(variable, "filled")
    return taken()


def variables() -> set[str]:
    rows = Provider.objects.all()
    return {variable for row in rows for variable in (row.credential_env, *row.extra_env.values()) if variable}


def taken() -> Snapshot:
    forget_snapshot()
    snapshot.refresh()
    return snapshot.current()


def routes_of(catalogue: Snapshot) -> list[Route]:
    return [route for offer in catalogue.offers.values() for route in offer.routes.values()]


def is_sovereign(route: Route) -> bool:
    upstream, place = route.upstream, route.place
    return upstream.eu_native and not upstream.us_legal_reach and place is not None and place.eea


def explicit(offer: Offer, locode: str | None = None) -> ExplicitId:
    return ExplicitId(offer.upstream.slug, offer.canonical_id, locode)


def test_it_holds_what_its_documentation_says(shipped: Snapshot) -> None:
    routes = routes_of(shipped)
    assert (len(shipped.upstreams), len(shipped.offers), len(routes)) == (27, 237, 280)
    assert len({offer.canonical_id for offer in shipped.offers.values()}) == 127
    assert {route.id for route in routes if route.price is None} == UNPRICED
    assert sum(map(is_sovereign, routes)) == 46


def test_each_route_can_be_pinned_and_each_offer_has_its_default(shipped: Snapshot) -> None:
    offers = [offer for offer in shipped.offers.values() if offer.upstream.slug != UNAVAILABLE]
    assert len(offers) == 235
    for offer in offers:
        for locode, route in offer.routes.items():
            pinned = pinning.pin(shipped, explicit(offer, locode), TODAY)
            assert pinned is route
            pinning.require_configured(pinned)
        default = pinning.pin(shipped, explicit(offer), TODAY)
        assert default.locode == (GLOBAL if GLOBAL in offer.routes else offer.default_locode)


def test_what_needs_oauth_is_unavailable_and_says_why(shipped: Snapshot) -> None:
    offers = [offer for offer in shipped.offers.values() if offer.upstream.slug == UNAVAILABLE]
    assert len(offers) == 2
    for offer in offers:
        with pytest.raises(ModelUnavailable, match="OAuth"):
            pinning.pin(shipped, explicit(offer), TODAY)


def test_nothing_is_served_without_a_credential(seeded: None) -> None:
    for route in routes_of(taken()):
        with pytest.raises(ProviderNotConfigured):
            pinning.require_configured(route)


def test_a_provider_comes_in_with_its_own_credential_alone(seeded: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCALEWAY_API_KEY", "scw")
    monkeypatch.setenv("INFOMANIAK_API_KEY", "no product id, so no address")
    assert {upstream.slug for upstream in taken().upstreams.values() if upstream.configured} == {"scaleway"}


def test_a_million_tokens_cost_the_published_price_in_its_own_currency(shipped: Snapshot) -> None:
    for route in routes_of(shipped):
        if route.id in UNPRICED:
            continue
        price, published = route.price, route.published
        assert price is not None, route.id
        assert published is not None, route.id
        rates = rates_between(price.currency, price.currency, shipped.units_per_eur)
        assert rates is not None, route.id
        for priced, listed in zip((price, *price.tiers), (published, *published.tiers), strict=True):
            alone = replace(priced, tiers=())
            plain = cost_of(alone, Usage(uncached_prompt=MILLION, completion=MILLION), rates)
            assert (plain.prompt, plain.completion) == (listed.prompt, listed.completion), route.id
            assert plain.prompt > 0, route.id
            assert (plain.completion > 0) == (route.modality != EMBEDDING), route.id
            cached = cost_of(alone, Usage(cache_read=MILLION), rates).prompt
            written = cost_of(alone, Usage(cache_write_5m=MILLION), rates).prompt
            written_for_longer = cost_of(alone, Usage(cache_write_1h=MILLION), rates).prompt
            assert cached == (listed.cache_read or listed.prompt), route.id
            assert written == (listed.cache_write or listed.prompt), route.id
            assert written_for_longer == (listed.cache_write_1h or written), route.id
            assert cached <= plain.prompt <= written <= written_for_longer, route.id


def test_long_prompts_of_openai_cost_double_and_their_completions_half_as_much_again(shipped: Snapshot) -> None:
    prices = {
        route.canonical_id: route.price
        for route in routes_of(shipped)
        if route.upstream.slug == "openai" and route.price is not None and route.price.tiers
    }
    assert {"openai/gpt-5.4", "openai/gpt-5.6-luna", "openai/gpt-6-sol", "openai/gpt-6.1-terra"} <= set(prices)
    for price in prices.values():
        assert price.for_prompt(272_000) is price
        tier = price.for_prompt(272_001)
        assert (tier.prompt, tier.completion) == (2 * price.prompt, Decimal("1.5") * price.completion)
        assert (tier.of_cache_read, tier.of_cache_write_5m) == (2 * price.of_cache_read, 2 * price.of_cache_write_5m)


def test_long_prompts_cost_more_from_the_length_that_the_provider_states(shipped: Snapshot) -> None:
    """The table has the first dearer prompt, in tokens, and the factors for prompt and completion from there."""
    dearer = {
        "anthropic/anthropic/claude-haiku-5.5/global": (100_001, Decimal(5), Decimal(5)),
        "gemini/google/gemini-3.1-pro-preview/global": (200_001, Decimal(2), Decimal("1.5")),
        "minimax/minimax/minimax-m3/global": (512_001, Decimal(2), Decimal(2)),
        "xai/xai/grok-4.7/global": (200_000, Decimal(2), Decimal(2)),
    }
    prices = {route.id: route.price for route in routes_of(shipped)}
    for route_id, (first, prompt, completion) in dearer.items():
        price = prices[route_id]
        assert price is not None
        assert price.for_prompt(first - 1) is price
        tier = price.for_prompt(first)
        assert (tier.prompt, tier.completion) == (prompt * price.prompt, completion * price.completion), route_id


def test_each_price_can_be_billed_in_each_currency_that_has_a_rate(shipped: Snapshot) -> None:
    for route in routes_of(shipped):
        if route.price is not None:
            for currency in ("EUR", *shipped.units_per_eur):
                _, rates = pinning.require_price(shipped, route, currency)
                assert rates.account > 0


def test_prices_come_out_of_the_files_as_they_were_written(shipped: Snapshot) -> None:
    price = shipped.offers["mistral", "mistralai/mistral-small-4"].routes["FRPAR"].price
    assert price is not None
    assert (price.prompt, price.completion, price.cache_read) == (Decimal("0.165"), Decimal("0.66"), Decimal("0.0165"))


def test_each_place_is_known_with_the_electricity_of_its_country(shipped: Snapshot) -> None:
    for route in routes_of(shipped):
        assert (route.place is None) == (route.locode == GLOBAL), route.id
        assert route.energy.intensity_gco2_per_kwh, route.id
        if route.place is not None:
            assert route.place.country == route.locode[:2], route.id
            assert route.place.eea or not route.place.eu, route.id


def test_each_address_is_complete(shipped: Snapshot) -> None:
    for route in routes_of(shipped):
        assert re.fullmatch(r"https://[a-z0-9./-]+", route.base_url), route.base_url


def test_regions_of_a_provider_that_pins_them_by_address_never_share_one(shipped: Snapshot) -> None:
    for slug in ("aws-bedrock", "azure-openai", "mistral"):
        regions = defaultdict(set)
        for route in routes_of(shipped):
            if route.upstream.slug == slug:
                regions[route.base_url].add(route.locode)
        assert all(len(locodes) == 1 for locodes in regions.values()), regions


def test_energy_is_stated_only_if_it_is_known(shipped: Snapshot) -> None:
    estimates = dict(EnergyEstimate.objects.values_list("canonical_id", "energy_per_token_wh"))
    offered = {offer.canonical_id for offer in shipped.offers.values()}
    assert offered - set(estimates) == NOT_ESTIMATED
    assert set(estimates) <= offered
    for route in routes_of(shipped):
        figures = route.energy.figures
        assert (figures is None) == (route.canonical_id in NOT_ESTIMATED), route.id
        if route.upstream.slug in WITH_PUE:
            assert figures is None or figures.pue == WITH_PUE[route.upstream.slug], route.id
        else:
            assert route.energy.per_token_wh == estimates.get(route.canonical_id), route.id
    assert all(0 < wh < 1 for wh in estimates.values())


def test_auto_has_a_real_choice_between_sovereign_and_other_routes(shipped: Snapshot) -> None:
    routes = defaultdict(list)
    for route in routes_of(shipped):
        routes[route.canonical_id].append(route)
    for canonical_id in FLAGSHIPS:
        candidates = routes[canonical_id]
        assert len({route.upstream.slug for route in candidates}) > 1, canonical_id
        assert any(is_sovereign(route) for route in candidates), canonical_id
        assert any(route.place is None or not route.place.eea for route in candidates), canonical_id
        assert {route.modality for route in candidates} == {"chat"}, canonical_id


def test_a_model_has_one_modality_at_all_its_providers(shipped: Snapshot) -> None:
    modalities = defaultdict(set)
    for offer in shipped.offers.values():
        modalities[offer.canonical_id].add(offer.modality)
    assert all(len(found) == 1 and None not in found for found in modalities.values()), modalities


def test_a_second_seed_changes_nothing(seeded: None) -> None:
    report = loader.seed()
    assert (report.total.changed, report.held) == (0, [])
    assert loader.seed(prune=True).total.changed == 0


@functools.cache
def read(path: Path) -> dict[Any, Any]:
    return read_file(path)


def entries(section: str) -> list[dict[str, Any]]:
    return [entry for path in loader.SHIPPED for entry in read(path).get(section) or []]


def test_each_price_has_its_source_and_its_date() -> None:
    for model in entries("models"):
        stated = [model.get("pricing"), *(region.get("pricing") for region in model["regions"])]
        pricings = [pricing for pricing in stated if pricing is not None]
        for prices in (*pricings, *(tier for pricing in pricings for tier in pricing.get("tiers", ()))):
            assert prices["source"], model["id"]
            assert date.fromisoformat(prices["as_of"]) <= TODAY, model["id"]


def test_each_provider_and_each_table_has_its_source() -> None:
    assert all(provider["source"] and provider["notes"] for provider in entries("providers"))
    tables = [document[name] for document in map(read, loader.SHIPPED) for name in TABLES if name in document]
    assert len(tables) == len(TABLES)
    for table in tables:
        assert table["source"]
        assert date.fromisoformat(table["as_of"]) <= TODAY


def test_each_fact_on_data_has_its_source_and_its_date() -> None:
    stated = [
        (entry.get("slug") or entry["id"], entry[fact])
        for entry in (*entries("providers"), *entries("models"))
        for fact in FACTS
        if fact in entry
    ]
    assert stated
    for of, fact in stated:
        assert isinstance(fact, dict), of
        assert fact["source"], of
        assert date.fromisoformat(fact["as_of"]) <= TODAY, of


def test_it_is_as_old_as_its_newest_file() -> None:
    assert released_on() == max(
        date.fromisoformat(read(path)["as_of"]) for path in loader.SHIPPED if "as_of" in read(path)
    )


def test_a_models_file_holds_the_offers_of_the_provider_it_is_named_after() -> None:
    for path in loader.SHIPPED:
        if path.name.startswith("models-"):
            providers = {model["provider"] for model in read(path)["models"]}
            assert providers == {path.stem.removeprefix("models-")}


def test_the_documentation_names_each_credential_and_each_seat(shipped: Snapshot) -> None:
    table = re.findall(r"^\| `([\w-]+)` \| (`.+`) \| ([A-Z]{2}) \| (yes|no)", DOCUMENTATION.read_text(), re.MULTILINE)
    sovereign = {route.upstream.slug for route in routes_of(shipped) if is_sovereign(route)}
    assert sorted(table) == sorted(
        (
            row.slug,
            ", ".join(f"`{variable}`" for variable in (row.credential_env, *row.extra_env.values())),
            row.country,
            "yes" if row.slug in sovereign else "no",
        )
        for row in Provider.objects.all()
    )
