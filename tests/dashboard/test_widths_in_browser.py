"""No page is wider than its window, however long its names are (`make campaign` has every template)."""

import json

from playwright.sync_api import Browser, Page, expect

from tests.browser import beyond, signed_in
from tests.chat import answer
from tests.servers.customer import Customer

WIDTHS = (320, 1024, 1280)  # from a phone on: charts follow a window that shrinks only later
LONG_ROUTE = "simanthropic/test/cache-write/FRPAR"
ACCOUNTS = [
    "Tiny",
    "An-Institute-With-One-Word-For-A-Name-" * 2,
    "The Society for the Study of Very Long Names " * 2 + "AG",
]
FURTHER_ACCOUNTS = """
import json
from accounts.models import Membership, User
from billing.accounts import open_account
user = User.objects.get(membership__account={owner!r})
accounts = [open_account(name) for name in {names!r}]
for account in accounts:
    Membership.objects.create(user=user, account=account, role="member")
print(json.dumps([str(account.pk) for account in accounts]))
"""


def too_wide(page: Page, path: str) -> list[str]:
    """What reaches beyond the right edge of a page at any width, with everything on it open."""
    found = []
    page.set_viewport_size({"width": WIDTHS[0], "height": 800})
    page.goto(path)
    page.locator("main details").evaluate_all("all => all.forEach(one => { one.open = true; })")
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        found += [f"{path} at {width}: {seen}" for seen in beyond(page, width)]
    return found


def test_no_page_is_wider_than_its_window_and_the_bars_menus_neither(chromium: Browser, customer: Customer) -> None:
    name = "a" * 64
    alias = customer.http.post("/v1/aliases", json={"name": name, "target": LONG_ROUTE}).json()
    answer(customer, f"alias/{name}", max_tokens=16)
    customer.another_key("k" * 200, "--rpm", "60", "--tpm", "100000")
    with signed_in(chromium, customer) as page:
        page.goto("/members")
        page.get_by_role("textbox", name="Email address").fill(
            f"{'a-long-name-' * 5}@a-department.of-a-university.example"
        )
        page.get_by_role("button", name="Send invitation").click()
        page.goto("/keys")
        key = page.get_by_role("link", name="Delete kkk").get_attribute("href")
        page.goto("/usage/records")
        record = page.get_by_role("region", name="newest first").get_by_role("row").nth(1).get_by_role("link").first
        paths = [
            *("/", "/members", "/keys", str(key), "/credit", "/password", "/password/reset"),
            *("/usage?by=model", "/usage/records?region=FRPAR", str(record.get_attribute("href"))),
            *("/aliases", f"/aliases/{alias['id']}", f"/aliases/{alias['id']}/delete"),
            *("/models?q=echo", "/models/test/echo", "/playground"),
        ]
        assert [seen for path in paths for seen in too_wide(page, path)] == []

        page.set_viewport_size({"width": 390, "height": 844})
        made = customer.gateway.manage("shell", "-v0", "-c", FURTHER_ACCOUNTS.format(owner=customer.id, names=ACCOUNTS))
        for account, called in zip(json.loads(made.ok()), ACCOUNTS, strict=True):
            page.goto(f"/?account={account}")
            expect(page.get_by_role("heading", level=1)).to_have_text(called.strip())
            for menu in (".switcher", ".person"):
                page.locator(f"{menu} summary").click()
                expect(page.locator(f"{menu} .menu-items")).to_be_visible()
                assert beyond(page, 390) == []
                page.keyboard.press("Escape")
