"""The bar in a real browser: one row, and menus that need no script."""

from playwright.sync_api import Browser, expect

from tests.browser import open_menu, signed_in
from tests.servers.customer import Customer


def test_its_menu_opens_by_keyboard_and_without_scripts(chromium: Browser, account: Customer) -> None:
    desk = {"width": 1280, "height": 800}
    with signed_in(chromium, account, staff=True, java_script_enabled=False, viewport=desk) as page:
        bar = page.get_by_role("banner").bounding_box()
        assert bar
        assert bar["height"] < 70
        page.locator(".person summary").press("Enter")
        expect(page.get_by_role("link", name="Admin")).to_be_visible()
        page.get_by_role("link", name="Change password").click()
        expect(page.get_by_role("heading", name="Your password")).to_be_visible()
        open_menu(page)
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_escape_and_a_press_elsewhere_close_its_menu(chromium: Browser, account: Customer) -> None:
    with signed_in(chromium, account) as page:
        sign_out = page.get_by_role("button", name="Sign out")
        open_menu(page)
        expect(sign_out).to_be_visible()
        page.keyboard.press("Escape")
        expect(sign_out).to_be_hidden()
        expect(page.locator(".person summary")).to_be_focused()
        open_menu(page)
        page.get_by_role("heading", level=1).click()
        expect(sign_out).to_be_hidden()
