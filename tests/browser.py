"""Opens pages in a real browser, the fixture `chromium`, signs in, and checks rules that hold on every page."""

import asyncio
import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from playwright.sync_api import Browser, Page, sync_playwright

from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer
from tests.servers.programs import find_program

PASSWORD = "correct horse battery staple"
# On a phone, table heads are for screen readers only, a long `pre` is scrolled, and a menu truncates the name on it.
SEEN = "body *:not(option, thead, thead *, .visually-hidden, pre *, summary bdi)"
# What a cell cuts off with an ellipsis is in its title.
BEYOND = """([seen, width]) => [...document.querySelectorAll(seen)].filter(element => {
  const box = element.getBoundingClientRect(), cell = element.parentElement?.closest("td[title]");
  const isCut = cell && getComputedStyle(cell).textOverflow === "ellipsis";
  if (isCut && cell.getBoundingClientRect().right <= width) return false;
  return box.right > width && box.width > 0 && box.height > 0 && element.checkVisibility({visibilityProperty: true});
}).map(element => element.innerText ?? element.outerHTML)"""
PERSON = """
from accounts.models import Account, Membership, User
user = User.objects.filter(email={email!r}).first() or User.objects.create_user({email!r}, {password!r}, **{rights!r})
if {account!r}:
    Membership.objects.create(user=user, account=Account.objects.get(name={account!r}), role={role!r})
"""
# Sessions are made as the login page makes them. The page itself takes a second of CPU time, because it hashes the
# password slowly on purpose.
SESSIONS = """
import json
from django.test import Client
from accounts.models import User
clients = {{email: Client() for email in {emails!r}}}
for email, client in clients.items():
    client.force_login(User.objects.get(email=email))
print(json.dumps({{email: client.session.session_key for email, client in clients.items()}}))
"""
STAFF = {"is_staff": True, "is_superuser": True}


@dataclass(frozen=True, slots=True)
class LentBrowser:
    """Lends the one browser of a process to one test at a time.

    Between calls, Playwright leaves its idle event loop marked as running in this thread, and Django refuses database
    access in a thread with a running loop. The mark is removed while no test has the browser.
    """

    browser: Browser
    _loop: asyncio.AbstractEventLoop

    @classmethod
    @contextlib.contextmanager
    def running(cls) -> Iterator[Self]:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=find_program("chromium"), args=["--no-sandbox"])
            loop = asyncio.get_running_loop()
            asyncio._set_running_loop(None)
            try:
                yield cls(browser, loop)
            finally:
                asyncio._set_running_loop(loop)
                browser.close()

    @contextlib.contextmanager
    def lend(self) -> Iterator[Browser]:
        """Lends the browser, with no page open, until the end of the block."""
        asyncio._set_running_loop(self._loop)
        try:
            yield self.browser
            for context in self.browser.contexts:
                context.close()
        finally:
            asyncio._set_running_loop(None)


def add_person(
    gateway: GatewayServer,
    email: str,
    *,
    account: str | None = None,
    role: str = "member",
    staff: bool = False,
    password: str | None = PASSWORD,
) -> str:
    """Adds a person to a gateway, as a member of the account if one is named, and returns the address."""
    rights = STAFF if staff else {}
    code = PERSON.format(email=email, password=password, account=account, role=role, rights=rights)
    gateway.manage("shell", "-v0", "--no-imports", "-c", code).ok()
    return email


def sessions(gateway: GatewayServer, emails: Iterable[str]) -> Mapping[str, Any]:
    """Creates a session for each of these people and returns its cookie in Playwright's form."""
    keys = json.loads(gateway.manage("shell", "-v0", "--no-imports", "-c", SESSIONS.format(emails=[*emails])).ok())
    return {email: {"name": "sessionid", "value": key, "url": gateway.origin} for email, key in keys.items()}


@contextlib.contextmanager
def signed_in(
    chromium: Browser, customer: Customer, *, role: str = "owner", staff: bool = False, **options: Any
) -> Iterator[Page]:
    """Opens a page for a new member of the customer's account, who has no password.

    `options` are Playwright's options for a context. The browser must report no errors, in particular no violation of
    the Content-Security-Policy.
    """
    email = f"{role}{'-staff' if staff else ''}@{customer.name}.example"
    add_person(customer.gateway, email, account=customer.name, role=role, staff=staff, password=None)
    context = chromium.new_context(base_url=customer.gateway.origin, **options)
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    context.add_cookies([sessions(customer.gateway, [email])[email]])
    page.goto("/")
    yield page
    context.close()
    assert [complaint for complaint in complaints if "422" not in complaint] == []  # 422: a form with errors


def sign_in(page: Page, email: str, password: str = PASSWORD) -> None:
    """Fills in the form of the login page."""
    page.get_by_label("Email address").fill(email)
    page.get_by_label("Password", exact=True).fill(password)
    page.get_by_role("button", name="Sign in", exact=True).click()


def open_menu(page: Page) -> None:
    """Opens the menu of the signed-in person: password, admin, signing out."""
    page.locator("summary", has_text="Signed in as").click()


def follow_account_menu(page: Page, name: str) -> None:
    """Opens a page that is set up once: its link is in the menu "Account" of the bar."""
    page.locator(".account-menu > summary").click()
    page.get_by_role("link", name=name).click()


def beyond(page: Page, width: int) -> list[str]:
    """Returns the visible elements that reach beyond the right edge."""
    found: list[str] = page.evaluate(BEYOND, [SEEN, width])
    return found
