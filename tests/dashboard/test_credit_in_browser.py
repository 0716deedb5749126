"""Credit in a real browser (tests/dashboard/test_dashboard.py has staff book some)."""

import re

from playwright.sync_api import Browser, Page, expect

from tests.browser import beyond, signed_in
from tests.servers.customer import Customer

MESSAGES = {"model": "sim/test/echo", "messages": [{"role": "user", "content": "Hello"}]}
PHONE = 390


def ask(customer: Customer) -> int:
    return customer.http.post("/v1/chat/completions", json=MESSAGES).status_code


def ledger(page: Page) -> list[str]:
    """The words of each entry, newest first."""
    page.get_by_text("Menu", exact=True).click()
    page.get_by_role("link", name="Billing", exact=True).click()
    expect(page.get_by_role("table")).to_be_visible()
    rows = page.get_by_role("region", name="Ledger").locator("tbody tr").all()
    return [re.sub(r"\s+", " ", row.inner_text()) for row in rows]


def test_the_ledger_fits_a_phone(chromium: Browser, customer: Customer) -> None:
    assert ask(customer) == 200
    with signed_in(chromium, customer, viewport={"width": PHONE, "height": 844}) as page:
        assert len(ledger(page)) == 2
        assert beyond(page, PHONE) == []
