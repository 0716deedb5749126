"""An invitation's whole life between two people, by forms alone: JavaScript is switched off."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect

from tests.browser import PASSWORD, beyond, open_menu, sign_in, signed_in
from tests.patience import eventually
from tests.servers.customer import Customer

PHONE: ViewportSize = {"width": 390, "height": 800}


@pytest.fixture
def owner(chromium: Browser, customer: Customer) -> Iterator[Page]:
    """An owner who looks at the members."""
    with signed_in(chromium, customer, java_script_enabled=False) as page:
        page.get_by_role("link", name="Members").click()
        yield page


def invite(owner: Page, email: str) -> None:
    owner.get_by_role("textbox", name="Email address").fill(email)
    owner.get_by_role("button", name="Send invitation").click()
    expect(owner.get_by_role("status")).to_contain_text(f"An invitation has been sent to {email}.")


def mailed_link(customer: Customer, email: str) -> str:
    """The link in the newest mail to that address, as the console backend has written it into the server's log."""
    origin = re.escape(customer.gateway.origin)
    link = re.compile(rf"^To: {re.escape(email)}$.*?^({origin}/invitations/\S+)$", re.DOTALL | re.MULTILINE)
    assert eventually(lambda: link.search(customer.gateway.log) is not None)
    return link.findall(customer.gateway.log)[-1]


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
    guest.get_by_role("link", name="Members").click()
    expect(guest.get_by_role("rowheader", name=f"{email} you")).to_be_visible()
    expect(guest.get_by_role("button", name="Send invitation")).to_have_count(0)
    assert beyond(guest, PHONE["width"]) == []
    assert guest.goto(link).status == 410  # type: ignore[union-attr]  # a page that was opened has a response

    owner.reload()
    owner.get_by_role("link", name=f"Remove {email}").click()
    expect(owner.get_by_text("API keys belong to the account and keep working")).to_be_visible()
    owner.get_by_role("button", name="Remove").click()
    expect(owner.get_by_role("status")).to_contain_text(f"{email} is no longer in {customer.name}.")

    assert guest.goto(f"/?account={customer.id}").status == 404  # type: ignore[union-attr]  # as above
    guest.goto("/")
    expect(guest.get_by_role("heading", level=1)).to_have_text("Welcome")
    context.close()


def test_a_person_with_a_password_signs_in_on_the_way(owner: Page, chromium: Browser, customer: Customer) -> None:
    with signed_in(chromium, customer, role="member", java_script_enabled=False) as stranger:
        address = f"member@{customer.name}.example"
        owner.reload()
        owner.get_by_role("link", name=f"Remove {address}").click()
        owner.get_by_role("button", name="Remove").click()
        invite(owner, address)
        link = mailed_link(customer, address)
        owner.goto(link)
        expect(owner.get_by_text("You are signed in as")).to_be_visible()
        open_menu(stranger)
        stranger.get_by_role("button", name="Sign out").click()
        stranger.goto(link)
        stranger.get_by_role("link", name="Sign in to join").click()
        sign_in(stranger, address)
        stranger.get_by_role("button", name="Join").click()
        expect(stranger.get_by_role("status")).to_contain_text(f"You are now a member of {customer.name}.")


def test_the_list_fits_a_phone(owner: Page, customer: Customer) -> None:
    invite(owner, f"{'a-long-name-' * 5}@a-department.of-a-university.example")
    owner.set_viewport_size(PHONE)
    owner.reload()
    assert beyond(owner, PHONE["width"]) == []
