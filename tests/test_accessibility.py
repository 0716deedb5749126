"""Axe finds no serious fault on any page, light, dark or on a phone, and a keyboard is enough to use each page."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from tests import pages
from tests.browser import beyond, sessions, signed_in
from tests.chat import answer
from tests.pages import Screen
from tests.servers.customer import Customer
from tests.servers.databases import MigratedDatabases
from tests.servers.gateway import GatewayServer

REQUESTS = 12
DESK, PHONE, HEIGHT = 1280, 390, 800
SERIOUS = ("serious", "critical")
EVERY_RULE: dict[str, Any] = {"resultTypes": ["violations"]}
BUT_COLOURS: dict[str, Any] = EVERY_RULE | {"rules": {"color-contrast": {"enabled": False}}}
COLOURS: dict[str, Any] = EVERY_RULE | {"runOnly": ["color-contrast"]}
# On a phone, rows become blocks and headings are hidden; these rules find what that may break. Running all rules at
# each width would take twice the time.
OF_A_PHONE: dict[str, Any] = EVERY_RULE | {"runOnly": ["cat.tables", "cat.structure", "cat.aria"]}
OPEN_ALL = "document.querySelectorAll('main details').forEach(one => { one.open = true; })"
# Checking colours takes most of the time, and long tables repeat the same ones in each row. If neighbours are alike in
# tags, classes and places of text at all depths, the first three are checked: stripes are even or odd.
ALIKE = """() => {
  const looks = ["class", "style", "aria-current", "aria-invalid", "disabled"];
  const collect = (one, above, found) => {
    const hasText = [...one.childNodes].some(node => node.nodeType === Node.TEXT_NODE && node.data.trim());
    const path = `${above}/${one.tagName}${looks.map(name => one.getAttribute(name)).join()}${hasText}`;
    found.add(path);
    for (const child of one.children) collect(child, path, found);
    return found;
  };
  const alike = [];
  const look = parent => {
    const seen = {};
    for (const child of parent.children) {
      const shape = [...collect(child, "", new Set())].sort().join();
      seen[shape] = (seen[shape] ?? 0) + 1;
      if (seen[shape] > 3) alike.push(child); else look(child);
    }
  };
  look(document.body);
  return alike;
}"""
# Returns what has the focus, and whether that is visible: a ring around something that is really shown.
FOCUS = """() => {
  const one = document.activeElement;
  if (!one || one === document.body) return null;
  const style = getComputedStyle(one), box = one.getBoundingClientRect();
  const ring = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
  return [one.outerHTML.slice(0, 120), ring && box.width > 4 && box.height > 4];
}"""
MOST_TABS = 150
KEYED = frozenset({"login", "usage", "key-created", "models", "playground", "alias", "members"})  # one of each kind

Visit = Callable[[str | None], Page]


@pytest.fixture(scope="module")
def gateway_with_a_story(
    migrated_databases: MigratedDatabases, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[GatewayServer, list[Screen]]]:
    """Starts a gateway with the shipped catalogue and the story, and returns it with its pages."""
    folder = tmp_path_factory.mktemp("gateway")
    server = GatewayServer(migrated_databases, folder, env=pages.ENVIRONMENT)
    with contextlib.closing(server):
        server.manage("seed_catalogue").ok()
        screens = pages.with_story(server, REQUESTS)
        yield server.start(), screens


@pytest.fixture
def as_whom(chromium: Browser, gateway_with_a_story: tuple[GatewayServer, list[Screen]]) -> Visit:
    """Opens a browser page for each person, without the pages' policy, under which axe's own script could not run."""
    server, _ = gateway_with_a_story
    cookies = sessions(server, (pages.OWNER, pages.MEMBER, pages.NEWCOMER, pages.STAFF))
    opened: dict[str | None, Page] = {}

    def page_of(who: str | None) -> Page:
        if who not in opened:
            context = chromium.new_context(base_url=server.origin, bypass_csp=True, color_scheme="light")
            context.add_init_script(Axe().axe_script)
            opened[who] = context.new_page()
            if who is not None:
                context.add_cookies([cookies[who]])
        return opened[who]

    return page_of


@pytest.fixture
def screens(gateway_with_a_story: tuple[GatewayServer, list[Screen]]) -> list[Screen]:
    return gateway_with_a_story[1]


def opened(screen: Screen, page: Page) -> Page:
    """Opens the page in light colours on a desktop, and opens everything on it that can be opened."""
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": DESK, "height": HEIGHT})
    screen.show(page)
    page.evaluate(OPEN_ALL)
    return page


def turn_dark(page: Page) -> None:
    page.emulate_media(color_scheme="dark")
    page.wait_for_function("document.getAnimations().length === 0")  # links of the admin change their colour slowly


def faults(page: Page, options: dict[str, Any]) -> list[str]:
    """Returns the serious faults that axe finds, each with its place."""
    context = f"{{include: [document], exclude: ({ALIKE})()}}" if options is COLOURS else "document"
    result = page.evaluate(f"options => axe.run({context}, options)", options)
    found = [violation for violation in result["violations"] if violation["impact"] in SERIOUS]
    return [f"{one['id']}: {node['target']} {node['html'][:120]}" for one in found for node in one["nodes"]]


def test_two_pages_have_no_serious_fault_and_the_keyboard_reaches_everything_on_one(
    chromium: Browser, account: Customer
) -> None:
    """It checks a page with a table and a form, and one with a chart; the campaign checks all pages."""
    answer(account, "echo")
    members, usage = Screen("members", "/members"), Screen("usage", "/usage")
    with signed_in(chromium, account, bypass_csp=True) as page:
        page.context.add_init_script(Axe().axe_script)
        for screen in (usage, members):
            opened(screen, page)
            assert faults(page, BUT_COLOURS) + faults(page, COLOURS) == [], screen.name
        assert_keys_will_do([members], lambda _who: page)
        page.goto("/models?q=echo")
        for key in ("Tab", "Enter", "Tab"):
            page.keyboard.press(key)
        assert page.evaluate("document.activeElement.name") == "q"


@pytest.mark.campaign
def test_no_page_has_a_serious_fault_in_any_look(screens: list[Screen], as_whom: Visit) -> None:
    found = {}
    for screen in screens:
        page = opened(screen, as_whom(screen.who))
        found[screen.name, "light"] = faults(page, BUT_COLOURS) + faults(page, COLOURS)
        turn_dark(page)
        found[screen.name, "dark"] = faults(page, COLOURS)
        if not screen.is_djangos:
            found[screen.name, "desk"] = beyond(page, DESK)
            page.set_viewport_size({"width": PHONE, "height": HEIGHT})
            found[screen.name, "phone"] = faults(page, OF_A_PHONE) + beyond(page, PHONE)
    assert {look: faulty for look, faulty in found.items() if faulty} == {}


@pytest.mark.campaign
def test_the_keyboard_reaches_everything_is_seen_and_is_never_trapped(screens: list[Screen], as_whom: Visit) -> None:
    assert_keys_will_do((screen for screen in screens if screen.name in KEYED), as_whom)


def assert_keys_will_do(screens: Iterable[Screen], as_whom: Visit) -> None:
    for screen in screens:
        page = as_whom(screen.who)
        screen.show(page)
        has_begun = page.locator("[autofocus]").count() > 0  # a form's page begins in its first field
        passed = list(tabbed_through(page))
        assert has_begun or 'class="skip"' in passed[0][0], screen.name
        assert [element for element, is_seen in passed if not is_seen] == [], screen.name


def tabbed_through(page: Page) -> Iterator[tuple[str, bool]]:
    """Returns what Tab reaches, from the page's start to its end, and whether each focus is visible."""
    focusable = page.locator("a[href], button, input, select, textarea, summary, [tabindex='0']").count()
    for _ in range(min(MOST_TABS, 10 + 5 * focusable)):  # a date has several stops of its own
        page.keyboard.press("Tab")
        focus = page.evaluate(FOCUS)
        if focus is None:
            return
        yield focus[0], focus[1]
    assert focusable > MOST_TABS // 5, "the focus does not leave the page"
