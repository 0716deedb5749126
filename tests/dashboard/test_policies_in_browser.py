"""The example of docs/policies.md is set from the pages by keyboard alone, and is what its command sets."""

import json
import re

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser import beyond, signed_in
from tests.servers.customer import Customer
from tests.servers.process import ROOT

HELSINKI = {"places": {"FIHEL": {"name": "Helsinki", "country": "FI", "eu": True, "eea": True}}}
MOST_TABS = 120  # far more than any field here needs


def tab_to(page: Page, target: Locator) -> None:
    """Presses the Tab key until the target has the focus."""
    for _ in range(MOST_TABS):
        if target.evaluate("one => one === document.activeElement"):
            return
        page.keyboard.press("Tab")
    pytest.fail(f"{target} is not reached by the Tab key")


def type_into(page: Page, label: str, *lines: str) -> None:
    tab_to(page, page.get_by_label(label, exact=True))
    page.keyboard.press("Control+a")
    for number, line in enumerate(lines):
        if number:
            page.keyboard.press("Enter")
        page.keyboard.type(line)


def press(page: Page, target: Locator, key: str = "Enter") -> None:
    tab_to(page, target)
    page.keyboard.press(key)


def example_of_the_document() -> str:
    text = (ROOT / "docs" / "policies.md").read_text()
    found = re.search(r"set_policy acme --key hr '(\{.*?\n    \})'", text, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_policy_of_the_hr_team_is_set_by_keyboard_alone_and_holds(chromium: Browser, customer: Customer) -> None:
    customer.gateway.seed(HELSINKI)
    with signed_in(chromium, customer) as page:
        press(page, page.get_by_role("link", name="API keys", exact=True))
        expect(page.get_by_role("heading", level=1)).to_have_text("API keys")
        press(page, page.get_by_role("link", name="Policy of test"))
        expect(page.get_by_role("heading", level=1)).to_have_text("Policy: test")
        type_into(page, "Per month (EUR)", "50")
        type_into(page, "Owners are told at", "80")
        press(page, page.get_by_label("EU-sovereign"), "Space")
        type_into(page, "Places", "FRPAR", "DEFRA", "FIHELL")
        press(page, page.get_by_label("Only providers that keep no prompts and answers"), "Space")
        press(page, page.get_by_role("button", name="Save policy"))

        alert = page.get_by_role("alert")
        expect(alert).to_contain_text("Places: Names no place of this catalogue: 'FIHELL'.")
        expect(alert).to_be_focused()
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page.get_by_label("Places", exact=True)).to_be_focused()
        type_into(page, "Places", "FRPAR", "DEFRA", "FIHEL")
        press(page, page.get_by_role("button", name="Save policy"))
        expect(page.get_by_role("status")).to_contain_text("The policy has been saved.")
        expect(page.get_by_text("0.0000 of 50.00 EUR per month")).to_be_visible()

    customer.another_key("hr", "--policy", example_of_the_document())
    by_keyboard, by_command = (
        json.loads(customer.gateway.manage("show_policy", customer.name, "--key", name).ok()) for name in ("test", "hr")
    )
    assert by_keyboard == by_command
    assert by_keyboard["locodes"] == ["FRPAR", "DEFRA", "FIHEL"]
    refused = customer.http.post(
        "/v1/chat/completions",
        json={"model": "sim/test/echo", "messages": [{"role": "user", "content": "hi"}]},
    )
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "policy_denied")


def test_the_pages_of_policies_fit_a_phone(chromium: Browser, customer: Customer) -> None:
    rules = {"providers": ["sim"], "models": ["sim/" + "a" * 200], "budget": {"amount": "12345678.90", "period": "day"}}
    for level in ([], ["--default"], ["--tag", f"{'t' * 32}={'v' * 32}"], ["--key", "test"]):
        customer.gateway.manage("set_policy", customer.name, json.dumps(rules), *level).ok()
    customer.gateway.manage("set_tags", customer.name, "--key", "test", "--tag", f"{'t' * 32}={'v' * 32}").ok()
    with signed_in(chromium, customer) as page:
        page.goto("/keys")
        key = str(page.get_by_role("link", name="Policy of test").get_attribute("href"))
        for path in (
            "/policies",
            key,
            "/policies/account",
            "/policies/new-keys",
            f"/policies/tags/{'t' * 32}={'v' * 32}",
            "/keys",
        ):
            page.set_viewport_size({"width": 320, "height": 800})
            page.goto(path)
            page.locator("main details").evaluate_all("all => all.forEach(one => { one.open = true; })")
            for width in (320, 768, 1280):
                page.set_viewport_size({"width": width, "height": 800})
                assert beyond(page, width) == [], f"{path} at {width}"
