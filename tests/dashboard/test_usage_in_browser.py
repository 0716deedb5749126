"""The usage pages in a real browser: with charts, and without JavaScript by links and forms alone."""

import re

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser import PHONE, signed_in, too_wide
from tests.chat import answer
from tests.servers.customer import Customer

COLOURS = """
canvas => {
  const pixels = new Uint32Array(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer);
  return [...new Set(pixels)].filter(pixel => pixel >>> 24 === 255);
}
"""


@pytest.fixture
def busy(customer: Customer) -> Customer:
    """A customer with requests of two models in two regions."""
    for slug in ("echo", "sim/test/echo/DEFRA", "chunks"):
        answer(customer, slug)
    return customer


def colours(canvas: Locator) -> set[int]:
    """The opaque colours of the drawing; where lines blend with the ground, both schemes may have the same."""
    return {*canvas.evaluate(COLOURS)}


def row(page: Page, table: str, name: str) -> str:
    """The words of a row in the table under this heading."""
    line = page.get_by_role("region", name=table, exact=True).get_by_role("row").filter(has_text=name)
    return re.sub(r"\s+", " ", line.inner_text())


def test_a_chart_shows_the_measure_that_the_keyboard_chooses_in_the_colours_of_the_scheme(
    chromium: Browser, busy: Customer
) -> None:
    with signed_in(chromium, busy, color_scheme="light", reduced_motion="reduce") as page:
        page.get_by_role("link", name="Usage", exact=True).click()
        chart = page.get_by_role("img", name=re.compile(r"^Cost by day from .* The peak is [^ ]+ EUR, on "))
        expect(chart).to_be_visible()
        light = colours(page.locator("canvas"))
        assert len(light) >= 3  # the grid and two parts
        page.get_by_role("radio", name="Cost").focus()
        page.keyboard.press("ArrowRight")
        expect(page.get_by_role("radio", name="Requests")).to_be_checked()
        expect(page.get_by_role("img", name=re.compile(r"^Requests by day .* The peak is 3, on "))).to_be_visible()
        page.get_by_role("radio", name="Latency").check()
        expect(page.get_by_role("img", name=re.compile(r"^Latency by day .* The peak is [^ ]+ s, on "))).to_be_visible()
        assert len(colours(page.locator("canvas"))) >= 3
        assert row(page, "Latency and errors by model", "sim/test/echo").startswith("sim/test/echo 2 0 0.0 % 0.0")
        page.emulate_media(color_scheme="dark")
        page.wait_for_function("() => matchMedia('(prefers-color-scheme: dark)').matches")
        dark = colours(page.locator("canvas"))
        assert len(dark) >= 3
        assert dark & light == set()
        expect(page.get_by_role("list", name="Parts of the chart").get_by_role("listitem")).to_have_text(
            ["sim/test/echo", "sim/test/chunks"]
        )


def test_without_scripts_links_and_forms_lead_everywhere(chromium: Browser, busy: Customer) -> None:
    with signed_in(chromium, busy, java_script_enabled=False) as page:
        page.get_by_role("link", name="Usage", exact=True).click()
        expect(page.get_by_role("img", name="Cost by day")).to_be_hidden()
        assert row(page, "By model", "sim/test/echo").startswith("sim/test/echo 2 4 / 4 < 0.0001 50.0 %")

        page.get_by_role("link", name="sim/test/echo", exact=True).click()
        assert row(page, "By region", "DEFRA").startswith("DEFRA 1 2 / 2 ")
        page.get_by_label("From").fill("2020-05-02")
        page.get_by_label("To", exact=True).fill("2020-05-01")
        page.get_by_role("button", name="Apply").click()
        expect(page.get_by_label("From")).to_have_accessible_description(re.compile("Date is after the end date"))
        page.get_by_label("From").fill("2020-05-01")
        page.get_by_role("button", name="Apply").click()
        expect(page.get_by_role("heading", name="No requests in this period")).to_be_visible()
        page.get_by_role("link", name="7 days").click()
        page.get_by_role("link", name="Requests of DEFRA").click()
        records = page.get_by_role("region", name="newest first").get_by_role("row")
        expect(records).to_have_count(2)
        records.nth(1).get_by_role("link").first.click()
        assert "sim/test/echo/DEFRA" in page.get_by_role("region", name="Route").inner_text()
        expect(page.get_by_role("button", name="Copy")).to_be_hidden()


def test_no_page_is_wider_than_its_window(chromium: Browser, busy: Customer) -> None:
    answer(busy, "simanthropic/test/cache-write/FRPAR", max_tokens=16)
    with signed_in(chromium, busy, viewport={"width": PHONE, "height": 800}) as page:  # charts follow a window later
        page.goto("/usage?by=model")
        expect(page.locator("canvas")).to_be_visible()
        assert too_wide(page) == {}
        page.goto("/usage/records?region=FRPAR")
        assert too_wide(page) == {}
        page.get_by_role("region", name="newest first").get_by_role("row").nth(1).get_by_role("link").first.click()
        assert too_wide(page) == {}
