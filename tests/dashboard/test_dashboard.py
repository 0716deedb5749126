"""A person uses the product from page to page in a real browser: first a member with a key, then the staff."""

import json
import re
import subprocess
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser import add_person, follow_account_menu, sessions, signed_in
from tests.chat import HELLO
from tests.patience import eventually
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer

pytestmark = pytest.mark.long

ECHO = "sim/test/echo/FRPAR"
MOST_TABS = 60


def curl(gateway: GatewayServer, token: str) -> tuple[int, dict[str, object]]:
    """Requests a chat completion as the README does, and returns its status and answer."""
    body = json.dumps({"model": ECHO, "messages": HELLO})
    headers = ["-H", f"Authorization: Bearer {token}", "-H", "Content-Type: application/json"]
    command = ["curl", "-sS", "-w", "\n%{http_code}", *headers, "-d", body, f"{gateway.base_url}/chat/completions"]
    answer, _, status = subprocess.run(command, check=True, capture_output=True, text=True).stdout.rpartition("\n")
    return int(status), json.loads(answer)


def go(page: Page, name: str) -> None:
    """Goes to a page by the bar at the top."""
    page.get_by_role("navigation", name="Pages").get_by_role("link", name=name, exact=True).click()


def words(page: Page) -> str:
    return re.sub(r"\s+", " ", page.locator("main").inner_text())


@pytest.mark.also_sqlite
def test_a_member_makes_a_key_uses_it_sees_what_it_cost_and_deletes_it(chromium: Browser, customer: Customer) -> None:
    with signed_in(chromium, customer, role="member") as page:
        expect(page.get_by_role("heading", level=1)).to_have_text(customer.name)
        by_keyboard(page, "link", "API keys")
        page.get_by_role("textbox", name="Name").fill("laptop")
        page.get_by_role("button", name="Create key").click()
        token = page.get_by_role("group", name="The new key").locator("code").inner_text()

        status, answer = curl(customer.gateway, token)
        assert status == 200

        go(page, "Usage")
        page.get_by_role("navigation", name="Group by").get_by_role("link", name="Key").click()
        assert f"laptop sk-gw-…{token[-4:]} 1 2 / 2 < 0.0001 100.0 %" in words(page)
        page.get_by_role("link", name="All requests").click()
        assert ECHO in words(page)
        page.get_by_role("table").get_by_role("link").first.click()
        assert str(answer["id"]) in words(page)

        go(page, "Billing")
        assert "99.99 EUR" in words(page)
        assert "1 request" in words(page)

        go(page, "Models")
        page.get_by_role("searchbox").fill("echo")
        page.get_by_role("searchbox").press("Enter")
        assert "auto/test/echo" in words(page)

        go(page, "Aliases")
        page.get_by_role("textbox", name="Name").fill("fast")
        page.get_by_role("combobox", name="Target").fill(ECHO)
        page.get_by_role("button", name="Create alias").click()
        follow_account_menu(page, "Members")
        assert f"member@{customer.name}.example" in words(page)
        expect(page.get_by_role("button", name="Invite")).to_have_count(0)  # a member is not an owner

        go(page, "API keys")
        page.get_by_role("link", name="Delete laptop").click()
        page.get_by_role("button", name="Delete").click()
        status, refused = curl(customer.gateway, token)
        assert status == 401
        assert refused["error"]["code"] == "api_key_not_registered"  # type: ignore[index]
        page.goto("/usage?by=key")
        assert f"laptop deleted sk-gw-…{token[-4:]} 1 2 / 2" in words(page)  # its name stays in the history


def by_keyboard(page: Page, role: Literal["button", "link"], name: str) -> None:
    """Tabs from the focus to what has this name, presses Enter, and waits for the page to which it leads."""
    wanted = page.get_by_role(role, name=name, exact=True).first
    for _ in range(MOST_TABS):
        page.keyboard.press("Tab")
        if wanted.evaluate("element => element === document.activeElement"):
            with page.expect_navigation():
                page.keyboard.press("Enter")
            return
    raise AssertionError(f"Tab does not reach the {role} {name!r}")


def test_an_owner_invites_limits_a_key_and_gets_a_statement_by_keyboard(chromium: Browser, customer: Customer) -> None:
    with signed_in(chromium, customer, role="owner") as page:
        page.locator(".account-menu > summary").focus()
        page.keyboard.press("Enter")
        by_keyboard(page, "link", "Members")
        page.get_by_label("Email address").focus()
        page.keyboard.type("new@colleague.example\n")
        expect(page.get_by_role("status")).to_contain_text("An invitation has been sent to new@colleague.example.")

        by_keyboard(page, "link", "API keys")
        by_keyboard(page, "link", "Edit test")
        page.get_by_label("Requests per minute").focus()
        page.keyboard.type("60\n")
        expect(page.get_by_role("status")).to_contain_text("test has been saved.")
        assert "test 60 requests per minute" in words(page)

        by_keyboard(page, "link", "Billing")
        by_keyboard(page, "button", "View and print")
        assert "Closing balance 100.00 EUR Reconciled" in words(page)

        page.goto("/notifications")
        page.get_by_label("Low-balance threshold").focus()
        page.keyboard.type("20")
        by_keyboard(page, "button", "Save")
        expect(page.get_by_role("status")).to_contain_text("Notifications saved.")
        expect(page.get_by_label("Low-balance threshold")).to_have_value("20.00")


def test_staff_find_an_account_by_a_mail_look_at_it_credit_it_and_disable_a_provider(
    chromium: Browser, customer: Customer
) -> None:
    gateway = customer.gateway
    member = add_person(gateway, f"member@{customer.name}.example", account=customer.name, password=None)
    email = add_person(gateway, f"staff@{customer.name}.example", staff=True, password=None)
    context = chromium.new_context(base_url=gateway.origin)
    page = context.new_page()
    context.add_cookies([sessions(gateway, [email])[email]])
    page.goto("/admin/accounts/account/")
    page.locator("#searchbar").focus()
    page.keyboard.type(f"{member}\n")
    page.get_by_role("link", name=customer.name).first.click()
    page.get_by_role("link", name="Dashboard").click()
    assert f"You are viewing {customer.name} as staff. Read-only. This visit is logged." in words(page)
    page.get_by_role("link", name="Account in the admin").click()
    page.get_by_role("link", name="Add credit").click()
    page.get_by_label("Amount").fill("25.5")
    page.get_by_label("Reference").fill("invoice 4711")
    page.get_by_label("Reason").fill("Paid by bank transfer")
    page.get_by_role("button", name="Continue").click()
    assert "Balance after it 125.50 EUR" in words(page)
    page.get_by_role("button", name="Confirm").click()
    # The response gets no name: Playwright keeps this frame, which would keep the connection beyond the test's end.
    answer = customer.http.post("/v1/chat/completions", json={"model": ECHO, "messages": HELLO}).json()
    assert answer["usage"]["remaining_balance"] == 125.4999964
    page.goto("/admin/admin/logentry/")
    assert "invoice 4711" in words(page)

    page.goto("/admin/catalogue/provider/")
    page.get_by_role("link", name="simanthropic", exact=True).first.click()
    page.get_by_role("link", name="Disable provider").click()
    page.get_by_label("Reason").focus()
    page.keyboard.type("Answers are cut\n")
    of_provider = {"model": "simanthropic/test/echo/DEFRA", "messages": HELLO}
    assert eventually(lambda: customer.http.post("/v1/chat/completions", json=of_provider).status_code == 503)
    assert "Answers are cut" in customer.http.post("/v1/chat/completions", json=of_provider).json()["error"]["message"]
    page.get_by_role("link", name="Serve again").first.click()
    page.get_by_role("button", name="Serve again").click()
    assert eventually(lambda: customer.http.post("/v1/chat/completions", json=of_provider).status_code == 200)
    context.close()
