"""Tasks that people come with take at most four clicks from the overview, by keyboard alone."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from playwright.sync_api import Browser, expect

from tests.dashboard.person import Person
from tests.pages import OWNER, Screen
from tests.servers.gateway import GatewayServer

pytestmark = pytest.mark.campaign
MOST_CLICKS = 4


@pytest.fixture
def person(chromium: Browser, northwind: tuple[GatewayServer, dict[str, Screen]]) -> Iterator[Person]:
    server, screens = northwind
    with Person.at(chromium, server, OWNER, screens["overview"].path) as person:
        yield person
    assert person.clicks <= MOST_CLICKS


def test_which_key_cost_more_last_week_than_the_week_before(person: Person) -> None:
    person.go("Usage")
    person.press(person.page.get_by_role("navigation", name="Group by").get_by_role("link", name="Key"))
    person.follow("7 days")
    by_key = person.page.get_by_role("region", name="By key", exact=True)
    production = by_key.get_by_role("row").filter(has_text="production")
    expect(by_key.get_by_role("columnheader", name="Change of cost")).to_be_visible()
    assert re.search("[+\N{MINUS SIGN}±][0-9,]+ %|new", production.inner_text())


def test_why_a_request_failed_and_which_route_to_use_instead(
    person: Person, northwind: tuple[GatewayServer, dict[str, Screen]]
) -> None:
    request = northwind[1]["usage-failure"].path.rpartition("req-")[2]
    person.go("Requests")
    person.type(person.page.get_by_role("searchbox"), request[:16])  # as chat windows shorten it
    person.press(person.page.get_by_role("button", name="Find"))
    words = person.words()
    assert request in words
    assert "What to do" in words or "Other routes" in words


def test_what_last_month_cost_by_key_as_csv(person: Person) -> None:
    person.go("Usage")
    person.press(person.page.get_by_role("navigation", name="Group by").get_by_role("link", name="Key"))
    person.follow("Last month" if datetime.now(UTC).day <= 15 else "This month")  # the sample has 30 days
    download = person.download(person.page.get_by_role("link", name="Download as CSV").first)
    header, *rows = download.path().read_text("utf-8-sig").splitlines()
    assert "cost" in header
    assert rows


def test_where_everything_of_a_key_was_served(person: Person) -> None:
    person.go("API keys")
    person.follow("production")
    person.press(person.page.get_by_role("navigation", name="Group by").get_by_role("link", name="Region"))
    assert "FRPAR" in person.words()


def test_an_alias_is_moved_and_moved_back(person: Person, northwind: tuple[GatewayServer, dict[str, Screen]]) -> None:
    person.go("Aliases")
    person.follow("alias/assistant")
    target = person.page.locator("p", has_text="Target:").locator(".route").inner_text()
    person.type(
        person.page.get_by_role("combobox", name="Target"), "ovhcloud/mistralai/mistral-small-3.2-24b-instruct/FRGRV"
    )
    person.press(person.page.get_by_role("button", name="Compare"))
    assert "Prompt EUR/1M" in person.words()
    person.press(person.page.get_by_role("button", name="Change target"))
    expect(person.page.get_by_role("status")).to_contain_text("is now ovhcloud/")
    assert person.clicks == MOST_CLICKS

    person.clicks = 0
    person.follow(f"Restore {target}")
    person.press(person.page.get_by_role("button", name="Change target"))
    expect(person.page.get_by_role("status")).to_contain_text(f"is now {target}")
