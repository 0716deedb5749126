"""The product as a person meets it, from page to page in a real browser: a member with a key, and the staff behind."""

import json
import re
import subprocess

from playwright.sync_api import Browser, Page, expect

from tests.browser import add_person, sign_in, signed_in
from tests.chat import HELLO
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer

ECHO = "sim/test/echo/FRPAR"


def curl(gateway: GatewayServer, token: str) -> tuple[int, dict[str, object]]:
    """The status and the answer of a chat completion, asked for as the README does."""
    body = json.dumps({"model": ECHO, "messages": HELLO})
    headers = ["-H", f"Authorization: Bearer {token}", "-H", "Content-Type: application/json"]
    command = ["curl", "-sS", "-w", "\n%{http_code}", *headers, "-d", body, f"{gateway.base_url}/chat/completions"]
    answer, _, status = subprocess.run(command, check=True, capture_output=True, text=True).stdout.rpartition("\n")
    return int(status), json.loads(answer)


def go(page: Page, name: str) -> None:
    """By the bar on top."""
    page.get_by_role("navigation", name="Pages").get_by_role("link", name=name, exact=True).click()


def words(page: Page) -> str:
    return re.sub(r"\s+", " ", page.locator("main").inner_text())


def test_a_member_makes_a_key_uses_it_sees_what_it_cost_and_deletes_it(chromium: Browser, customer: Customer) -> None:
    with signed_in(chromium, customer, role="member") as page:
        expect(page.get_by_role("heading", level=1)).to_have_text(customer.name)
        go(page, "API keys")
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
        assert "sim/test/echo" in words(page)

        go(page, "Aliases")
        page.get_by_role("textbox", name="Name").fill("fast")
        page.get_by_role("combobox", name="Target").select_option(ECHO)
        page.get_by_role("button", name="Create alias").click()
        go(page, "Members")
        assert f"member@{customer.name}.example" in words(page)
        expect(page.get_by_role("button", name="Invite")).to_have_count(0)  # a member is no owner

        go(page, "API keys")
        page.get_by_role("link", name="Delete laptop").click()
        page.get_by_role("button", name="Delete").click()
        status, refused = curl(customer.gateway, token)
        assert status == 401
        assert refused["error"]["code"] == "api_key_not_registered"  # type: ignore[index]
        page.goto("/usage?by=key")
        assert f"laptop deleted sk-gw-…{token[-4:]} 1 2 / 2" in words(page)  # its name stays in the history


def test_staff_grant_credit_that_counts_at_once_and_is_in_the_log(chromium: Browser, customer: Customer) -> None:
    gateway = customer.gateway
    email = add_person(gateway, f"staff@{customer.name}.example", staff=True)
    context = chromium.new_context(base_url=gateway.origin)
    page = context.new_page()
    page.goto("/admin/accounts/account/")
    sign_in(page, email)
    page.locator("#searchbar").fill(customer.name)
    page.get_by_role("button", name="Search").click()
    page.get_by_role("link", name=customer.name, exact=True).click()
    page.get_by_role("link", name="Add credit").click()
    page.get_by_label("Amount").fill("25.5")
    page.get_by_label("Reference").fill("invoice 4711")
    page.get_by_label("Reason").fill("Paid by bank transfer")
    page.get_by_role("button", name="Continue").click()
    assert "Balance after it 125.50 EUR" in words(page)
    page.get_by_role("button", name="Confirm").click()
    reply = customer.http.post("/v1/chat/completions", json={"model": ECHO, "messages": HELLO})
    assert reply.json()["usage"]["remaining_balance"] == 125.4999964
    page.goto("/admin/admin/logentry/")
    assert "invoice 4711" in words(page)
    context.close()
