"""Scripts add charts, copy buttons and closing menus to the pages in a real browser."""

import re

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser import open_menu, signed_in
from tests.chat import answer
from tests.patience import eventually
from tests.servers.customer import Customer

COLOURS = """
canvas => {
  const pixels = new Uint32Array(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer);
  return [...new Set(pixels)].filter(pixel => pixel >>> 24 === 255);
}
"""


@pytest.fixture
def busy(customer: Customer) -> Customer:
    """Makes a customer with requests of two models in two regions."""
    for slug in ("echo", "sim/test/echo/DEFRA", "chunks"):
        answer(customer, slug)
    return customer


def colours(canvas: Locator) -> set[int]:
    """Returns the opaque colours of the drawing. Blended edges are left out: both schemes may share their colours."""
    return {*canvas.evaluate(COLOURS)}


def row(page: Page, table: str, name: str) -> str:
    """Returns the text of a row in the table under this heading."""
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
        page.get_by_role("radio", name="Latency p50").check()
        expect(
            page.get_by_role("img", name=re.compile(r"^Latency p50 by day .* The peak is [^ ]+ s, on "))
        ).to_be_visible()
        assert len(colours(page.locator("canvas"))) >= 3
        assert row(page, "Speed and errors by model", "sim/test/echo").startswith("sim/test/echo 2 0 0.0 % 0.0")
        page.emulate_media(color_scheme="dark")
        page.wait_for_function("() => matchMedia('(prefers-color-scheme: dark)').matches")
        canvas = page.locator("canvas")
        assert eventually(lambda: len(dark := colours(canvas)) >= 3 and dark & light == set())  # it is redrawn
        expect(page.get_by_role("list", name="Parts of the chart").get_by_role("listitem")).to_have_text(
            ["sim/test/echo", "sim/test/chunks"]
        )


def test_a_button_copies_the_key_and_a_double_click_creates_one(chromium: Browser, customer: Customer) -> None:
    clipboard = ["clipboard-read", "clipboard-write"]
    with signed_in(chromium, customer, permissions=clipboard) as page:
        page.goto("/keys")
        page.get_by_role("textbox", name="Name").fill("laptop")
        page.get_by_role("button", name="Create key").dblclick()
        token = page.get_by_role("group", name="The new key").locator("code").inner_text()
        page.get_by_role("button", name="Copy key").click()
        expect(page.get_by_role("button", name="Copied")).to_be_visible()
        assert page.evaluate("navigator.clipboard.readText()") == token
        headers = {"Authorization": f"Bearer {token}"}
        assert customer.http.get("/v1/models", headers=headers).status_code == 200
        page.goto("/keys")
        expect(page.get_by_role("rowheader", name="laptop")).to_have_count(1)


@pytest.mark.campaign
@pytest.mark.parametrize(("platform", "key"), [("MacIntel", "⌘C"), ("Linux x86_64", "Ctrl+C")])
def test_what_a_button_did_is_announced_with_the_keys_of_the_system(
    chromium: Browser, customer: Customer, platform: str, key: str
) -> None:
    with signed_in(chromium, customer) as page:
        page.add_init_script(
            f"Object.defineProperty(navigator, 'platform', {{get: () => '{platform}'}});"
            "navigator.clipboard.writeText = (text) => "
            "text.includes('curl') ? Promise.reject(new Error()) : Promise.resolve();"
        )
        page.goto("/models/test/echo")
        announced = page.locator("body > [aria-live]")
        expect(announced).to_have_text("")
        page.get_by_role("button", name="Copy").first.click()
        expect(announced).to_have_text("Copied")
        page.goto("/")
        page.get_by_role("button", name="Copy").first.click()
        expect(announced).to_have_text(f"Selected: press {key}")


def test_an_id_is_copied_and_the_code_of_a_route_is_found_by_keyboard(chromium: Browser, customer: Customer) -> None:
    with signed_in(chromium, customer, permissions=["clipboard-read", "clipboard-write"]) as page:
        page.goto("/models?q=two+prices")
        copy = page.get_by_role("button", name="Copy").first
        expect(copy).to_have_accessible_description("auto/test/two-prices")
        copy.click()
        expect(page.get_by_role("button", name="Copied")).to_be_visible()
        assert page.evaluate("navigator.clipboard.readText()") == "auto/test/two-prices"

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


@pytest.mark.campaign
def test_escape_and_a_press_elsewhere_close_its_menu(chromium: Browser, customer: Customer) -> None:
    with signed_in(chromium, customer) as page:
        sign_out = page.get_by_role("button", name="Sign out")
        open_menu(page)
        expect(sign_out).to_be_visible()
        page.keyboard.press("Escape")
        expect(sign_out).to_be_hidden()
        expect(page.locator(".person summary")).to_be_focused()
        open_menu(page)
        page.get_by_role("heading", level=1).click()
        expect(sign_out).to_be_hidden()
