"""No page is wider than its window, however long its names are (`make campaign` has every template)."""

import json

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser import beyond, signed_in
from tests.chat import answer
from tests.servers.customer import Customer

WIDTHS = (320, 1024, 1280)  # ascending: charts follow a shrinking window only later
LONG_ROUTE = "simanthropic/test/cache-write/FRPAR"
LARGE_LETTERS = (260, 720, 960)  # as a phone's 390 px at 150 %, and 1440 px at 200 and 150 %
IN_A_ROW = (1440, 1280, 1000)
LONG_NAME = "a key of a very long name " * 7
LOW_LINKS = """() => [...document.querySelectorAll("main a")].filter(link => {
  const heights = [...link.getClientRects()].map(box => box.height);
  return link.checkVisibility() && Math.max(...heights) < 24;
}).map(link => link.innerText)"""
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
    Membership.objects.create(user=user, account=account, role="owner")
print(json.dumps([str(account.pk) for account in accounts]))
"""


def too_wide(page: Page, path: str) -> list[str]:
    """Returns what reaches beyond the right edge of a page at any width, with everything on it open."""
    found = []
    page.set_viewport_size({"width": WIDTHS[0], "height": 800})
    page.goto(path)
    page.locator("main details").evaluate_all("all => all.forEach(one => { one.open = true; })")
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        found += [f"{path} at {width}: {seen}" for seen in beyond(page, width)]
    return found


@pytest.mark.campaign
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
            page.goto(f"/notifications?account={account}")
            assert beyond(page, 390) == []


@pytest.mark.campaign
def test_pages_fit_a_window_whose_letters_are_enlarged_and_links_a_finger(
    chromium: Browser, customer: Customer
) -> None:
    for slug in ("echo", "sim/test/echo/DEFRA", "chunks", "footprint", "unknown-energy"):
        answer(customer, slug)
    customer.another_key(LONG_NAME, "--rpm", "60", "--tpm", "100000")
    paths = ("/", "/keys", "/members", "/carbon", "/usage", "/usage/records", "/aliases", "/credit")
    with signed_in(chromium, customer) as page:
        for path in paths:
            page.set_viewport_size({"width": LARGE_LETTERS[0], "height": 800})
            page.goto(path)
            for width in LARGE_LETTERS:
                page.set_viewport_size({"width": width, "height": 800})
                assert beyond(page, width) == [], f"{path} at {width}"
            page.set_viewport_size({"width": 390, "height": 844})
            assert page.evaluate(LOW_LINKS) == [], path


def test_the_bar_is_one_row_whatever_the_account_is_called(chromium: Browser, customer: Customer) -> None:
    names = ["Umbrella Health GmbH", "The Society for the Study of Very Long Names"]
    with signed_in(chromium, customer) as page:
        made = customer.gateway.manage("shell", "-v0", "-c", FURTHER_ACCOUNTS.format(owner=customer.id, names=names))
        for account, name in zip(json.loads(made.ok()), names, strict=True):
            page.goto(f"/?account={account}")
            switcher = page.locator(".switcher summary")
            expect(switcher).to_have_attribute("title", name)
            for width in IN_A_ROW:
                page.set_viewport_size({"width": width, "height": 800})
                middles = page.locator(".top-inner > *").evaluate_all(
                    "all => all.map(one => one.getBoundingClientRect()).map(box => box.top + box.height / 2)"
                )
                assert max(middles) - min(middles) <= 2, f"{name} at {width}"


@pytest.mark.campaign
def test_a_long_name_takes_three_lines_and_has_all_of_it_as_title(chromium: Browser, customer: Customer) -> None:
    token = customer.another_key(LONG_NAME).strip()
    customer.http.post(
        "/v1/chat/completions",
        json={"model": "sim/test/echo", "messages": [{"role": "user", "content": "hi"}]},
        headers={"Authorization": f"Bearer {token}"},
    )
    with signed_in(chromium, customer) as page:
        page.set_viewport_size({"width": 1280, "height": 800})
        for path in ("/keys", "/", "/usage?by=key", "/usage/records"):
            page.goto(path)
            names = page.locator("main .clamp")
            expect(names.first).to_have_attribute("title", LONG_NAME.strip())
            lines = names.evaluate_all(
                "all => all.map(one => one.offsetHeight / parseFloat(getComputedStyle(one).lineHeight))"
            )
            assert max(lines) < 3.1, path


@pytest.mark.campaign
def test_what_is_folded_is_not_printed_as_an_empty_heading(chromium: Browser, customer: Customer) -> None:
    answer(customer, "echo")
    with signed_in(chromium, customer) as page:
        page.goto("/usage")
        page.emulate_media(media="print")
        expect(page.get_by_role("heading", name="By model", exact=True)).to_be_visible()
        expect(page.locator("#days")).to_be_hidden()
        page.locator("details:has(#days)").evaluate("details => { details.open = true; }")
        expect(page.locator("#days")).to_be_visible()
