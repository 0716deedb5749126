"""Pages in a real browser: signing in, and rules that hold on every page. The fixture `chromium` is the browser."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page

from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer

CHROMIUM = Path("/usr/bin/chromium")
PASSWORD = "correct horse battery staple"
# On a phone a table's head is for screen readers; what is long in a `pre` is scrolled to.
SEEN = "body *:not(option, thead, thead *, .visually-hidden, pre *):visible"
PHONE, DESK = 390, 1280
BEYOND = "(seen, width) => seen.filter(e => e.getBoundingClientRect().right > width).map(e => e.innerText)"
PERSON = """
from accounts.models import Account, Membership, User
user = User.objects.filter(email={email!r}).first() or User.objects.create_user({email!r}, {password!r}, **{rights!r})
if {account!r}:
    Membership.objects.create(user=user, account=Account.objects.get(name={account!r}), role={role!r})
"""
# As the login page makes it, which takes a second of CPU time: it hashes the password on purpose.
SESSION = """
from django.test import Client
from accounts.models import User
client = Client()
client.force_login(User.objects.get(email={email!r}))
print(client.session.session_key)
"""
STAFF = {"is_staff": True, "is_superuser": True}


def add_person(
    gateway: GatewayServer, email: str, *, account: str | None = None, role: str = "member", staff: bool = False
) -> str:
    """A person of a gateway, with PASSWORD, as a member of an account where one is named; returns the address."""
    rights = STAFF if staff else {}
    code = PERSON.format(email=email, password=PASSWORD, account=account, role=role, rights=rights)
    gateway.manage("shell", "-v0", "--no-imports", "-c", code).ok()
    return email


@contextlib.contextmanager
def signed_in(
    chromium: Browser, customer: Customer, *, role: str = "owner", staff: bool = False, **options: Any
) -> Iterator[Page]:
    """A page of a new member of the customer's account; `options` are Playwright's for a context.

    The browser may complain of no page, above all of none that breaks its Content-Security-Policy.
    """
    email = f"{role}{'-staff' if staff else ''}@{customer.name}.example"
    add_person(customer.gateway, email, account=customer.name, role=role, staff=staff)
    context = chromium.new_context(base_url=customer.gateway.origin, **options)
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    session = customer.gateway.manage("shell", "-v0", "--no-imports", "-c", SESSION.format(email=email)).ok()
    context.add_cookies([{"name": "sessionid", "value": session, "url": customer.gateway.origin}])
    page.goto("/")
    yield page
    context.close()
    assert [complaint for complaint in complaints if "422" not in complaint] == []  # a form that was sent back


def sign_in(page: Page, email: str, password: str = PASSWORD) -> None:
    """Fills in the form of the login page."""
    page.get_by_label("Email address").fill(email)
    page.get_by_label("Password", exact=True).fill(password)
    page.get_by_role("button", name="Sign in").click()


def open_menu(page: Page) -> None:
    """The menu of who is signed in: the password, the admin, signing out."""
    page.locator("summary", has_text="Signed in as").click()


def beyond(page: Page, width: int) -> list[str]:
    """What is seen and reaches beyond the right edge."""
    found: list[str] = page.locator(SEEN).evaluate_all(BEYOND, width)
    return found


def too_wide(page: Page) -> dict[int, list[str]]:
    """What reaches beyond the right edge of a phone, and of a desk."""
    found = {}
    for width in (PHONE, DESK):
        page.set_viewport_size({"width": width, "height": 800})
        found[width] = beyond(page, width)
    return {width: seen for width, seen in found.items() if seen}
