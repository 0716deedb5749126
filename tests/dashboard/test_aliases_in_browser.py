"""The aliases pages in a real browser with JavaScript switched off: everything works by forms alone."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser import signed_in, too_wide
from tests.chat import answer
from tests.servers.customer import Customer


@pytest.fixture
def page(chromium: Browser, customer: Customer) -> Iterator[Page]:
    """A member who has signed in and followed the link to the aliases."""
    with signed_in(chromium, customer, java_script_enabled=False) as page:
        page.get_by_role("link", name="Aliases").click()
        yield page


def create(page: Page, name: str, target: str) -> None:
    page.get_by_role("textbox", name="Name").fill(name)
    page.get_by_role("combobox", name="Target").fill(target)
    page.get_by_role("button", name="Create alias").click()


def row(page: Page, name: str) -> str:
    """The words of an alias's row in the list."""
    line = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name=f"alias/{name}"))
    return re.sub(r"\s+", " ", line.inner_text())


def test_an_alias_lives_through_forms_alone(page: Page, customer: Customer) -> None:
    create(page, "fast", "sim/test/echo/FRPAR")
    expect(page.get_by_role("status")).to_contain_text("alias/fast has been created.")
    answer(customer, "alias/fast")

    page.reload()
    assert row(page, "fast") == "alias/fast sim/test/echo/FRPAR 1 4 < 0.0001"

    page.get_by_role("link", name="alias/fast").click()
    page.get_by_role("combobox", name="Target").fill("sim/test/echo/DEFRA")
    page.get_by_role("button", name="Change target").click()
    expect(page.get_by_role("status")).to_contain_text("is now sim/test/echo/DEFRA")
    assert answer(customer, "alias/fast")["model"] == "sim/test/echo/DEFRA"

    page.get_by_role("textbox", name="Name").fill("quick")
    page.get_by_role("button", name="Rename").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("alias/quick")
    assert answer(customer, "alias/quick")["model"] == "sim/test/echo/DEFRA"
    page.reload()
    use = page.get_by_role("region", name="Usage, last 30 days")
    expect(use.get_by_role("row", name="sim/test/echo/DEFRA 2 4 / 4")).to_be_visible()
    history = page.get_by_role("region", name="History").get_by_role("row")
    assert [re.split(r"\s+", line)[4] for line in history.all_inner_texts()[1:]] == ["renamed", "repointed", "created"]

    page.get_by_role("link", name="Delete alias").click()
    page.get_by_role("link", name="Cancel").click()
    page.get_by_role("link", name="Delete alias").click()
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("status")).to_contain_text("alias/quick has been deleted.")
    assert customer.http.get("/v1/aliases").json()["aliases"] == []


def test_a_mistake_is_explained_beside_its_field(page: Page, customer: Customer) -> None:
    create(page, "not a name", "sim/test/echo/FRPAR")
    name = page.get_by_role("textbox", name="Name")
    expect(name).to_have_accessible_description(re.compile("Not allowed in a name"))
    expect(name).to_have_value("not a name")
    expect(page.get_by_role("combobox", name="Target")).to_have_value("sim/test/echo/FRPAR")
    name.fill("a-name")
    page.get_by_role("button", name="Create alias").click()
    assert row(page, "a-name") == "alias/a-name sim/test/echo/FRPAR 0 0 0.00"


def test_the_keyboard_alone_will_do(page: Page, customer: Customer) -> None:
    page.get_by_role("textbox", name="Name").focus()
    page.keyboard.type("fast")
    page.keyboard.press("Tab")
    expect(page.get_by_role("combobox", name="Target")).to_be_focused()
    page.keyboard.type("sim/test/chunks/FRPAR")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_contain_text("alias/fast has been created.")
    assert customer.http.get("/v1/aliases/fast").json()["target"] == "sim/test/chunks/FRPAR"


def test_no_page_is_wider_than_its_window(page: Page, customer: Customer) -> None:
    customer.http.post("/v1/aliases", json={"name": "a" * 64, "target": "simanthropic/test/cache-write/FRPAR"})
    answer(customer, f"alias/{'a' * 64}", max_tokens=16)
    page.goto("/aliases")
    assert too_wide(page) == {}
    page.get_by_role("link", name="alias/aaa").click()
    assert too_wide(page) == {}
    page.get_by_role("link", name="Delete alias").click()
    assert too_wide(page) == {}
