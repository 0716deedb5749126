"""The bar in a real browser: one row, and menus that need no script."""

from playwright.sync_api import Browser, expect

from tests.browser import beyond, open_menu, signed_in
from tests.servers.customer import Customer

PHONE = 390
NAMES = [
    "Tiny",
    "An-Institute-With-One-Word-For-A-Name-" * 2,
    "The Society for the Study of Very Long Names " * 2 + "AG",
]
FURTHER_ACCOUNTS = """
from accounts.models import Membership, User
from billing.accounts import open_account
user = User.objects.get(membership__account={owner!r})
for name in {names!r}:
    Membership.objects.create(user=user, account=open_account(name), role="member")
"""


def test_its_menu_opens_by_keyboard_and_without_scripts(chromium: Browser, customer: Customer) -> None:
    desk = {"width": 1280, "height": 800}
    with signed_in(chromium, customer, staff=True, java_script_enabled=False, viewport=desk) as page:
        bar = page.get_by_role("banner").bounding_box()
        assert bar
        assert bar["height"] < 70
        page.locator(".person summary").press("Enter")
        expect(page.get_by_role("link", name="Admin")).to_be_visible()
        page.get_by_role("link", name="Change password").click()
        expect(page.get_by_role("heading", name="Change password")).to_be_visible()
        open_menu(page)
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_its_menus_fit_a_phone(chromium: Browser, customer: Customer) -> None:
    with signed_in(chromium, customer, viewport={"width": PHONE, "height": 844}) as page:
        customer.gateway.manage("shell", "-v0", "-c", FURTHER_ACCOUNTS.format(owner=customer.id, names=NAMES)).ok()
        page.reload()
        for name in NAMES:
            page.locator(".switcher summary").click()
            page.get_by_role("link", name=name).click()
            expect(page.get_by_role("heading", level=1)).to_have_text(name)
            for menu in (".switcher", ".person"):
                page.locator(f"{menu} summary").click()
                expect(page.locator(f"{menu} .menu-items")).to_be_visible()
                assert beyond(page, PHONE) == []
                page.keyboard.press("Escape")


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
