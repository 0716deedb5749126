"""Pages work in a real browser without JavaScript: menus open, and nothing is offered that would not work.

Forms and links are tested page by page with Django's client, which runs no script either; here two people meet by an
invitation.
"""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect

from tests.browser import PASSWORD, beyond, follow_account_menu, open_menu, signed_in
from tests.chat import answer
from tests.patience import eventually
from tests.servers.customer import Customer

PHONE: ViewportSize = {"width": 390, "height": 800}


@pytest.fixture
def owner(chromium: Browser, customer: Customer) -> Iterator[Page]:
    """Opens the members page as an owner."""
    with signed_in(chromium, customer, java_script_enabled=False) as page:
        follow_account_menu(page, "Members")
        yield page


def invite(owner: Page, email: str) -> None:
    owner.get_by_role("textbox", name="Email address").fill(email)
    owner.get_by_role("button", name="Send invitation").click()
    expect(owner.get_by_role("status")).to_contain_text(f"An invitation has been sent to {email}.")


def mailed_link(customer: Customer, email: str) -> str:
    """Returns the link in the newest mail to that address, which the console backend wrote to the server's log."""
    origin = re.escape(customer.gateway.origin)
    link = re.compile(rf"^To: {re.escape(email)}$.*?^({origin}/invitations/\S+)$", re.DOTALL | re.MULTILINE)
    assert eventually(lambda: link.search(customer.gateway.log) is not None)
    return link.findall(customer.gateway.log)[-1]


@pytest.mark.campaign
def test_somebody_is_invited_joins_is_removed_and_finds_nothing(
    owner: Page, chromium: Browser, customer: Customer
) -> None:
    email = f"guest@{customer.name}.example"
    invite(owner, email)
    link = mailed_link(customer, email)

    context = chromium.new_context(base_url=customer.gateway.origin, java_script_enabled=False, viewport=PHONE)
    guest = context.new_page()
    guest.goto(link)
    expect(guest.get_by_role("heading", level=1)).to_have_text(f"Join {customer.name}")
    assert beyond(guest, PHONE["width"]) == []
    guest.get_by_label("Password", exact=True).fill(PASSWORD)
    guest.get_by_label("Confirm password").fill(PASSWORD)
    guest.get_by_role("button", name="Join").click()
    expect(guest.get_by_role("status")).to_contain_text(f"You are now a member of {customer.name}.")
    guest.get_by_text("Menu", exact=True).click()
    follow_account_menu(guest, "Members")
    expect(guest.get_by_role("rowheader", name=f"{email} you")).to_be_visible()
    expect(guest.get_by_role("button", name="Send invitation")).to_have_count(0)
    assert beyond(guest, PHONE["width"]) == []
    assert guest.goto(link).status == 410  # type: ignore[union-attr]  # an opened page has a response

    owner.reload()
    owner.get_by_role("link", name=f"Remove {email}").click()
    expect(owner.get_by_text("API keys belong to the account and keep working")).to_be_visible()
    owner.get_by_role("button", name="Remove").click()
    expect(owner.get_by_role("status")).to_contain_text(f"{email} is no longer in {customer.name}.")

    assert guest.goto(f"/?account={customer.id}").status == 404  # type: ignore[union-attr]  # as above
    guest.goto("/")
    expect(guest.get_by_role("heading", level=1)).to_have_text("Welcome")
    context.close()


def test_without_scripts_menus_open_and_what_needs_one_is_hidden(chromium: Browser, customer: Customer) -> None:
    answer(customer, "echo")
    desk = {"width": 1280, "height": 800}
    with signed_in(chromium, customer, staff=True, java_script_enabled=False, viewport=desk) as page:
        bar = page.get_by_role("banner").bounding_box()
        assert bar
        assert bar["height"] < 70
        page.goto("/usage")
        expect(page.get_by_role("img", name="Cost by day")).to_be_hidden()
        page.get_by_role("link", name="All requests").click()
        page.get_by_role("region", name="newest first").get_by_role("row").nth(1).get_by_role("link").first.click()
        assert "sim/test/echo/FRPAR" in page.get_by_role("region", name="Route").inner_text()
        expect(page.get_by_role("button", name="Copy")).to_be_hidden()
        page.goto("/models?q=two+prices")
        page.get_by_text("2 routes").click()
        expect(page.get_by_role("row", name="Frankfurt am Main, DE")).to_contain_text("0.90")
        expect(page.get_by_role("button", name="Copy")).to_have_count(0)
        page.goto("/keys")
        page.get_by_role("textbox", name="Name").fill("laptop")
        page.get_by_role("button", name="Create key").click()
        expect(page.get_by_role("group", name="The new key")).to_be_visible()
        expect(page.get_by_role("button", name="Copy key")).to_be_hidden()
        page.get_by_role("navigation", name="Pages").get_by_role("link", name="Playground").click()
        expect(page.get_by_text("The Playground needs JavaScript.")).to_be_visible()
        expect(page.get_by_label("Message", exact=True)).to_be_hidden()
        expect(page.get_by_label("Example in curl")).to_be_visible()

        page.locator(".person summary").press("Enter")
        expect(page.get_by_role("link", name="Admin")).to_be_visible()
        page.get_by_role("link", name="Sessions").click()
        expect(page.get_by_role("heading", name="Sessions", exact=True)).to_be_visible()
        open_menu(page)
        page.get_by_role("button", name="Sign out", exact=True).click()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
