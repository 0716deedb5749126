"""The Models page shows the API's list by canonical model, searched and sorted; staff also see what is not served."""

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from accounts.models import User
from catalogue import models
from catalogue.routing import health, quota, snapshot
from catalogue.routing.routes import JURISDICTIONS
from inference.modality import FITTING
from tests.billing.records import MEMBER, open_for
from tests.catalogue import CACHE_PRICES, PRICES, catalogue_for, model, other_providers, region, states
from tests.factories import forget_snapshot, new_account, new_key
from tests.page_text import plain
from tests.seeding import seed_one

NOWHERE = "http://127.0.0.1:9/v1"  # nothing here is ever called
SECRET = "sim-secret-that-must-not-leak"
LITTLE = {"currency": "EUR", "prompt_per_1m_tokens": 0.01, "completion_per_1m_tokens": 0.02}
MODELS = [
    model("echo"),
    *states(),
    *[entry for entry in other_providers() if entry["id"] == "test/echo"],
    model("cached", pricing=PRICES | CACHE_PRICES),
    model("far", regions=[region("USQAS", default=True), region("FRPAR")]),
    model("retired", retires_on="2020-01-01"),
    model("large", context_length=9_000_000),
    model("little", pricing=LITTLE, energy_per_token_wh=0.0000001),
    model("pounds", pricing={**PRICES, "currency": "GBP"}),
]


@pytest.fixture(scope="module")
def rows(module_rows: None, tmp_path_factory: pytest.TempPathFactory) -> None:
    seed_one(catalogue_for(NOWHERE) | {"models": MODELS}, tmp_path_factory.mktemp("models"))


@pytest.fixture
def seeded(rows: None, db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("SIM_API_KEY", SECRET)
    forget_snapshot()
    snapshot.refresh()
    yield
    forget_snapshot()


@pytest.fixture
def member(client: Client, seeded: None) -> Client:
    open_for(MEMBER)
    client.force_login(User.objects.get(email=MEMBER))
    return client


@pytest.fixture
def staff(seeded: None) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("staff@example.com"))
    return client


def page(client: Client, **query: str) -> str:
    response = client.get("/models", query)
    assert response.status_code == 200
    return response.text


def words(client: Client, **query: str) -> str:
    """Returns the page as a reader sees it."""
    return plain(page(client, **query))


def ids(text: str) -> list[str]:
    """Returns the ids at the heads of the models, in order: for automatic routing, of the only route, or canonical."""
    return re.findall(r'<code id="id-\d+">([^<]+)<', text)


def routes(text: str) -> list[str]:
    """Returns the 4-part ids of all routes, in their order."""
    return re.findall(r'<span class="route" id="id-[\d-]+">([^<]+)<', text)


def names(text: str) -> list[str]:
    """Returns the models' names, in their order."""
    return re.findall(r"<h3><a [^>]*>([^<]+)<", text)


def entry(client: Client, name: str, **query: str) -> str:
    """Returns the text of the model with that name."""
    found = [one for one in page(client, **query).split('<li class="model">')[1:] if f">{name}</a></h3>" in one]
    assert len(found) == 1
    return plain(found[0].partition("</details>")[0])


def autos_of(found: Iterable[str]) -> set[str]:
    return {model_id for model_id in found if model_id.startswith("auto/")}


def listed(token: str, jurisdiction: str, modality: str) -> list[dict[str, Any]]:
    """Returns the API's list with these filters; an empty string is no filter."""
    filters = {"jurisdiction": jurisdiction, "modality": modality}
    asked = {name: value for name, value in filters.items() if value}
    response = Client().get("/v1/models", asked, headers={"Authorization": f"Bearer {token}"})
    data: list[dict[str, Any]] = response.json()["data"]
    return data


def test_strangers_are_sent_to_the_login(client: Client) -> None:
    for send in (client.get, client.head):
        assert send("/models")["Location"] == "/login?next=/models"


def test_the_account_of_somebody_else_is_not_found(member: Client) -> None:
    foreign = open_for("somebody@example.com", name="Theirs")
    for account in (str(foreign.pk), "0199f000-0000-7000-8000-000000000000", "nonsense", ""):
        assert member.get("/models", {"account": account}).status_code == 404
        assert member.head("/models", {"account": account}).status_code == 404


def test_other_verbs_do_nothing(member: Client) -> None:
    for verb in ("post", "put", "patch", "delete"):
        assert getattr(member, verb)("/models").status_code == 405
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(User.objects.get(email=MEMBER))
    assert strict.post("/models").status_code == 403


def test_a_person_without_an_account_may_look(client: Client, seeded: None) -> None:
    client.force_login(User.objects.create_user("new@example.com"))
    assert "auto/test/echo" in ids(page(client))


def test_the_account_is_kept_in_the_links_and_in_the_form(member: Client) -> None:
    first, second = User.objects.get(email=MEMBER).account_set.get(), open_for(MEMBER, name="Second")
    for account, query in ((first, {}), (second, {"account": str(second.pk)})):
        text = page(member, **query)
        assert f'href="/aliases?account={account.pk}"' in text
        assert f'<input type="hidden" name="account" value="{account.pk}">' in text


def test_what_is_listed_is_what_the_api_lists(member: Client) -> None:
    token = new_key(new_account())[1]
    for jurisdiction, modality in itertools.product(["", *JURISDICTIONS], ["", "chat", "completion", "embedding"]):
        entries = listed(token, jurisdiction, modality)
        text = page(member, jurisdiction=jurisdiction, modality=modality)
        canonical = {entry["id"].split("/", 1)[1] for entry in entries}
        assert len(ids(text)) == len(canonical) > 0
        assert sorted(routes(text)) == sorted(region["id"] for entry in entries for region in entry.get("regions", []))
        assert autos_of(ids(text)) == autos_of(entry["id"] for entry in entries)


def test_a_model_of_many_providers_is_one_entry_with_its_routes_as_automatic_routing_prefers_them(
    member: Client,
) -> None:
    text = page(member, q="test/echo")
    assert ids(text) == ["auto/test/echo"]
    token = new_key(new_account())[1]
    [auto] = [entry for entry in listed(token, "", "") if entry["id"] == "auto/test/echo"]
    assert routes(text) == auto["auto_routing"]["candidates"]
    assert "6 routes of Echo 4 providers" in plain(text)
    assert "Echo 5 EU-sovereign auto/test/echo Copy" in plain(text)


def test_every_word_must_occur_in_the_names_or_the_id_of_a_route(member: Client) -> None:
    assert ids(page(member, q="two-prices")) == ["auto/test/two-prices"]
    assert routes(page(member, q=" TWO   prices Sim PARIS")) == ["sim/test/two-prices/FRPAR"]
    assert routes(page(member, q="echo SimUs")) == ["simus/test/echo/USQAS"]
    assert ids(page(member, q="auto/test/two-prices")) == ["auto/test/two-prices"]
    assert ids(page(member, q="two echo")) == []


def test_one_provider_can_be_chosen_and_automatic_routing_too(member: Client) -> None:
    text = page(member, provider="simus")
    assert (ids(text), routes(text)) == (["simus/test/echo/USQAS"], ["simus/test/echo/USQAS"])
    assert {i.partition("/")[0] for i in ids(page(member, provider="auto"))} == {"auto"}
    assert '<option value="nokey">' not in page(member)


def test_models_are_sorted_by_a_figure_and_what_is_unknown_comes_last(member: Client) -> None:
    assert ids(page(member, sort="context"))[0] == "auto/test/large"
    for sort, last in (
        ("prompt", "test/unpriced"),
        ("completion", "test/unpriced"),
        ("carbon", "auto/test/unknown-energy"),
    ):
        found = ids(page(member, sort=sort, modality="chat"))
        assert (found[0], found[-1]) == ("auto/test/little", last)
    cheapest = routes(page(member, q="test/echo", sort="prompt"))
    assert cheapest[0] == "simus/test/echo/USQAS"  # 0.50 USD
    assert names(page(member)) == sorted(names(page(member)), key=str.lower)
    assert 'href="?sort=carbon"' in page(member)
    assert '<input type="hidden" name="sort" value="carbon">' in page(member, sort="carbon")


@pytest.mark.parametrize(
    ("query", "slugs"),
    [
        ({"zero_data_retention": "on"}, {"sim"}),
        ({"storage": "EU"}, {"sim", "simus"}),
        ({"transfer": "none"}, {"sim"}),
        ({"transfer": "scc"}, {"simus"}),
        ({"confidential": "on"}, {"simus"}),
        ({"storage": "EU", "confidential": "on", "zero_data_retention": "on"}, set()),
    ],
)
def test_facts_on_data_filter_the_list_and_unknown_never_passes(
    member: Client, query: dict[str, str], slugs: set[str]
) -> None:
    stated = {"storage_countries": ["DE", "FR"], "retention_days": 0, "transfer_basis": "none"}
    models.Provider.objects.filter(slug="sim").update(**stated, confidential_kind="none")
    stated |= {"storage_countries": ["FR"], "retention_days": 30, "transfer_basis": "scc"}
    models.Provider.objects.filter(slug="simus").update(**stated, confidential_kind="tee")
    forget_snapshot()
    snapshot.refresh()
    text = page(member, **query)
    assert {route.partition("/")[0] for route in routes(text)} == slugs
    assert "Clear the filters" in text
    assert "131,072 0.60 1.20 8.8 not at all" in entry(member, "Cached")
    assert "up to 30 days" in entry(member, "Echo", provider="simus")
    assert "unknown" in entry(member, "Echo", provider="simkey").rpartition("Copy")[2]


@pytest.fixture
def described(member: Client) -> Client:
    """States facts of two models: `cached` calls functions and takes images, `large` keeps prompts for 30 days."""
    models.Model.objects.filter(canonical_id="test/cached").update(image_input=True, retention_days=7)
    models.Model.objects.filter(canonical_id="test/large").update(function_calling=False, retention_days=30)
    forget_snapshot()
    snapshot.refresh()
    return member


@pytest.mark.parametrize(
    ("query", "shown", "hidden"),
    [
        ({"place": "fr"}, "sim/test/far/FRPAR", "sim/test/far/USQAS"),
        ({"place": "USQAS"}, "sim/test/far/USQAS", "sim/test/far/FRPAR"),
        ({"place": "global"}, "sim/test/global-only/global", "sim/test/cached/FRPAR"),
        ({"prompt": "0.05"}, "sim/test/little/FRPAR", "sim/test/cached/FRPAR"),
        ({"completion": "0.02"}, "sim/test/little/FRPAR", "sim/test/cached/FRPAR"),
        ({"completion": "0"}, "sim/test/embedding/FRPAR", "sim/test/little/FRPAR"),
        ({"context": "1000000"}, "sim/test/large/FRPAR", "sim/test/cached/FRPAR"),
        ({"tools": "on"}, "sim/test/cached/FRPAR", "sim/test/large/FRPAR"),
        ({"images": "on"}, "sim/test/cached/FRPAR", "sim/test/far/FRPAR"),
        ({"retention_days": "7"}, "sim/test/cached/FRPAR", "sim/test/large/FRPAR"),
        ({"retention_days": "30"}, "sim/test/large/FRPAR", "sim/test/far/FRPAR"),
    ],
)
def test_places_prices_and_capabilities_filter_the_list_and_unknown_never_passes(
    described: Client, query: dict[str, str], shown: str, hidden: str
) -> None:
    text = page(described, **query)
    assert shown in routes(text)
    assert hidden not in routes(text)
    assert "sim/test/unpriced/FRPAR" not in routes(page(described, prompt="1000"))
    assert '<a href="?">Clear the filters</a>' in text


def test_automatic_routing_is_left_out_if_it_may_choose_a_route_that_does_not_pass(described: Client) -> None:
    assert "auto/test/far" in ids(page(described, q="far"))
    assert ids(page(described, q="far", place="FR")) == ["sim/test/far/FRPAR"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("place", "France"),
        ("place", "F\n"),
        ("prompt", "-1"),
        ("completion", "NaN"),
        ("context", "many"),
        ("retention_days", "-1"),
        ("retention_days", "9" * 30),
    ],
)
def test_an_invalid_number_or_place_is_refused_beside_its_field(member: Client, field: str, value: str) -> None:
    response = member.get("/models", {field: value})
    assert response.status_code == 422
    assert "That filter is not valid." in plain(response.text)
    assert re.search(rf'<ul class="errorlist" id="id_{field}_error">', response.text)


@pytest.mark.parametrize("field", ["jurisdiction", "modality", "provider", "storage", "transfer", "sort"])
def test_an_invalid_filter_shows_no_models(member: Client, field: str) -> None:
    response = member.get("/models", {field: "nonsense"})
    assert response.status_code == 422
    assert "nonsense is not one of the available choices" in plain(response.text)
    assert ids(response.text) == []
    assert member.get("/models", {"q": "a\x00"}).status_code == 422


def test_a_model_shows_context_prices_and_carbon_of_its_routes(member: Client) -> None:
    text = entry(member, "Cached")
    assert "Cached EU-sovereign auto/test/cached Copy" in text
    assert "Context 131,072 Prompt 0.60 Completion 1.20 Carbon 8.8 to 68.8" in text
    assert "2 routes of Cached Sim" in text
    assert (
        "Sim, FR · Paris, FR FRPAR default region EU-sovereign sim/test/cached/FRPAR Copy 131,072 0.60 1.20 8.8" in text
    )
    assert (
        "Sim, FR · Frankfurt am Main, DE DEFRA EU-sovereign sim/test/cached/DEFRA Copy 131,072 0.60 1.20 68.8" in text
    )


def test_prices_are_in_the_accounts_currency_and_the_title_says_what_they_were(member: Client) -> None:
    assert "Prompt 0.40 Completion 1.20" in entry(member, "Dollars")
    assert 'title="0.4 EUR for 0.5 USD, 1 USD = 0.8 EUR">0.40</data>' in page(member, q="test/dollars")
    assert 'title="0.6 EUR">0.60</data>' in page(member, q="test/cached")
    dollars = str(open_for(MEMBER, name="Dollars", currency="USD").pk)
    assert "Prices in USD per 1M tokens" in words(member, account=dollars)
    assert "Prompt 0.50 Completion 1.50" in entry(member, "Dollars", account=dollars)
    assert 'title="0.75 USD for 0.6 EUR, 1 EUR = 1.25 USD">0.75</data>' in page(
        member, q="test/cached", account=dollars
    )


def test_a_route_shows_its_own_price_and_the_model_the_range(member: Client) -> None:
    text = entry(member, "Two prices")
    assert "Prompt 0.60 to 0.90 Completion 1.20 to 1.80" in text
    assert "sim/test/two-prices/DEFRA Copy 131,072 0.90 1.80" in text


def test_what_is_unknown_is_a_dash_and_never_zero(member: Client) -> None:
    unpriced = entry(member, "Unpriced")
    assert "Prompt – unknown Completion – unknown" in unpriced  # noqa: RUF001
    assert "Unpriced no price" in unpriced
    assert "Carbon – unknown" in entry(member, "Unknown energy")  # noqa: RUF001
    assert "modality unknown" in entry(member, "Unknown modality")
    assert "Completion none" in entry(member, "Embedding")


@pytest.mark.parametrize("modality", ["realtime", ""])
def test_what_no_endpoint_serves_is_marked_and_offers_no_copy(member: Client, modality: str) -> None:
    assert "not served here" not in entry(member, "Cached")
    assert "not served here" not in entry(member, "Embedding")
    models.Model.objects.filter(canonical_id="test/cached").update(modality=modality)
    forget_snapshot()
    snapshot.refresh()
    text = entry(member, "Cached")
    assert f"Cached not served here EU-sovereign test/cached {modality or 'modality unknown'}" in text
    assert "sim/test/cached/FRPAR" in text
    assert "Copy" not in text


def test_the_endpoints_serve_what_is_not_marked() -> None:
    assert {*itertools.chain(*FITTING.values())} == {*models.WITH_ENDPOINT}


def test_an_american_provider_is_marked(member: Client) -> None:
    text = entry(member, "Echo", provider="simus")
    assert "US legal reach" in text
    assert "EU-sovereign" not in text


def test_a_place_without_a_name_is_called_by_what_it_is(member: Client) -> None:
    assert "Worldwide" in entry(member, "Worldwide")


def test_the_status_of_a_provider_is_marked(member: Client) -> None:
    assert "provider down" not in words(member)
    for _ in range(6):
        health.note("simus", failed=True)
    health.flush()
    assert "provider down" in entry(member, "Echo", provider="simus")
    assert "provider down" not in entry(member, "Echo", provider="sim")
    models.Provider.objects.filter(slug="simkey").update(status_override="degraded")
    forget_snapshot()
    snapshot.refresh()
    assert "provider degraded" in entry(member, "Echo", provider="simkey")


def test_a_route_whose_quota_is_spent_leaves_the_list_until_midnight(member: Client, staff: Client) -> None:
    assert "sim/test/quota/FRPAR" in routes(page(member))
    spent = models.Region.objects.get(model__canonical_id="test/quota")
    quota.spend(spent, quota.day_of(timezone.now()))
    assert "sim/test/quota/FRPAR" not in routes(page(member))
    assert "held until midnight UTC" in entry(staff, "Quota", everything="on", provider="sim")


def test_staff_may_see_the_whole_catalogue_and_why_something_is_not_served(staff: Client) -> None:
    assert "nokey/test/echo/FRPAR" not in routes(page(staff))
    assert sorted(routes(page(staff, everything="on"))) == sorted(map(str, models.Region.objects.all()))
    assert "Echo not configured" in entry(staff, "Echo", everything="on", provider="nokey")
    for name, mark in {
        "Gone": "disabled",
        "Retired": "retired after 2020-01-01",
        "Resting": "unavailable: Being moved to new hardware.",
        "Unpriced": "no price",
        "Pounds": "no exchange rate for GBP",
    }.items():
        assert f"{name} {mark}" in entry(staff, name, everything="on", provider="sim")
    half = entry(staff, "Half closed", everything="on", provider="sim")
    assert "Half closed EU-sovereign" in half
    assert "DEFRA disabled EU-sovereign sim/test/half-closed/DEFRA" in half


def test_members_who_ask_for_everything_get_what_members_get(member: Client) -> None:
    assert ids(page(member, everything="on")) == ids(page(member))
    assert 'name="everything"' not in page(member)
    assert member.get("/models", {"everything": "on", "provider": "nokey"}).status_code == 422


def test_credentials_are_not_shown(staff: Client) -> None:
    text = page(staff, everything="on")
    assert SECRET not in text
    assert "SIM_API_KEY" not in text
    assert "SIM_ABSENT_KEY" not in text


def test_a_long_list_has_pages_that_keep_what_was_asked(member: Client) -> None:
    offer_many(120)
    text = page(member, q="many", modality="chat")
    assert "120 models" in plain(text)
    assert len(ids(text)) == 50 == len(routes(text))
    assert 'href="?q=many&amp;modality=chat&amp;page=2"' in text
    seen = [one for number in range(1, 4) for one in ids(page(member, q="many", modality="chat", page=str(number)))]
    assert len(seen) == len({*seen}) == 120
    assert ids(page(member, q="many", page="99")) == ids(page(member, q="many", page="3"))


def test_a_large_catalogue_costs_no_more_queries(
    member: Client, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    offer_many(200)
    # Queries: the session and the person; the accounts and their keys; the spent quotas; the providers' observed calls.
    with django_assert_num_queries(6):
        page(member)


def test_an_empty_result_says_how_to_go_on(member: Client) -> None:
    text = page(member, q="zebra", jurisdiction="eu-hosted")
    assert "No model matches all search words and filters." in text
    assert re.search(r'<a href="\?">Clear the filters</a>', text)


def test_a_gateway_without_a_provider_tells_staff_what_to_do(member: Client, staff: Client) -> None:
    models.Provider.objects.update(credential_env="SIM_ABSENT_KEY")
    forget_snapshot()
    snapshot.refresh()
    assert "No model is served yet" in words(member)
    assert "docs/catalogue.md" not in words(member)
    assert "docs/catalogue.md has the variable of each provider" in words(staff)
    assert '<a href="?everything=on">Show the whole catalogue</a>' in page(staff)
    assert "not configured" in words(staff, everything="on")


def offer_many(number: int) -> None:
    made = models.Model.objects.bulk_create(
        models.Model(
            provider=models.Provider.objects.get(slug="sim"),
            canonical_id=f"many/model-{n}",
            name=f"Model {n}",
            upstream_model="echo",
            modality="chat",
        )
        for n in range(number)
    )
    models.Region.objects.bulk_create(
        models.Region(model=one, locode="FRPAR", currency="EUR", prompt_per_1m_tokens=1, completion_per_1m_tokens=2)
        for one in made
    )
    forget_snapshot()
    snapshot.refresh()
