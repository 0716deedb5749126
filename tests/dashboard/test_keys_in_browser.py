"""The keys page in a real browser: a key's whole life by forms alone, and what a script adds."""

import re

import requests
from playwright.sync_api import Browser, Page, expect

from tests.browser import signed_in, too_wide
from tests.servers.customer import Customer

MESSAGES = {"model": "sim/test/echo", "messages": [{"role": "user", "content": "Hello"}]}


def create(page: Page, name: str, expiry: str | None = None) -> None:
    page.get_by_role("textbox", name="Name").fill(name)
    if expiry is not None:
        page.get_by_role("combobox", name="Expiry").select_option(expiry)
    page.get_by_role("button", name="Create key").click()


def token_on(page: Page) -> str:
    return page.get_by_role("group", name="The new key").locator("code").inner_text()


def use(customer: Customer, token: str) -> requests.Response:
    return customer.http.post("/v1/chat/completions", json=MESSAGES, headers={"Authorization": f"Bearer {token}"})


def row(page: Page, name: str) -> str:
    """The words of a key's row in the list."""
    line = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name=name))
    return re.sub(r"\s+", " ", line.inner_text())


def test_a_key_lives_through_forms_alone(chromium: Browser, customer: Customer) -> None:
    with signed_in(chromium, customer, role="member", java_script_enabled=False) as page:
        page.get_by_role("link", name="API keys", exact=True).click()
        create(page, "laptop", "1 year")
        token = token_on(page)
        assert use(customer, token).status_code == 200
        assert f'Bearer {token}"' in page.get_by_label("Example request").inner_text()
        expect(page.get_by_role("button", name="Copy key")).to_be_hidden()

        page.get_by_role("link", name="Back to API keys").click()
        assert f"laptop sk-gw-…{token[-4:]} active" in row(page, "laptop")
        assert token not in page.content()

        page.get_by_role("link", name="Delete laptop").click()
        page.get_by_role("link", name="Cancel").click()
        assert use(customer, token).status_code == 200
        page.get_by_role("link", name="Delete laptop").click()
        page.get_by_role("button", name="Delete").click()
        expect(page.get_by_role("status")).to_contain_text("laptop has been deleted.")
        refused = use(customer, token)
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "api_key_not_registered")
        expect(page.get_by_role("rowheader", name="laptop")).to_have_count(0)


def test_a_button_copies_the_key_and_a_double_click_creates_one(chromium: Browser, customer: Customer) -> None:
    clipboard = ["clipboard-read", "clipboard-write"]
    with signed_in(chromium, customer, permissions=clipboard) as page:
        page.goto("/keys")
        page.get_by_role("textbox", name="Name").fill("laptop")
        page.get_by_role("button", name="Create key").dblclick()
        token = token_on(page)
        page.get_by_role("button", name="Copy key").click()
        expect(page.get_by_role("button", name="Copied")).to_be_visible()
        assert page.evaluate("navigator.clipboard.readText()") == token
        assert use(customer, token).status_code == 200


def test_no_page_is_wider_than_its_window(chromium: Browser, customer: Customer) -> None:
    customer.another_key("k" * 200, "--rpm", "60", "--tpm", "100000")
    with signed_in(chromium, customer) as page:
        page.goto("/keys")
        assert too_wide(page) == {}
        create(page, "w" * 200)
        assert too_wide(page) == {}
        page.go_back()
        page.get_by_role("link", name="Delete kkk").click()
        assert too_wide(page) == {}
        for path in ("/password", "/password/reset", "/"):
            page.goto(path)
            assert too_wide(page) == {}
