"""With the longest names, the admin's lists still show the other columns in a browser."""

import secrets

import pytest
import requests
from playwright.sync_api import Browser, Page, expect

from tests.browser import signed_in
from tests.chat import question
from tests.servers.customer import Customer

DESK = {"width": 1280, "height": 800}
RIGHT = "elements => Math.max(...elements.map(one => one.getBoundingClientRect().right))"
LONGEST = 200  # characters of a name
LISTS = ("accounts/account/", "accounts/apikey/", "billing/ledgerentry/", "billing/generation/")


def assert_every_column_is_in_view(page: Page, listing: str, name: str) -> None:
    page.goto(f"/admin/{listing}")
    expect(page.get_by_role("table")).to_contain_text(name)
    cells, room = page.locator("#result_list :is(th, td)"), page.locator("#changelist-form")
    assert cells.evaluate_all(RIGHT) <= room.evaluate_all(RIGHT), listing


@pytest.mark.campaign
def test_the_longest_names_leave_every_column_in_view(chromium: Browser, account: Customer) -> None:
    gateway = account.gateway
    name = secrets.token_hex(8).rjust(LONGEST, "w")  # other tests make accounts and keys on this gateway too
    gateway.manage("create_account", name, "--credit", "10").ok()
    token = gateway.manage("create_key", name, "--name", name).ok()
    headers, call = {"Authorization": f"Bearer {token}"}, question("echo")
    assert requests.post(f"{gateway.base_url}/chat/completions", json=call, headers=headers, timeout=10).ok
    with signed_in(chromium, account, staff=True, viewport=DESK) as page:
        for listing in LISTS:
            assert_every_column_is_in_view(page, f"{listing}?q={name}", name)
        page.goto(f"/admin/accounts/apikey/?q={name}")
        page.locator("#result_list th a").click()
        page.get_by_role("button", name="Save", exact=True).click()
        expect(page.get_by_text("was changed successfully")).to_be_visible()
        assert_every_column_is_in_view(page, "admin/logentry/", name)
