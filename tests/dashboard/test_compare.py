"""Routes are compared side by side at an address that can be shared; what cannot be compared is named."""

import re
from collections.abc import Iterator

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from accounts.models import User
from catalogue.models import RouteHour
from catalogue.routing import snapshot
from tests.billing.records import MEMBER, open_for
from tests.catalogue import CACHE_PRICES, PRICES, catalogue_for, model, other_providers, states
from tests.factories import forget_snapshot
from tests.page_text import plain
from tests.seeding import seed_one

MODELS = [
    model("echo"),
    *states(),
    *[entry for entry in other_providers() if entry["id"] == "test/echo"],
    model("cached", pricing=PRICES | CACHE_PRICES),
]
PARIS, FRANKFURT, US = "sim/test/cached/FRPAR", "sim/test/cached/DEFRA", "simus/test/echo/USQAS"
OTHERS = ["sim/test/echo/FRPAR", "sim/test/embedding/FRPAR", "sim/test/dollars/FRPAR"]


@pytest.fixture(scope="module")
def rows(module_rows: None, tmp_path_factory: pytest.TempPathFactory) -> None:
    seed_one(catalogue_for("http://127.0.0.1:9/v1") | {"models": MODELS}, tmp_path_factory.mktemp("compare"))


@pytest.fixture
def member(rows: None, db: None, client: Client) -> Iterator[Client]:
    forget_snapshot()
    snapshot.refresh()
    open_for(MEMBER)
    client.force_login(User.objects.get(email=MEMBER))
    yield client
    forget_snapshot()


def compare(client: Client, *routes: str, status: int = 200) -> str:
    response = client.get("/models/compare", {"route": routes})
    assert response.status_code == status
    return response.text


def test_routes_are_side_by_side_and_what_differs_is_marked(member: Client) -> None:
    text = compare(member, PARIS, FRANKFURT, US)
    shown = plain(text)
    assert f"Route 1 {PARIS} Route 2 {FRANKFURT} Route 3 {US}" in shown
    assert "Place Paris, FR Frankfurt am Main, DE" in shown
    assert "Time to first token s few requests few requests few requests" in shown
    marked = re.findall(r'<tr role="row" class="differs"><th role="rowheader" scope="row">(\w+)', text)
    assert {"Provider", "Place", "Law", "Prompt", "Carbon", "Grid"} <= {*marked}
    assert "Kind" not in marked


def test_each_route_leads_to_an_alias_and_to_the_playground(member: Client) -> None:
    account = User.objects.get(email=MEMBER).account_set.get()
    text = compare(member, PARIS, "sim/test/embedding/FRPAR")
    assert f'<a href="/aliases?account={account.pk}&amp;target={PARIS}#create">Use as an alias target</a>' in text
    assert text.count("Use as an alias target") == 2
    assert text.count(f'<a href="/playground?account={account.pk}&amp;model={PARIS}">Try in the playground</a>') == 1
    assert text.count("Try in the playground") == 1
    assert f'value="{PARIS}"' in member.get("/aliases", {"target": PARIS}).text


def test_a_person_without_an_account_compares_too(member: Client) -> None:
    client = Client()
    client.force_login(User.objects.create_user("new@example.com"))
    text = compare(client, PARIS, FRANKFURT)
    assert "Use as an alias target" not in text


def test_what_is_measured_of_each_route_is_shown(member: Client) -> None:
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    place = {"provider": "sim", "model": "test/cached", "region": "FRPAR"}
    RouteHour.objects.create(hour=hour, **place, served=99, failed=1, first_token={"60": 50})
    text = plain(compare(member, PARIS, FRANKFURT))
    assert "Time to first token s 0.319 few requests" in text
    assert "Success rate % 99 few requests" in text


@pytest.mark.parametrize(
    "unknown",
    ["sim/test/none/FRPAR", "sim/test/cached", "sim/test/gone/FRPAR", "nokey/test/echo/FRPAR", "", "/", "a\x00b/c/d"],
)
def test_an_unknown_or_unserved_route_is_named_and_the_others_stay_chosen(member: Client, unknown: str) -> None:
    text = compare(member, PARIS, unknown, status=422)
    assert f"No route {unknown!r} is served now." in plain(text)
    assert f'name="route" value="{PARIS}"' in text
    assert "Side by side" not in text


def test_too_many_are_refused_by_name(member: Client) -> None:
    text = compare(member, PARIS, FRANKFURT, US, *OTHERS, status=422)
    assert f"At most 4 routes can be compared. Too many: {OTHERS[1]}, {OTHERS[2]}." in plain(text)
    assert len(re.findall(r'type="checkbox"', text)) == 6
    compare(member, PARIS, FRANKFURT, US, OTHERS[0])


@pytest.mark.parametrize("routes", [[], [PARIS], [PARIS, PARIS]])
def test_one_route_is_too_few(member: Client, routes: list[str]) -> None:
    assert "Choose 2 to 4 routes to compare." in plain(compare(member, *routes, status=422))


def test_the_list_and_a_models_page_have_a_box_for_each_route_in_a_form_that_compares(member: Client) -> None:
    for address in ("/models?q=cached", "/models/test/cached"):
        text = member.get(address).text
        form = text.partition('<form method="get" action="/models/compare"')[2].partition("</form>")[0]
        for route in (PARIS, FRANKFURT):
            assert f'<input type="checkbox" name="route" value="{route}" aria-label="Compare {route}">' in form


def test_it_costs_one_query_for_what_is_measured(
    member: Client, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    # Queries: the session and the person; the accounts; the spent quotas; the providers' calls; the routes' hours.
    with django_assert_num_queries(6):
        compare(member, PARIS, FRANKFURT, US)


def test_strangers_are_sent_to_the_login() -> None:
    assert Client().get("/models/compare")["Location"] == "/login?next=/models/compare"
