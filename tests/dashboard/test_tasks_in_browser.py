"""Tasks that people come with take at most four clicks from the overview, by keyboard alone."""

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests import pages
from tests.browser import sessions
from tests.pages import OWNER, Screen
from tests.servers.databases import MigratedDatabases
from tests.servers.gateway import GatewayServer

pytestmark = pytest.mark.campaign
REQUESTS = 300
MOST_CLICKS = 4


@pytest.fixture(scope="module")
def northwind(
    migrated_databases: MigratedDatabases, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[GatewayServer, dict[str, Screen]]]:
    """Starts a gateway on which an account has a month of requests, and returns it with its pages by name."""
    server = GatewayServer(migrated_databases, tmp_path_factory.mktemp("gateway"), env=pages.ENVIRONMENT)
    with contextlib.closing(server):
        server.manage("seed_catalogue").ok()
        screens = pages.with_story(server, REQUESTS)
        yield server.start(), {screen.name: screen for screen in screens}


class Person:
    """Uses pages by keyboard, and counts what they follow, press and choose."""

    def __init__(self, page: Page) -> None:
        self.page, self.clicks = page, 0

    def follow(self, name: str) -> None:
        self.press(self.page.get_by_role("link", name=name, exact=True).first)

    def go(self, name: str) -> None:
        """Follows a link of the bar."""
        self.press(self.page.get_by_role("navigation", name="Pages").get_by_role("link", name=name, exact=True))

    def press(self, wanted: Locator) -> None:
        self.clicks += 1
        wanted.focus()
        self.page.keyboard.press("Enter")
        self.page.wait_for_load_state()

    def type(self, field: Locator, text: str) -> None:
        field.focus()
        self.page.keyboard.type(text)

    def words(self) -> str:
        return " ".join(self.page.locator("main").inner_text().split())


@pytest.fixture
def person(chromium: Browser, northwind: tuple[GatewayServer, dict[str, Screen]]) -> Iterator[Person]:
    server, screens = northwind
    context = chromium.new_context(base_url=server.origin, viewport={"width": 1280, "height": 800})
    context.add_cookies([sessions(server, [OWNER])[OWNER]])
    page = context.new_page()
    page.goto(screens["overview"].path)
    person = Person(page)
    yield person
    context.close()
    assert person.clicks <= MOST_CLICKS


def test_which_key_cost_more_last_week_than_the_week_before(person: Person) -> None:
    person.go("Usage")
    person.press(person.page.get_by_role("navigation", name="Group by").get_by_role("link", name="Key"))
    person.follow("7 days")
    now = person.words()
    person.press(person.page.locator("a[rel=prev]").first)
    before = person.words()
    assert "production" in now
    assert "production" in before
    assert now != before
    first = datetime.now(UTC).date() - timedelta(days=13)
    assert f"since={first}" in person.page.url


def test_why_a_request_failed_and_which_route_to_use_instead(
    person: Person, northwind: tuple[GatewayServer, dict[str, Screen]]
) -> None:
    request = northwind[1]["usage-failure"].path.rpartition("req-")[2]
    person.go("Requests")
    person.type(person.page.get_by_role("searchbox"), request[:12])  # as chat windows shorten it
    person.press(person.page.get_by_role("button", name="Find"))
    words = person.words()
    assert request in words
    assert "What to do" in words or "Other routes" in words


def test_what_last_month_cost_by_key_as_csv(person: Person) -> None:
    person.go("Usage")
    person.press(person.page.get_by_role("navigation", name="Group by").get_by_role("link", name="Key"))
    person.follow("Last month")
    person.clicks += 1
    with person.page.expect_download() as download:
        person.page.get_by_role("link", name="Download as CSV").first.click()
    header, *rows = download.value.path().read_text("utf-8-sig").splitlines()
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
