"""Pages in a real browser: signing in, and rules that hold on every page. The fixture `chromium` is the browser."""

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
# On a phone a table's head is for screen readers; what is long in a `pre` is scrolled to; a menu cuts the name on it.
SEEN = "body *:not(option, thead, thead *, .visually-hidden, pre *, summary bdi)"
BEYOND = """([seen, width]) => [...document.querySelectorAll(seen)].filter(element => {
  const box = element.getBoundingClientRect();
  return box.right > width && box.width > 0 && box.height > 0 && element.checkVisibility({visibilityProperty: true});
}).map(element => element.innerText ?? element.outerHTML)"""
PERSON = """
from accounts.models import Account, Membership, User
user = User.objects.filter(email={email!r}).first() or User.objects.create_user({email!r}, {password!r}, **{rights!r})
if {account!r}:
    Membership.objects.create(user=user, account=Account.objects.get(name={account!r}), role={role!r})
"""
# As the login page makes them. The page takes a second of CPU time for each: it hashes the password on purpose.
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
    """One browser for all tests of a process, which one of them has at a time.

    Between its calls Playwright leaves its event loop marked as the one that runs in this thread, though it stands
    still, and Django refuses the database to a thread in which one runs. The mark is lifted while no test has the
    browser.
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
        """Lends the browser, without any page in it, until the end of the block."""
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
    """The cookie of a new session, as Playwright takes it, for each of these people."""
    keys = json.loads(gateway.manage("shell", "-v0", "--no-imports", "-c", SESSIONS.format(emails=[*emails])).ok())
    return {email: {"name": "sessionid", "value": key, "url": gateway.origin} for email, key in keys.items()}


@contextlib.contextmanager
def signed_in(
    chromium: Browser, customer: Customer, *, role: str = "owner", staff: bool = False, **options: Any
) -> Iterator[Page]:
    """Opens a page for a new member of the customer's account, who has no password.

    `options` are Playwright's for a context. The browser may complain of no page, above all of none that breaks its
    Content-Security-Policy.
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
    found: list[str] = page.evaluate(BEYOND, [SEEN, width])
    return found
