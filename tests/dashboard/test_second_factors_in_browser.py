"""Second factors and sessions work in a real browser, whose policy allows only the gateway's own scripts."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value
from playwright.sync_api import Browser, Page, expect

from tests.browser import PASSWORD, add_person, open_menu, sign_in
from tests.servers.customer import Customer

AUTHENTICATOR = {
    "protocol": "ctap2",
    "transport": "internal",
    "hasResidentKey": True,
    "hasUserVerification": True,
    "isUserVerified": True,
    "automaticPresenceSimulation": True,
}


@pytest.fixture
def person(customer: Customer) -> str:
    return add_person(customer.gateway, f"factors@{customer.name}.example", account=customer.name, role="owner")


@contextmanager
def browser_of(chromium: Browser, customer: Customer) -> Iterator[Page]:
    """Opens a browser at the gateway's name, since passkeys belong to a name, and not to an address such as 127.0.0.1.

    The browser must report no errors, in particular no violation of the Content-Security-Policy.
    """
    context = chromium.new_context(base_url=customer.gateway.origin.replace("127.0.0.1", "localhost"))
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    context.close()
    assert [complaint for complaint in complaints if "422" not in complaint] == []  # 422: a form with errors


def enter(page: Page, email: str) -> None:
    page.goto("/login")
    sign_in(page, email)


def confirm(page: Page) -> None:
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Continue").click()


def code_of(secret: str, steps: int = 0) -> str:
    return format_hotp_value(hotp_value(secret, int(time.time()) // 30 + steps))


def test_an_app_and_its_recovery_codes_sign_in(chromium: Browser, customer: Customer, person: str) -> None:
    with browser_of(chromium, customer) as page:
        enter(page, person)
        open_menu(page)
        page.get_by_role("link", name="Security").click()
        page.get_by_role("link", name="Add an app").click()
        confirm(page)
        expect(page.get_by_role("img", name="QR code of the secret below")).to_be_visible()
        assert page.evaluate("document.querySelector('.qr').naturalWidth") > 0
        secret = page.locator("#secret").inner_text().replace(" ", "")
        page.get_by_label("Code of the app").fill("000000")
        page.get_by_role("button", name="Add app").click()
        expect(
            page.get_by_role("listitem").filter(has_text="This code does not belong to the secret.").last
        ).to_be_visible()
        assert page.locator("#secret").inner_text().replace(" ", "") == secret
        page.get_by_label("Code of the app").fill(code_of(secret))
        page.get_by_role("button", name="Add app").click()
        expect(page.get_by_text("Authenticator app added.")).to_be_visible()
        recovery = page.locator("#recovery-codes").inner_text().split()
        assert len(recovery) == 10
    for code in (code_of(secret), recovery[0]):
        with browser_of(chromium, customer) as page:
            enter(page, person)
            page.get_by_label("Code").fill(code)
            page.get_by_role("button", name="Sign in", exact=True).click()
            expect(page.get_by_role("link", name="Overview")).to_be_attached()
    with browser_of(chromium, customer) as page:
        enter(page, person)
        page.get_by_label("Code").fill(recovery[0])
        page.get_by_role("button", name="Sign in", exact=True).click()
        expect(page.get_by_text("This code is wrong or has been used.").last).to_be_visible()


def test_a_passkey_is_added_signs_in_and_is_removed(chromium: Browser, customer: Customer, person: str) -> None:
    with browser_of(chromium, customer) as page:
        devices = page.context.new_cdp_session(page)
        devices.send("WebAuthn.enable")
        devices.send("WebAuthn.addVirtualAuthenticator", {"options": AUTHENTICATOR})
        enter(page, person)
        page.goto("/security")
        page.get_by_role("link", name="Add a passkey").click()
        confirm(page)
        page.get_by_label("Name", exact=True).fill("laptop")
        page.get_by_role("button", name="Add passkey").click()
        expect(page.get_by_text("Passkey added.")).to_be_visible()
        expect(page.locator("#recovery-codes")).to_be_visible()
        page.goto("/security")
        page.get_by_role("link", name="Rename laptop").click()
        page.get_by_label("Name", exact=True).fill("work laptop")
        page.get_by_role("button", name="Rename").click()
        expect(page.get_by_role("rowheader", name="work laptop")).to_be_visible()

        sign_out(page)
        page.get_by_role("button", name="Sign in with a passkey").click()
        expect(page.get_by_role("link", name="Overview")).to_be_attached()

        sign_out(page)
        sign_in(page, person)  # with the password, which is not enough now
        page.get_by_role("button", name="Use a passkey").click()
        expect(page.get_by_role("link", name="Overview")).to_be_attached()

        page.goto("/security")
        page.get_by_role("link", name="Remove work laptop").click()
        confirm(page)
        page.get_by_role("button", name="Remove passkey").click()
        expect(page.get_by_text("Passkey removed.")).to_be_visible()
        sign_out(page)
        sign_in(page, person)
        expect(page.get_by_role("link", name="Overview")).to_be_attached()


def test_another_browser_is_signed_out_at_once(chromium: Browser, customer: Customer, person: str) -> None:
    with browser_of(chromium, customer) as here, browser_of(chromium, customer) as there:
        for page in (here, there):
            enter(page, person)
        open_menu(here)
        here.get_by_role("link", name="Sessions").click()
        expect(here.get_by_role("row")).to_have_count(3)
        here.get_by_role("button", name="Sign out of all others").click()
        expect(here.get_by_text("You are signed out everywhere else.")).to_be_visible()
        expect(here.get_by_role("row")).to_have_count(2)
        there.reload()
        expect(there.get_by_role("heading", name="Sign in")).to_be_visible()


def sign_out(page: Page) -> None:
    open_menu(page)
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
