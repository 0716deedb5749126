"""`make screenshots` takes every page with a month's story in it, light, dark and on a phone, as var/screenshots/*.png.

It also writes weights.txt there: what each page costs on the wire, compressed and with an empty cache, for the page
itself and in all. With ARGS=--readme it also renews the pictures that the README shows.
"""

import contextlib
import shutil
import sys
from collections import Counter
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from tests import pages, plugin
from tests.browser import sign_in
from tests.pages import Screen
from tests.servers.databases import MigratedDatabases
from tests.servers.gateway import GatewayServer
from tests.servers.process import ROOT
from tests.servers.programs import find_program

FOLDER = ROOT / "var" / "screenshots"
README_FOLDER = ROOT / "docs" / "images"
IN_README = (("usage", "light"), ("models", "dark"), ("admin", "light"))
REQUESTS = 600
DESK, PHONE = {"width": 1280, "height": 910}, {"width": 390, "height": 844}
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"viewport": DESK, "color_scheme": "light"},
    "dark": {"viewport": DESK, "color_scheme": "dark"},
    "phone": {"viewport": PHONE, "color_scheme": "light", "device_scale_factor": 2},
}


def main() -> None:
    """Starts a gateway and replaces what is in the folder."""
    plugin.prepare("sqlite")
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    server = GatewayServer(MigratedDatabases(plugin.databases()), plugin.scratch(), env=pages.ENVIRONMENT)
    with contextlib.closing(server):
        server.manage("seed_catalogue").ok()
        screens = pages.with_story(server, REQUESTS)
        server.start()
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=find_program("chromium"), args=["--no-sandbox"])
            for look in LOOKS:
                _picture(browser, server, screens, look)
            browser.close()
    sys.stdout.write(f"{len(screens) * len(LOOKS)} pictures in {FOLDER.relative_to(ROOT)}\n")


def _picture(browser: Browser, server: GatewayServer, screens: list[Screen], look: str) -> None:
    """Takes every page in one look; a person signs in once."""
    signed_in: dict[str | None, Page] = {}
    weights: dict[str | None, Counter[str]] = {}
    for screen in screens:
        if screen.who not in signed_in:
            context = browser.new_context(base_url=server.origin, reduced_motion="reduce", **LOOKS[look])
            signed_in[screen.who] = context.new_page()
            if screen.who is not None:
                signed_in[screen.who].goto("/login")
                sign_in(signed_in[screen.who], screen.who)
            weights[screen.who] = _weighed(signed_in[screen.who])
        page = signed_in[screen.who]
        weights[screen.who].clear()
        screen.show(page)
        if look == "light" and screen.press is None:
            page.wait_for_load_state("networkidle")
            page_weight, weight = (weights[screen.who][what] / 1000 for what in ("page", "all"))
            with (FOLDER / "weights.txt").open("a") as lines:
                lines.write(f"{screen.name:24}{page_weight:8.1f} kB{weight:8.1f} kB\n")
        name = f"{screen.name}-{look}.png"
        page.screenshot(path=FOLDER / name, full_page=True, animations="disabled")
        if "--readme" in sys.argv and (screen.name, look) in IN_README:
            page.screenshot(path=README_FOLDER / name, animations="disabled")


def _weighed(page: Page) -> Counter[str]:
    """Counts the bytes received from now on, with an empty cache: for the `page` itself, and for `all`."""
    page.wait_for_load_state("networkidle")
    weights, documents = Counter[str](), set[str]()

    def received(event: dict[str, Any]) -> None:
        if event["type"] == "Document":
            documents.add(event["requestId"])

    def finished(event: dict[str, Any]) -> None:
        size = int(event["encodedDataLength"])
        weights.update(all=size, page=size if event["requestId"] in documents else 0)

    network = page.context.new_cdp_session(page)
    network.on("Network.responseReceived", received)
    network.on("Network.loadingFinished", finished)
    network.send("Network.enable")
    network.send("Network.setCacheDisabled", {"cacheDisabled": True})
    return weights


if __name__ == "__main__":
    main()
