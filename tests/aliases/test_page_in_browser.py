"""The aliases page in a real browser, with JavaScript switched off: everything works by forms alone."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect, sync_playwright

from tests.chat import answer
from tests.servers.customer import Customer
from tests.servers.manage import Completed

CHROMIUM = Path("/usr/bin/chromium")
PASSWORD = "correct horse battery staple"
PHONE: ViewportSize = {"width": 390, "height": 844}

pytestmark = pytest.mark.skipif(not CHROMIUM.exists(), reason="Debian's chromium is not installed (apt-get install chromium)")
