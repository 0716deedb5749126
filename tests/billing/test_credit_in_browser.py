"""Credit in a real browser, by forms alone: staff book it, the next request is answered, the member sees both."""

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser import beyond, open_menu, signed_in
from tests.conftest import OpenAccount
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer

MESSAGES = {"model": "sim/test/echo", "messages": [{"role": "user", "content": "Hello"}]}
PHONE = 390


@pytest.fixture
def penniless(gateway: GatewayServer, open_account: OpenAccount) -> Customer:
    return open_account(gateway, credit=None)


def ask(customer: Customer) -> int:
    return customer.http.post("/v1/chat/completions", json=MESSAGES).status_code


def ledger(page: Page) -> list[str]:
    """The words of each entry, newest first."""
    page.get_by_role("link", name="Credit", exact=True).click()
    rows = page.get_by_role("region", name="Ledger").locator("tbody tr").all()
    return [re.sub(r"\s+", " ", row.inner_text()) for row in rows]


def book(page: Page, customer: Customer, **fields: str) -> None:
    open_menu(page)
    page.get_by_role("link", name="Admin").click()
    page.get_by_role("link", name="Accounts", exact=True).last.click()
    page.get_by_role("link", name=customer.name, exact=True).click()
    page.get_by_role("link", name="Book credit").click()
    for label, text in fields.items():
        page.get_by_label(label.capitalize()).fill(text)
    page.get_by_role("button", name="Continue").click()
    page.get_by_role("button", name="Book it").click()


def test_credit_that_staff_book_counts_at_once(chromium: Browser, penniless: Customer) -> None:
    with signed_in(chromium, penniless, java_script_enabled=False) as page:
        assert ledger(page) == []
        expect(page.get_by_text("The account has no credit.")).to_be_visible()
        assert ask(penniless) == 402

        with signed_in(chromium, penniless, role="member", staff=True, java_script_enabled=False) as desk:
            book(desk, penniless, amount="25.5", reference="invoice 17", reason="Paid by bank transfer.")
            expect(desk.get_by_text("Booked: a grant of 25.50 EUR. The balance is 25.50 EUR.")).to_be_visible()

        assert ask(penniless) == 200
        usage, grant = ledger(page)
        assert "grant invoice 17 +25.50 25.50" in grant
        assert re.search(r"usage sim/test/echo/FRPAR gen-[0-9a-f]{32} −0.00", usage)  # noqa: RUF001
        expect(page.get_by_text("The account has no credit.")).to_have_count(0)
        page.get_by_role("link", name="Credit only").click()
        expect(page.get_by_role("region", name="Ledger").locator("tbody tr")).to_have_count(1)
        page.go_back()
        page.locator("a.route").click()
        expect(page).to_have_url(re.compile(r"/usage/records/gen-[0-9a-f]{32}"))


def test_the_ledger_fits_a_phone(chromium: Browser, account: Customer) -> None:
    assert ask(account) == 200
    with signed_in(chromium, account, viewport={"width": PHONE, "height": 844}) as page:
        assert len(ledger(page)) == 2
        assert beyond(page, PHONE) == []
