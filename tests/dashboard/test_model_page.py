"""A model's page compares its routes and shows code and price history, but nothing about other accounts."""

import re
from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.models import Account, User
from billing.usage.histograms import Histogram
from catalogue import models, price_history
from catalogue.routing import snapshot
from tests.billing.records import MEMBER, open_for, serve
from tests.catalogue import CACHE_PRICES, PRICES, catalogue_for, model, other_providers, states
from tests.factories import forget_snapshot
from tests.page_text import plain
from tests.seeding import seed_one

NOWHERE = "http://127.0.0.1:9/v1"  # nothing here is ever called
MODELS = [
    model("echo"),
    *states(),
    *[entry for entry in other_providers() if entry["id"] == "test/echo"],
    model("cached", pricing=PRICES | CACHE_PRICES),
    model("answers", modality="responses"),
    model("free-completion", modality="embedding", pricing=PRICES | {"completion_per_1m_tokens": 0}),
    model("pounds", pricing={**PRICES, "currency": "GBP"}),
]


@pytest.fixture(scope="module")
def rows(module_rows: None, tmp_path_factory: pytest.TempPathFactory) -> None:
    seed_one(catalogue_for(NOWHERE) | {"models": MODELS}, tmp_path_factory.mktemp("models"))


@pytest.fixture(autouse=True)
def seeded(rows: None, db: None) -> Iterator[None]:
    forget_snapshot()
    snapshot.refresh()
    yield
    forget_snapshot()


@pytest.fixture
def member(client: Client) -> Client:
    open_for(MEMBER)
    client.force_login(User.objects.get(email=MEMBER))
    return client


@pytest.fixture
def staff() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("staff@example.com"))
    return client


def page(client: Client, slug: str, **query: str) -> str:
    response = client.get(f"/models/test/{slug}", query)
    assert response.status_code == 200
    return response.text


def words(client: Client, slug: str, **query: str) -> str:
    return plain(page(client, slug, **query))


def test_the_routes_of_a_model_are_compared(member: Client) -> None:
    text = words(member, "cached")
    assert "Cached auto/test/cached Copy" in text
    assert (
        "prefers EU-sovereign routes, then the lowest carbon intensity, then the lowest price. To pin a route" in text
    )
    paris, frankfurt = text.split("Sim, FR · ")[1:]
    assert paris.startswith("Paris, FR FRPAR default region EU-sovereign sim/test/cached/FRPAR Copy")
    assert "chat · streaming: yes · function calling: yes · image input: unknown · Cache write: 0.75" in paris
    # In order: context, max output, prompt, cached prompt, completion, energy, grid, carbon, status.
    assert "131,072 8,192 0.60 0.06 1.20 200 44 8.8 No calls" in paris
    assert "131,072 8,192 0.60 0.06 1.20 200 344 68.8 No calls" in frankfurt
    tiered = words(member, "tiered")
    assert "Prompt, prompts above 22 tokens: 1.20 · Completion, prompts above 22 tokens: 1.80" in tiered
    assert "Cached prompt, prompts above 22 tokens: 0.12" in tiered
    assert "0.10 – unknown none" in words(member, "embedding")  # noqa: RUF001
    assert "0.60 – unknown none" in words(member, "free-completion")  # noqa: RUF001


def protection(client: Client, slug: str) -> str:
    """Returns the markup of the section on what providers do with data."""
    forget_snapshot()
    snapshot.refresh()
    return page(client, slug).partition('<h2 id="retention">')[2].partition("</section>")[0]


def test_it_shows_how_long_each_provider_keeps_prompts_and_the_source(member: Client) -> None:
    privacy = "https://sim.example/a-privacy-notice-with-a-long-address/of-the-api"
    sim = models.Provider.objects.filter(slug="sim")
    sim.update(retention_days=0, retention_source=f"{privacy}, section 3", retention_as_of=date(2026, 11, 29))
    models.Provider.objects.filter(slug="simus").update(retention_days=30)
    table = protection(member, "echo")
    assert f'<a href="{privacy}"' in table
    shown = plain(table)
    assert re.search(r"Sim not at all https://sim\.example/.*… , section 3, read 29 Nov 2026 unknown", shown)
    assert "Simus up to 30 days unknown unknown unknown" in shown
    models.Model.objects.filter(provider__slug="simus").update(retention_days=1)
    assert "Simus up to 1 day unknown" in plain(protection(member, "echo"))
    models.Provider.objects.update(retention_days=None, retention_source="", retention_as_of=None)
    assert "Sim unknown unknown unknown unknown" in plain(protection(member, "echo"))


@pytest.mark.parametrize(
    ("transfer", "confidential", "shown"),
    [
        ("none", "none", "none no"),
        ("adequacy", "tee", "adequacy decision in a trusted environment"),
        ("scc", "e2e", "standard clauses encrypted end to end"),
    ],
)
def test_it_shows_where_data_is_stored_and_how_it_is_protected(
    member: Client, transfer: str, confidential: str, shown: str
) -> None:
    sim = models.Provider.objects.filter(slug="sim")
    sim.update(storage_countries=["DE", "FR"], storage_source="its contract", storage_as_of=date(2026, 11, 28))
    sim.update(transfer_basis=transfer, confidential_kind=confidential)
    assert f"Sim unknown DE, FR its contract, read 28 Nov 2026 {shown}" in plain(protection(member, "echo"))


def test_prices_are_in_the_accounts_currency_by_the_rate_that_is_stated(member: Client) -> None:
    assert "Prices in EUR per 1M tokens; 1 USD = 0.8 EUR" in words(member, "dollars")
    assert "Prices in EUR per 1M tokens. " in words(member, "cached")
    dollars = str(open_for(MEMBER, name="Dollars", currency="USD").pk)
    assert "Prices in USD per 1M tokens; 1 EUR = 1.25 USD" in words(member, "cached", account=dollars)
    assert 'title="0.75 USD for 0.6 EUR, 1 EUR = 1.25 USD">0.75</data>' in page(member, "cached", account=dollars)
    assert '0.60</data> <span class="unit">GBP</span>' in page(member, "pounds")  # no rate: not converted


def test_routes_are_in_the_order_of_preference_or_of_a_figure(member: Client) -> None:
    def routes(**query: str) -> list[str]:
        return [
            part.split("<")[0].partition(">")[2]
            for part in page(member, "echo", **query).split('<span class="route" id="')[1:]
        ]

    preferred = routes()
    assert preferred[0] == "sim/test/echo/FRPAR"
    assert preferred[-1] == "simus/test/echo/USQAS"
    assert routes(sort="prompt")[0] == preferred[-1]  # 0.50 USD
    assert 'href="?sort=carbon"' in page(member, "echo")


def test_what_is_not_there_is_not_found(member: Client) -> None:
    foreign = open_for("somebody@example.com", name="Theirs")
    for address in (
        "/models/test/none",
        "/models/test",
        "/models/test/gone",
        "/models/test/gone?everything=on",
        "/models/test/echo?sort=nonsense",
        "/models/test/echo?route=nokey/test/echo/FRPAR",
        "/models/test/echo?route=a%00b",
        f"/models/test/echo?account={foreign.pk}",
        "/models/%00/x",
    ):
        assert member.get(address).status_code == 404, address
    assert member.post("/models/test/echo").status_code == 405
    assert Client().get("/models/test/echo")["Location"] == "/login?next=/models/test/echo"


def test_a_person_without_an_account_reads_it_in_euros(client: Client) -> None:
    client.force_login(User.objects.create_user("new@example.com"))
    text = words(client, "cached")
    assert "Prices in EUR" in text
    assert "playground" not in text


def test_staff_see_what_is_not_served_and_why(staff: Client) -> None:
    assert staff.get("/models/test/gone").status_code == 404
    text = page(staff, "gone", everything="on")
    assert "disabled" in plain(text)
    assert '<a href="/models?everything=on">Models</a>' in text
    assert "nokey/test/echo/FRPAR" in words(staff, "echo", everything="on")
    assert "nokey" not in words(staff, "echo")


def speeds(client: Client, slug: str, **query: str) -> str:
    """Returns the markup of the table of speed and success."""
    return page(client, slug, **query).partition('<h2 id="speed">')[2].partition("</section>")[0]


def measure(locode: str, *, served: int, failed: int = 0, first_token_ms: int = 400, hours_ago: int = 0) -> None:
    """Writes the sums of an hour, in which 1,000 output tokens took 20 seconds."""
    hour = timezone.now().replace(minute=0, second=0, microsecond=0) - timedelta(hours=hours_ago)
    models.RouteHour.objects.create(
        **{
            "hour": hour,
            "provider": "sim",
            "model": "test/cached",
            "region": locode,
            "served": served,
            "failed": failed,
        },
        first_token=Histogram.of([first_token_ms] * served).to_json(),
        per_thousand_tokens=Histogram.of([20_000] * served).to_json(),
    )


def test_each_route_shows_its_speed_and_success_of_all_accounts_with_a_chart(member: Client) -> None:
    measure("FRPAR", served=75, failed=25)
    measure("FRPAR", served=30, first_token_ms=900, hours_ago=3)
    measure("DEFRA", served=19)
    text = speeds(member, "cached")
    paris, frankfurt = plain(text).split("Sim · ")[1:]
    assert re.match(r"Paris, FR 0\.[34]\d* [45]\d[.\d]* 80\.8 ", paris)
    assert frankfurt.startswith("Frankfurt am Main, DE few requests few requests few requests")
    assert "19" not in plain(frankfurt)
    assert text.count("<svg") == 3
    assert re.search(r'"By hour: 0\.[34]\d* to 0\.[89]\d* s, last 0\.[34]\d*\. Known for 2 of 24 hours\."', text)
    assert 'aria-label="By hour: 75 to 100 %, last 75. Known for 2 of 24 hours."' in text


def test_routes_are_sorted_by_what_is_measured_and_unknown_comes_last(member: Client) -> None:
    measure("DEFRA", served=50, failed=1, first_token_ms=300)
    for sort in ("first-token", "speed", "success"):
        first, last = plain(speeds(member, "cached", sort=sort)).split("Sim · ")[1:]
        assert (first.split(",")[0], last.split(",")[0]) == ("Frankfurt am Main", "Paris")
    measure("FRPAR", served=50, first_token_ms=400)
    assert plain(speeds(member, "cached", sort="success")).split("Sim · ")[1].startswith("Paris")
    assert plain(speeds(member, "cached", sort="first-token")).split("Sim · ")[1].startswith("Frankfurt")


def test_the_accounts_own_time_to_the_first_token_is_beside_it(member: Client) -> None:
    mine, theirs = User.objects.get(email=MEMBER).account_set.get(), open_for("somebody@example.com", name="Theirs")
    route: dict[str, Any] = {"provider": "sim", "model": "test/cached", "region": "FRPAR"}
    serve(theirs, **route, first_token_ms=9_000)
    assert "Yours" not in plain(speeds(member, "cached"))
    for milliseconds in (400, 400, 9_000):
        serve(mine, **route, first_token_ms=milliseconds)
    paris, frankfurt = plain(speeds(member, "cached")).split("Sim · ")[1:]
    assert re.search(r"few requests 0\.(39|4|41) few requests", paris)  # the median
    assert "few requests – unknown few requests" in frankfurt  # noqa: RUF001


def test_code_is_for_automatic_routing_or_the_route_that_is_chosen(member: Client) -> None:
    account = User.objects.get(email=MEMBER).account_set.get()
    text = page(member, "echo")
    assert text.count('model="auto/test/echo"') == text.count('model: "auto/test/echo"') == 1
    assert f'<a href="/playground?account={account.pk}&amp;model=auto/test/echo">' in text
    chosen = page(member, "echo", route="simus/test/echo/USQAS")
    assert 'model="simus/test/echo/USQAS"' in chosen
    assert "<option selected>simus/test/echo/USQAS</option>" in chosen
    assert "auto/test/echo</option>" in chosen
    embedding = page(member, "embedding")
    assert 'client.embeddings.create(model="sim/test/embedding/FRPAR"' in embedding
    assert "/v1/embeddings" in embedding
    assert "/playground?" not in embedding.partition("<main")[2]
    assert "client.responses.create" in page(member, "answers")


@pytest.mark.parametrize("modality", ["realtime", ""])
def test_what_no_endpoint_serves_has_no_code(member: Client, modality: str) -> None:
    models.Model.objects.filter(canonical_id="test/cached").update(modality=modality)
    forget_snapshot()
    snapshot.refresh()
    text = words(member, "cached")
    reason = "" if modality else ": its modality is unknown"
    assert f"No endpoint of this gateway serves this model{reason}." in text
    assert "curl" not in text


def test_the_history_of_prices_tells_changes_and_not_what_a_route_came_with(member: Client, staff: Client) -> None:
    assert "No price of these routes has changed since" in words(member, "cached")
    person = User.objects.get(email="staff@example.com")
    paris = models.Region.objects.get(model__canonical_id="test/cached", locode="FRPAR")
    with transaction.atomic(), price_history.edited_by(person, [paris.pk]):
        paris.prompt_per_1m_tokens, paris.cache_read_per_1m_tokens = Decimal("0.5"), None
        paris.save()
    text = words(member, "cached")
    assert "sim/test/cached/FRPAR Prompt 0.60 EUR 0.50 EUR" in text
    assert "sim/test/cached/FRPAR Cached prompt 0.06 EUR – unknown" in text  # noqa: RUF001
    assert "staff@example.com" not in text
    assert "No price of these routes has changed since" in words(member, "echo")


def test_many_routes_cost_no_more_queries(member: Client) -> None:
    def queries(slug: str) -> int:
        page(member, slug)
        with CaptureQueriesContext(connection) as captured:
            page(member, slug)
        return len(captured)

    models.Region.objects.bulk_create(
        models.Region(
            model=models.Model.objects.get(canonical_id="test/cached"),
            locode=f"FR{number}",
            currency="EUR",
            prompt_per_1m_tokens=1,
            completion_per_1m_tokens=2,
        )
        for number in range(100, 200)
    )
    forget_snapshot()
    snapshot.refresh()
    assert queries("cached") == queries("global-only") <= 10


@pytest.mark.parametrize("listing", ["/usage/records", "/"])
def test_requests_link_to_the_pages_that_their_models_have(member: Client, listing: str) -> None:
    account = Account.objects.get()
    for slug in ("echo", "resting", "unheard-of"):
        serve(account, model=f"test/{slug}")
    text = member.get(listing).text
    linked = re.findall(r'<a class="route" href="([^"]+)">([^<]+)</a>', text)
    assert linked == [(f"/models/test/echo?account={account.pk}", "sim/test/echo/FRPAR")]
    assert member.get(linked[0][0]).status_code == 200
    assert '<span class="route">sim/test/resting/FRPAR</span>' in text
