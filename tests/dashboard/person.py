"""Lets a test use pages as a person does who has only a keyboard, and counts their clicks."""

import contextlib
from collections.abc import Iterator

from playwright.sync_api import Browser, Download, Locator, Page, expect

from tests.browser import sessions
from tests.servers.gateway import GatewayServer


class Person:
    """Uses pages by keyboard, and counts what they follow, press and choose."""

    def __init__(self, page: Page) -> None:
        self.page, self.clicks = page, 0

    @classmethod
    @contextlib.contextmanager
    def at(cls, chromium: Browser, gateway: GatewayServer, email: str | None, path: str) -> Iterator["Person"]:
        """Opens a page for a person who is signed in, or for a stranger if no address is given."""
        context = chromium.new_context(
            base_url=gateway.origin,
            viewport={"width": 1280, "height": 800},
            permissions=["clipboard-read", "clipboard-write"],
        )
        if email is not None:
            context.add_cookies([sessions(gateway, [email])[email]])
        page = context.new_page()
        page.goto(path)
        yield cls(page)
        context.close()

    def follow(self, name: str) -> None:
        self.press(self.page.get_by_role("link", name=name, exact=True).first)

    def go(self, name: str) -> None:
        """Follows a link of the bar."""
        self.press(self.page.get_by_role("navigation", name="Pages").get_by_role("link", name=name, exact=True))

    def set_up(self, name: str) -> None:
        """Opens the menu "Account" of the bar and follows a link in it: two clicks."""
        self.use(self.page.locator(".account-menu > summary"))
        self.press(self.page.locator(".account-menu").get_by_role("link", name=name, exact=True))

    def push(self, name: str) -> None:
        """Presses a button that leads to another page."""
        self.press(self.page.get_by_role("button", name=name, exact=True).first)

    def press(self, wanted: Locator) -> None:
        """Presses what leads to another page, and waits for that page."""
        with self.page.expect_navigation():
            self.use(wanted)

    def use(self, wanted: Locator) -> None:
        """Presses what stays on the page."""
        self.clicks += 1
        wanted.focus()
        self.page.keyboard.press("Enter")

    def copy(self, wanted: Locator) -> str:
        """Presses a button that copies, and returns what is in the clipboard then."""
        self.use(wanted)
        expect(self.page.get_by_role("button", name="Copied")).to_be_visible()
        text: str = self.page.evaluate("navigator.clipboard.readText()")
        return text

    def tick(self, box: Locator) -> None:
        self.clicks += 1
        box.focus()
        self.page.keyboard.press("Space")

    def download(self, wanted: Locator) -> Download:
        self.clicks += 1
        wanted.focus()
        with self.page.expect_download() as download:
            self.page.keyboard.press("Enter")
        return download.value

    def type(self, field: Locator, text: str) -> None:
        """Types in place of what the field has."""
        field.focus()
        self.page.keyboard.press("ControlOrMeta+A")
        self.page.keyboard.type(text)

    def words(self) -> str:
        return " ".join(self.page.locator("main").inner_text().split())
