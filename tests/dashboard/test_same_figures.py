"""A figure has the same value in the tiles of every page, in the sums of a CSV, and in the statistics of the API."""

import csv
import io
import re
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from accounts.models import Account
from aliases import changes, stats
from aliases.models import Alias
from aliases.targets import Target
from catalogue.routing import snapshot
from gateway.errors import InsufficientCredits, ProviderError
from tests.billing.records import fail, open_for
from tests.billing.timeline import advance_all
from tests.dashboard.usage import day_ago, seen, used

pytestmark = pytest.mark.django_db
TILE = re.compile(r"<div><dt>(.*?)</dt>(.*?)</div>", re.DOTALL)


@pytest.fixture
def account(served: None) -> Account:
    return open_for("member@example.com")


@pytest.fixture
def alias(account: Account) -> Alias:
    """Makes an alias in an account whose requests, with and without it, ended in every way."""
    alias = changes.create(account.pk, "fast", Target("sim", "test/echo", "FRPAR"))
    for alias_id in (alias.pk, None):
        used(account, first_token_ms=300, alias_id=alias_id)
        figures: dict[str, Any] = {"energy_wh": Decimal("0.25"), "carbon_gco2e": Decimal("0.01")}
        used(account, 3, first_token_ms=100, alias_id=alias_id, **figures)
        used(account, 29, priced=False, interrupted=True, region="DEFRA", alias_id=alias_id)
        used(account, 40, alias_id=alias_id)
    fail(account, ProviderError("The provider has no credential."), route="sim/test/echo/FRPAR", alias_id=alias.pk)
    fail(account, InsufficientCredits(), route="", model="sim/test/echo")
    return alias


@pytest.fixture(params=["records", "rolled up"])
def stored(request: pytest.FixtureRequest, alias: Alias) -> Alias:
    if request.param == "rolled up":
        advance_all()
    return alias


def tiles(client: Client, path: str, **query: str) -> dict[str, str]:
    response = client.get(path, query)
    assert response.status_code == 200
    return {seen(name): seen(value) for name, value in TILE.findall(response.text)}


def assert_agree(pages: list[dict[str, str]]) -> None:
    """Checks that each tile has one value, and that at least one is on two pages."""
    names = {name for page in pages for name in page}
    values = {name: {page[name] for page in pages if name in page} for name in names}
    assert {name: found for name, found in values.items() if len(found) > 1} == {}
    assert any(sum(name in page for page in pages) > 1 for name in names)


def test_pages_of_an_account_agree(member: Client, stored: Alias) -> None:
    periods = {"days": "30"}, {"since": str(day_ago(29)), "until": str(day_ago())}
    pages = [tiles(member, path) for path in ("/", "/credit", "/usage", "/carbon")]
    pages += [tiles(member, "/usage", by=by, **period) for by in ("key", "alias", "region") for period in periods]
    assert pages[0]["Error rate"] == "25.0 % 2 of 8"
    pages[3].pop("Energy")  # on the carbon page, its bounds follow
    assert_agree(pages)


def test_pages_of_an_alias_agree(member: Client, stored: Alias) -> None:
    pages = [tiles(member, f"/aliases/{stored.pk}"), tiles(member, "/usage", alias=str(stored.pk))]
    assert pages[0]["Error rate"] == "25.0 % 1 of 4"
    assert pages[0] == pages[1]


@pytest.mark.parametrize("narrowing", ["account", "alias"])
def test_a_csv_adds_up_to_the_tiles(member: Client, stored: Alias, narrowing: str) -> None:
    query = {"alias": str(stored.pk)} if narrowing == "alias" else {}
    shown = member.get("/usage", query).context["totals"]
    for by in ("model", "key", "region", "alias") if narrowing == "account" else ("key",):  # each queries every day
        text = b"".join(member.get("/usage/export", query | {"by": by})).decode()
        lines = [*csv.DictReader(io.StringIO(text))]
        for column in ("requests", "prompt_tokens", "completion_tokens", "cost", "energy_wh", "carbon_gco2e"):
            assert sum(Decimal(line[column] or 0) for line in lines) == getattr(shown, column), (by, column)


def test_the_api_tells_of_an_alias_what_its_page_does(member: Client, stored: Alias) -> None:
    shown = member.get(f"/aliases/{stored.pk}").context["totals"]
    today = timezone.now().date()
    told = stats.of_alias(stored, days=30, today=today, catalogue=snapshot.current())["totals"]
    assert told == {
        "requests": shown.requests,
        "prompt_tokens": shown.prompt_tokens,
        "completion_tokens": shown.completion_tokens,
        "total_tokens": shown.tokens,
        "cost": float(shown.cost),
        "carbon_gco2e": float(shown.carbon_gco2e),
    }


def test_the_page_of_an_alias_shows_its_errors_before_anything_was_served(member: Client, account: Account) -> None:
    alias = changes.create(account.pk, "slow", Target("sim", "test/echo", "FRPAR"))
    fail(account, ProviderError("None."), route="sim/test/echo/FRPAR", alias_id=alias.pk)
    assert tiles(member, f"/aliases/{alias.pk}")["Error rate"] == "100.0 % 1 of 1"
