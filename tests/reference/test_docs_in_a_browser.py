"""Tests the documentation in a browser, with and without script: samples, contents list, search."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.browser import signed_in
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer
from tests.test_accessibility import BUT_COLOURS, COLOURS, faults, turn_dark

PATHS = ["/docs/guide", "/docs/api", "/docs/reference", "/docs/reference/inference", "/docs/search?q=cost"]


@pytest.fixture
def page(chromium: Browser, gateway: GatewayServer) -> Page:
    return chromium.new_context(base_url=gateway.origin, viewport={"width": 1440, "height": 900}).new_page()


def test_the_chosen_language_holds_for_every_sample_and_page(page: Page) -> None:
    page.goto("/docs/guide")
    first, last = page.locator(".samples").first, page.locator(".samples").last
    expect(first.locator("pre:visible")).to_have_count(1)
    first.get_by_role("radio", name="Node").check(force=True)
    for group in (first, last):
        expect(group.locator("pre:visible")).to_contain_text("import OpenAI from")
    page.reload()
    expect(first.get_by_role("radio", name="Node")).to_be_checked()
    expect(first.locator("pre:visible")).to_contain_text("import OpenAI from")
    first.get_by_role("radio", name="Node").press("ArrowLeft")
    expect(last.get_by_role("radio", name="Python")).to_be_checked()


def test_without_script_every_language_is_visible_with_its_name(chromium: Browser, gateway: GatewayServer) -> None:
    page = chromium.new_context(base_url=gateway.origin, java_script_enabled=False).new_page()
    page.goto("/docs/guide")
    first = page.locator(".samples").first
    expect(first.locator("pre:visible")).to_have_count(3)
    assert first.locator(".language").all_inner_texts() == ["curl", "Python", "Node"]
    expect(page.get_by_role("button", name="Copy")).to_have_count(0)
    page.get_by_label("Search the documentation").fill("aliases")
    page.get_by_label("Search the documentation").press("Enter")
    expect(page.get_by_role("heading", name="Aliases").first).to_be_visible()


def test_a_sample_is_copied_as_it_is_shown(page: Page) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto("/docs/guide")
    first = page.locator(".samples").first
    first.get_by_role("button", name="Copy").click()
    expect(first.get_by_role("button", name="Copied")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == first.locator("pre:visible").inner_text().strip()


def test_the_contents_list_marks_the_section_in_view(page: Page) -> None:
    page.goto("/docs/api")
    contents = page.get_by_role("navigation", name="On this page")
    expect(contents.locator("[aria-current]")).to_have_count(1)
    page.locator("#streaming").evaluate("heading => heading.scrollIntoView()")
    expect(contents.locator("[aria-current]")).to_have_text("Streaming")
    expect(contents.locator("[aria-current]")).to_be_in_viewport()


def test_the_contents_list_follows_page_by_page(page: Page) -> None:
    page.goto("/docs/api")
    current = page.get_by_role("navigation", name="On this page").locator("[aria-current]")
    heads = page.locator(".document :is(h2, h3)[id]")
    for number in (3, 6, 9):
        # The jump passes headings that are never at the top of a frame.
        heads.nth(number).evaluate(
            "heading => scrollBy({top: heading.getBoundingClientRect().top + 40, behavior: 'instant'})"
        )
        passed = heads.evaluate_all(
            "all => all.filter(one => one.getBoundingClientRect().top < innerHeight / 4).at(-1).id"
        )
        expect(current).to_have_attribute("href", f"#{passed}")


def test_a_link_with_an_anchor_opens_at_its_section(page: Page) -> None:
    page.goto("/docs/guide#errors-and-retries")
    expect(page.locator("#errors-and-retries")).to_be_in_viewport()


def test_the_contents_list_is_folded_on_a_phone(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto("/docs/guide")
    contents = page.get_by_role("navigation", name="On this page")
    expect(contents).to_be_hidden()
    page.get_by_text("On this page").first.click()
    contents.get_by_role("link", name="Aliases").click()
    expect(page.locator("#aliases")).to_be_in_viewport()
    expect(contents).to_be_hidden()


def test_a_slash_moves_to_the_search_except_while_typing(page: Page) -> None:
    page.goto("/docs/guide")
    page.keyboard.press("/")
    search = page.get_by_label("Search the documentation")
    expect(search).to_be_focused()
    page.keyboard.type("v1/models")
    expect(search).to_have_value("v1/models")


@pytest.mark.parametrize("path", PATHS)
def test_nothing_is_wider_than_a_small_phone(page: Page, path: str) -> None:
    page.set_viewport_size({"width": 320, "height": 640})
    page.goto(path)
    assert page.evaluate("document.documentElement.scrollWidth") == 320


def test_it_has_no_serious_fault_in_any_look(chromium: Browser, account: Customer) -> None:
    with signed_in(chromium, account, bypass_csp=True) as page:
        page.context.add_init_script(Axe().axe_script)
        for path in ("/docs/guide", "/docs/reference/webhooks", "/docs/search?q=cost"):
            for width in (1440, 390):
                page.emulate_media(color_scheme="light")
                page.set_viewport_size({"width": width, "height": 900})
                page.goto(path)
                assert faults(page, BUT_COLOURS) + faults(page, COLOURS) == [], (path, width)
                turn_dark(page)
                assert faults(page, COLOURS) == [], (path, width)
