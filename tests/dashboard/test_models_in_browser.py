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


def test_the_code_of_a_route_is_found_by_keyboard(chromium: Browser, customer: Customer) -> None:
    with signed_in(chromium, customer, permissions=["clipboard-read", "clipboard-write"]) as page:
        page.goto("/models?q=two+prices")
        page.get_by_role("link", name="Two prices").focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text("Two prices")
        page.get_by_label("Route", exact=True).focus()
        page.keyboard.type("sim/test/two-prices/DEFRA")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page).to_have_url(re.compile(r"route=sim%2Ftest%2Ftwo-prices%2FDEFRA#code"))
        page.get_by_role("radio", name="curl").focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page.get_by_role("button", name="Copied")).to_be_visible()
        assert 'model="sim/test/two-prices/DEFRA"' in page.evaluate("navigator.clipboard.readText()")


def test_no_page_is_wider_than_its_window(chromium: Browser, customer: Customer) -> None:
    with signed_in(chromium, customer) as page:
        for width in (1440, 1024, 360, 320):
            page.set_viewport_size({"width": width, "height": 800})
            for path in ("/models?q=echo", "/models/test/echo"):
                page.goto(path)
                page.locator("details").evaluate_all("all => all.forEach(one => { one.open = true; })")
                assert beyond(page, width) == []
