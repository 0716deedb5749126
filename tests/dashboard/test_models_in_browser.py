"""The Models page in a real browser: found by forms alone, copied where there is JavaScript, on a desk and a phone."""

import re

from playwright.sync_api import Browser, expect

from tests.browser import beyond, signed_in
from tests.servers.customer import Customer


def test_a_model_is_found_opened_and_sorted_without_javascript(chromium: Browser, customer: Customer) -> None:
    with signed_in(chromium, customer, java_script_enabled=False) as page:
        page.get_by_role("link", name="Models", exact=True).click()
        page.get_by_role("searchbox").fill("two prices")
        page.get_by_label("Jurisdiction").select_option("EU-sovereign")
        page.get_by_role("button", name="Apply").click()
        expect(page).to_have_url(re.compile(r"\bq=two\+prices&jurisdiction=eu-sovereign\b"))
        expect(page.get_by_role("heading", level=3)).to_have_text("Two prices")
        expect(page.get_by_role("searchbox")).to_have_value("two prices")
        page.get_by_text("2 routes").click()
        expect(page.get_by_role("row", name="Frankfurt am Main, DE")).to_contain_text("0.90")
        expect(page.get_by_role("button", name="Copy")).to_have_count(0)  # it could do nothing
        page.get_by_role("navigation", name="Sort by").get_by_role("link", name="Carbon").click()
        expect(page).to_have_url(re.compile(r"\bq=two\+prices\b.*\bsort=carbon\b"))
        page.get_by_role("link", name="Clear the filters").click()
        expect(page.get_by_label("Jurisdiction")).to_have_value("")


def test_an_id_is_copied(chromium: Browser, customer: Customer) -> None:
    with signed_in(chromium, customer, permissions=["clipboard-read", "clipboard-write"]) as page:
        page.goto("/models?q=two+prices")
        copy = page.get_by_role("button", name="Copy").first
        expect(copy).to_have_accessible_description("auto/test/two-prices")
        copy.click()
        expect(page.get_by_role("button", name="Copied")).to_be_visible()
        assert page.evaluate("navigator.clipboard.readText()") == "auto/test/two-prices"


def test_no_list_is_wider_than_its_window(chromium: Browser, customer: Customer) -> None:
    with signed_in(chromium, customer) as page:
        for width in (1440, 1024, 360, 320):
            page.set_viewport_size({"width": width, "height": 800})
            page.goto("/models?q=echo")
            page.locator("details").evaluate_all("all => all.forEach(one => { one.open = true; })")
            assert beyond(page, width) == []
