"""Every page that a browser can be shown, on a gateway that has the story of tests/story.py in it."""

import itertools
import json
from dataclasses import dataclass
from typing import Any

from playwright.sync_api import Page

from tests.servers.gateway import GatewayServer

OWNER, MEMBER, NEWCOMER, STAFF = (
    "ada@northwind.example",
    "noor@northwind.example",
    "li@example.org",
    "staff@example.org",
)
TELLING = "from tests.story import tell; tell({requests})"
PROVIDERS = ("MISTRAL", "SCALEWAY", "OVHCLOUD", "OPENAI")
# Nothing is ever sent to them, and no mail to anybody.
ENVIRONMENT = {"EMAIL_URL": "dummymail://"} | {f"{provider}_API_KEY": "none" for provider in PROVIDERS}

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Place:
    """A page: its name, its address, and who looks at it; None is a stranger.

    `press` is the button of a form with a name in it, where that is what shows the page.
    """

    name: str
    path: str
    who: str | None = OWNER
    press: str | None = None

    def show(self, page: Page) -> None:
        """Opens it in a page of the browser where this person is signed in."""
        page.goto(self.path)
        if self.press is not None:
            page.get_by_label("Name").fill(f"notebook {next(_numbers)}")
            page.get_by_role("button", name=self.press).click()

    @property
    def is_djangos(self) -> bool:
        """Whether Django's admin draws it, in its own templates."""
        return self.path.startswith("/admin/")


def told(gateway: GatewayServer, requests: int) -> list[Place]:
    """Tells the story on a gateway that has not started yet, and returns every page."""
    ids: dict[str, Any] = json.loads(gateway.manage("shell", "-v0", "-c", TELLING.format(requests=requests)).ok())
    return [*_of_strangers(ids), *_of_members(ids), *_of_staff(ids)]


def _of_strangers(ids: dict[str, Any]) -> list[Place]:
    return [
        Place("login", "/login", None),
        Place("password-reset", "/password/reset", None),
        Place("password-reset-sent", "/password/reset/sent", None),
        Place("password-reset-link", "/password/reset/x/y", None),
        Place("invitation", ids["invitation"], None),
        Place("invitation-gone", "/invitations/nonsense", None),
        Place("docs-guide", "/docs/guide", None),
        Place("docs-api", "/docs/api", None),
        Place("docs-reference", "/docs/reference", None),
    ]


def _of_members(ids: dict[str, Any]) -> list[Place]:
    account = f"?account={ids['account']}"
    return [
        Place("overview", f"/{account}"),
        Place("usage", f"/usage{account}"),
        Place("usage-by-key", f"/usage{account}&by=key"),
        Place("usage-records", f"/usage/records{account}"),
        Place("usage-records-failed", f"/usage/records{account}&outcome=failures"),
        Place("usage-record", f"/usage/records/{ids['generation']}"),
        Place("usage-failure", f"/usage/failures/{ids['failure']}"),
        Place("carbon", f"/carbon{account}"),
        Place("credit", f"/credit{account}"),
        Place("credit-entries", f"/credit{account}&show=all"),
        Place("statement", f"/statement{account}&format=html"),
        Place("keys", f"/keys{account}"),
        Place("key-created", f"/keys{account}", press="Create key"),
        Place("key", f"/keys/{ids['key']}"),
        Place("key-delete", f"/keys/{ids['key']}/delete"),
        Place("models", f"/models{account}&q=mistral"),
        Place("models-sovereign", "/models?q=mistral+small&jurisdiction=eu-sovereign"),
        Place("models-none", "/models?q=nothing+is+called+this"),
        Place("models-refused", "/models?modality=nonsense"),
        Place("model", f"/models/openai/gpt-oss-120b{account}"),
        Place("playground", f"/playground{account}&model=auto/mistralai/mistral-small"),
        Place("aliases", f"/aliases{account}"),
        Place("alias", f"/aliases/{ids['alias']}"),
        Place("alias-delete", f"/aliases/{ids['alias']}/delete"),
        Place("notifications", f"/notifications{account}"),
        Place("members", f"/members{account}"),
        Place("member", f"/members/{ids['membership']}"),
        Place("member-remove", f"/members/{ids['membership']}/remove"),
        Place("password", "/password"),
        Place("not-found", f"/aliases/{ids['account']}"),
        Place("members-as-member", f"/members{account}", MEMBER),
        Place("no-account", "/", NEWCOMER),
    ]


def _of_staff(ids: dict[str, Any]) -> list[Place]:
    return [
        Place("models-everything", "/models?everything=on&provider=google-vertex", STAFF),
        Place("admin", "/admin/", STAFF),
        Place("admin-account", f"/admin/accounts/account/{ids['account']}/change/", STAFF),
        Place("admin-generations", "/admin/billing/generation/", STAFF),
        Place("admin-generation", f"/admin/billing/generation/{ids['record']}/change/", STAFF),
    ]
