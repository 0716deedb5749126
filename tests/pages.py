"""Lists every page that a browser can be shown, on a gateway that contains the story of tests/story.py."""

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
WRITE_STORY = "from tests.story import write; write({requests})"
PROVIDERS = ("MISTRAL", "SCALEWAY", "OVHCLOUD", "OPENAI")
# Nothing is sent to these providers, and no mail to anybody.
ENVIRONMENT = {"EMAIL_URL": "dummymail://"} | {f"{provider}_API_KEY": "none" for provider in PROVIDERS}

COMPARED = "&".join(
    f"route={provider}/mistralai/mistral-small-3.2-24b-instruct/{locode}"
    for provider, locode in (("ovhcloud", "FRGRV"), ("scaleway", "FRPAR"))
)

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Screen:
    """Holds a page's name, its address, and the person who looks at it; None is a stranger.

    `press` is the button that shows the page, if it is shown only after a form with a name has been sent.
    """

    name: str
    path: str
    who: str | None = OWNER
    press: str | None = None

    def show(self, page: Page) -> None:
        """Opens it in a browser page in which this person is signed in."""
        page.goto(self.path)
        if self.press is not None:
            page.get_by_label("Name").fill(f"notebook {next(_numbers)}")
            page.get_by_role("button", name=self.press).click()

    @property
    def is_djangos(self) -> bool:
        """Tells whether Django's admin draws it, with its own templates."""
        return self.path.startswith("/admin/")


def with_story(gateway: GatewayServer, requests: int) -> list[Screen]:
    """Writes the story on a gateway that has not started yet, and returns every page."""
    ids: dict[str, Any] = json.loads(gateway.manage("shell", "-v0", "-c", WRITE_STORY.format(requests=requests)).ok())
    return [*_of_strangers(ids), *_of_members(ids), *_of_staff(ids)]


def _of_strangers(ids: dict[str, Any]) -> list[Screen]:
    return [
        Screen("login", "/login", None),
        Screen("password-reset", "/password/reset", None),
        Screen("password-reset-sent", "/password/reset/sent", None),
        Screen("password-reset-link", "/password/reset/x/y", None),
        Screen("invitation", ids["invitation"], None),
        Screen("invitation-gone", "/invitations/nonsense", None),
        Screen("docs-guide", "/docs/guide", None),
        Screen("docs-api", "/docs/api", None),
        Screen("docs-reference", "/docs/reference", None),
        Screen("docs-reference-inference", "/docs/reference/inference", None),
        Screen("docs-search", "/docs/search?q=cost", None),
    ]


def _of_members(ids: dict[str, Any]) -> list[Screen]:
    account = f"?account={ids['account']}"
    return [
        Screen("overview", f"/{account}"),
        Screen("usage", f"/usage{account}"),
        Screen("usage-by-key", f"/usage{account}&by=key"),
        Screen("usage-records", f"/usage/records{account}"),
        Screen("usage-records-failed", f"/usage/records{account}&outcome=failures"),
        Screen("usage-record", f"/usage/records/{ids['generation']}"),
        Screen("usage-failure", f"/usage/failures/{ids['failure']}"),
        Screen("carbon", f"/carbon{account}"),
        Screen("credit", f"/credit{account}"),
        Screen("credit-entries", f"/credit{account}&show=all"),
        Screen("statement", f"/statement{account}&format=html"),
        Screen("keys", f"/keys{account}"),
        Screen("key-created", f"/keys{account}", press="Create key"),
        Screen("key", f"/keys/{ids['key']}"),
        Screen("key-delete", f"/keys/{ids['key']}/delete"),
        Screen("key-rotate", f"/keys/{ids['key']}/rotate"),
        Screen("key-policy", f"/keys/{ids['key']}/policy"),
        Screen("key-policy-as-member", f"/keys/{ids['key']}/policy", MEMBER),
        Screen("policies", f"/policies{account}"),
        Screen("account-policy", f"/policies/account{account}"),
        Screen("default-policy", f"/policies/new-keys{account}"),
        Screen("tag-policy", f"/policies/tags/team=search{account}"),
        Screen("models-of-key", f"/models{account}&key={ids['key']}"),
        Screen("models", f"/models{account}&q=mistral"),
        Screen("models-sovereign", "/models?q=mistral+small&jurisdiction=eu-sovereign"),
        Screen("models-none", "/models?q=nothing+is+called+this"),
        Screen("models-refused", "/models?modality=nonsense"),
        Screen("model", f"/models/openai/gpt-oss-120b{account}"),
        Screen("compare", f"/models/compare{account}&{COMPARED}"),
        Screen("compare-refused", f"/models/compare{account}&route=openai/openai/none/global"),
        Screen("playground", f"/playground{account}&model=auto/mistralai/mistral-small"),
        Screen("aliases", f"/aliases{account}"),
        Screen("alias", f"/aliases/{ids['alias']}"),
        Screen("alias-move", f"/aliases/{ids['alias']}?target=ovhcloud/mistralai/mistral-small-3.2-24b-instruct/FRGRV"),
        Screen("alias-delete", f"/aliases/{ids['alias']}/delete"),
        Screen("notifications", f"/notifications{account}"),
        Screen("members", f"/members{account}"),
        Screen("member", f"/members/{ids['membership']}{account}"),
        Screen("member-remove", f"/members/{ids['membership']}/remove{account}"),
        Screen("audit", f"/audit{account}"),
        Screen("webhooks", f"/webhooks{account}"),
        Screen("webhook", f"/webhooks/{ids['webhook']}"),
        Screen("webhook-delete", f"/webhooks/{ids['webhook']}/delete"),
        Screen("webhooks-as-member", f"/webhooks{account}", MEMBER),
        Screen("password", "/password"),
        Screen("security", "/security"),
        Screen("security-app", "/security/app"),
        Screen("security-passkey", "/security/passkeys/new"),
        Screen("sessions", "/sessions"),
        Screen("not-found", f"/aliases/{ids['account']}"),
        Screen("members-as-member", f"/members{account}", MEMBER),
        Screen("no-account", "/", NEWCOMER),
    ]


def _of_staff(ids: dict[str, Any]) -> list[Screen]:
    return [
        Screen("models-everything", "/models?everything=on&provider=google-vertex", STAFF),
        Screen("admin", "/admin/", STAFF),
        Screen("admin-account", f"/admin/accounts/account/{ids['account']}/change/", STAFF),
        Screen("admin-account-list", "/admin/accounts/account/", STAFF),
        Screen("admin-new-customer", "/admin/accounts/account/add/", STAFF),
        Screen("admin-credit", f"/admin/accounts/account/{ids['account']}/credit/", STAFF),
        Screen("admin-search", "/admin/search/?q=north", STAFF),
        Screen("admin-keys", "/admin/accounts/apikey/", STAFF),
        Screen("admin-policies", "/admin/accounts/policy/", STAFF),
        Screen("admin-providers", "/admin/catalogue/provider/", STAFF),
        Screen("admin-provider", "/admin/catalogue/provider/1/change/", STAFF),
        Screen("admin-offer", "/admin/catalogue/model/1/change/", STAFF),
        Screen("admin-routes", "/admin/catalogue/region/", STAFF),
        Screen("admin-route", "/admin/catalogue/region/1/change/", STAFF),
        Screen("admin-failures", "/admin/billing/requestfailure/", STAFF),
        Screen("admin-refund", f"/admin/billing/generation/{ids['record']}/refund/", STAFF),
        Screen("admin-generations", "/admin/billing/generation/", STAFF),
        Screen("admin-generation", f"/admin/billing/generation/{ids['record']}/change/", STAFF),
    ]
