"""Eight kinds of people do what they come for, by keyboard alone, in as few clicks as this table says.

Each test counts what a person follows, presses or ticks; typing is free. `Before` is from before the pages were redone.

=================================================  ======  ===
Journey                                            Before  Now
=================================================  ======  ===
A developer, from the invitation to a copied key        5    5
An owner, why a request failed                          3    2
Staff, why a customer's request failed                  4    1
Finance, last month's statement with sums by key        4    2
An owner, an alert before the credit runs out           3    2
Sustainability, the text for this year's report         3    3
Staff, a provider is disabled                           5    4
Staff, a request is refunded                            6    4
Staff, a customer is opened with credit and owner       9    2
Staff, a route has another price                        5    4
Staff, who changed something                            1    1
A platform engineer, the fastest route of a model       5    5
A platform engineer, two routes side by side            -    5
A platform engineer, an alias is moved back             3    4
Security, a key is rotated                              5    4
Security, a member is removed                           3    4
Security, everybody else is signed out                  -    3
An owner, who changed something                         -    2
=================================================  ======  ===

Two take a click more than before. Members moved from the full bar into the menu "Account". An alias was moved back by
copying its old target by hand; now a link restores it, and a comparison is shown before the change.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Browser, expect

from tests.browser import PASSWORD
from tests.dashboard.person import Person
from tests.pages import MEMBER, OWNER, STAFF, Screen
from tests.servers.gateway import GatewayServer

pytestmark = pytest.mark.campaign

Northwind = tuple[GatewayServer, dict[str, Screen]]
Come = Callable[[str | None, str], AbstractContextManager[Person]]


@pytest.fixture
def come(chromium: Browser, northwind: Northwind) -> Come:
    """Lets a person come to one of the pages, by its name."""
    server, screens = northwind
    return lambda email, screen: Person.at(chromium, server, email, screens[screen].path)


@pytest.fixture
def owner(come: Come) -> Iterator[Person]:
    with come(OWNER, "overview") as person:
        yield person


@pytest.fixture
def staff(come: Come) -> Iterator[Person]:
    with come(STAFF, "admin") as person:
        yield person


def find(staff: Person, text: str) -> None:
    """Uses the search that each page of the admin has, which leads to a record by its id."""
    staff.type(staff.page.get_by_role("searchbox", name=re.compile("Search accounts")), text)
    staff.push("Search")


def test_a_developer_joins_and_copies_a_key(come: Come) -> None:
    with come(None, "invitation") as developer:
        developer.clicks += 1  # the link in the mail
        for label in ("Password", "Confirm password"):
            developer.type(developer.page.get_by_label(label, exact=True), PASSWORD)
        developer.push("Join Northwind")
        expect(developer.page.get_by_role("heading", level=1)).to_have_text("Northwind")
        developer.follow("Create an API key")
        developer.type(developer.page.get_by_role("textbox", name="Name"), "my first")
        developer.push("Create key")
        assert developer.copy(developer.page.get_by_role("button", name="Copy key")).startswith("sk-gw-")
        assert "/v1/chat/completions" in developer.words()
        assert developer.clicks == 5


def test_an_owner_learns_why_a_request_failed(owner: Person, northwind: Northwind) -> None:
    request = northwind[1]["usage-failure"].path.rpartition("req-")[2]
    owner.go("Requests")
    owner.type(owner.page.get_by_role("searchbox"), request)
    owner.push("Find")
    assert "What to do" in owner.words()
    assert "Other routes" in owner.words()
    assert owner.clicks == 2


def test_staff_learn_why_a_customers_request_failed(staff: Person, northwind: Northwind) -> None:
    request = northwind[1]["usage-failure"].path.rpartition("req-")[2]
    find(staff, request)
    expect(staff.page.locator("#content")).to_contain_text("Requests rate limit exceeded")
    assert staff.clicks == 1


def test_finance_has_a_months_statement_with_sums_by_key(owner: Person) -> None:
    owner.go("Billing")
    month = datetime.now(UTC) - timedelta(days=15)  # the middle of the sample
    owner.follow(f"View statement of {month:%B %Y}")
    expect(owner.page.get_by_role("heading", level=1)).to_have_text("Statement of Northwind")
    assert "Usage by API key" in owner.words()
    assert owner.clicks == 2


def test_an_owner_is_alerted_before_the_credit_runs_out(owner: Person) -> None:
    owner.follow("Change the alerts")
    owner.type(owner.page.get_by_label(re.compile("^Low-balance thresholds")), "20")
    owner.push("Save")
    assert "Notifications saved." in owner.words()
    assert owner.clicks == 2


def test_sustainability_copies_the_text_for_this_years_report(owner: Person) -> None:
    owner.go("Carbon")
    owner.follow("This year")
    report = owner.copy(owner.page.get_by_role("button", name="Copy"))
    assert report.startswith("ESRS E1-6, Scope 3 category 1")
    assert owner.clicks == 3


def test_staff_disable_a_provider(staff: Person) -> None:
    staff.follow("Providers")
    staff.follow("cohere")
    staff.follow("Disable provider")
    staff.type(staff.page.get_by_role("textbox", name="Reason:"), "The contract has ended.")
    staff.push("Disable provider")
    assert "The contract has ended." in staff.page.locator("#container").inner_text()
    assert staff.clicks == 4


def test_staff_refund_a_request(staff: Person, northwind: Northwind) -> None:
    record = northwind[1]["usage-record"].path.rpartition("gen-")[2]
    find(staff, record)
    staff.follow("Refund this request")
    staff.type(staff.page.get_by_role("textbox", name="Reason:"), "The answer was unusable.")
    staff.push("Continue")
    staff.push("Refund")
    expect(staff.page.locator(".messagelist .success")).to_be_visible()
    assert staff.clicks == 4


def test_staff_open_a_customer_with_credit_and_an_owner(staff: Person) -> None:
    staff.press(staff.page.locator("a[href='/admin/accounts/account/add/']").first)
    for label, text in (
        ("Name:", "Umbrella Health"),
        ("Opening credit:", "50"),
        ("Reason:", "The first invoice is paid."),
        ("Owner's email address:", "owner@umbrella.example"),
    ):
        staff.type(staff.page.get_by_role("textbox", name=label).or_(staff.page.get_by_label(label)).first, text)
    staff.push("Open the account")
    expect(staff.page.locator(".messagelist .success").first).to_be_visible()
    assert staff.clicks == 2


def test_staff_give_a_route_another_price(staff: Person) -> None:
    staff.follow("Regions")
    staff.type(staff.page.locator("#searchbar"), "codestral-2508")
    staff.press(staff.page.locator("#changelist-search input[type=submit]"))
    staff.follow("mistral/mistralai/codestral-2508/FRPAR")
    staff.type(staff.page.locator("#id_prompt_per_1m_tokens"), "0.35")
    staff.push("Save")
    expect(staff.page.locator(".messagelist .success")).to_be_visible()
    assert staff.clicks == 4


def test_staff_see_who_changed_something(staff: Person) -> None:
    staff.follow("Changes by staff")
    expect(staff.page.get_by_role("heading", level=1)).to_contain_text("hanges by staff")
    assert staff.clicks == 1


def test_a_platform_engineer_copies_the_fastest_route_of_a_model(owner: Person) -> None:
    owner.go("Models")
    owner.type(owner.page.get_by_role("searchbox", name="Search"), "gpt-oss-120b")
    owner.push("Apply")
    owner.follow("gpt-oss 120B")
    owner.follow("First token")
    route = owner.copy(owner.page.locator(".compared").get_by_role("button", name="Copy").first)
    assert route.endswith(("FRPAR", "FRGRV"))
    assert owner.clicks == 5


def test_a_platform_engineer_sees_two_routes_side_by_side(owner: Person) -> None:
    owner.go("Models")
    owner.follow("gpt-oss 120B")
    for box in owner.page.get_by_role("checkbox", name=re.compile("^Compare ")).all():
        owner.tick(box)
    owner.push("Compare")
    expect(owner.page.get_by_role("heading", level=1)).to_have_text("Compare routes")
    assert owner.clicks == 5


def test_a_platform_engineer_moves_an_alias_back(owner: Person) -> None:
    owner.go("Aliases")
    owner.follow("alias/assistant")
    owner.press(owner.page.get_by_role("link", name=re.compile("^Restore ")).first)
    owner.push("Change target")
    expect(owner.page.get_by_role("status")).to_contain_text("is now mistral/")
    assert owner.clicks == 4


def test_security_rotates_a_key(owner: Person) -> None:
    owner.go("API keys")
    owner.follow("Rotate production")
    owner.push("Rotate")
    assert owner.copy(owner.page.get_by_role("button", name="Copy key")).startswith("sk-gw-")
    assert owner.clicks == 4


def test_security_removes_a_member(owner: Person) -> None:
    owner.set_up("Members")
    owner.follow(f"Remove {MEMBER}")
    owner.push("Remove member")
    expect(owner.page.get_by_role("status")).to_be_visible()
    expect(owner.page.get_by_role("rowheader", name=MEMBER)).to_have_count(0)
    assert owner.clicks == 4


def test_security_signs_everybody_else_out(owner: Person) -> None:
    owner.use(owner.page.locator(".person summary"))
    owner.follow("Sessions")
    owner.push("Sign out of all others")
    expect(owner.page.get_by_role("status")).to_be_visible()
    assert owner.clicks == 3


def test_an_owner_sees_who_changed_something(owner: Person) -> None:
    owner.set_up("Audit log")
    assert OWNER in owner.words()
    assert owner.clicks == 2


def test_comparing_is_in_view_however_long_the_list_is(owner: Person) -> None:
    owner.go("Models")
    compare = owner.page.get_by_role("button", name="Compare", exact=True)
    expect(compare).to_be_in_viewport()
    owner.page.keyboard.press("End")
    expect(compare).to_be_in_viewport()
