"""Makes requests of past days, and reads the pages that show them."""

import re
from datetime import UTC, date, datetime, time, timedelta
from html import unescape
from typing import Any

from django.test import Client
from django.utils import timezone

from accounts.models import Account
from billing.models import Generation
from catalogue.pricing import Usage
from gateway.templatetags.figures import UNKNOWN
from tests.billing.timeline import settled_at
from tests.factories import SMALL, served
from tests.page_text import plain


def day_ago(days: int = 0) -> date:
    return timezone.now().astimezone(UTC).date() - timedelta(days=days)


def used(account: Account, days: int = 0, *, usage: Usage = SMALL, **columns: Any) -> Generation:
    """Settles one request this many UTC days ago; by default, 1,000 tokens in and 200 out for 0.00084 EUR."""
    return settled_at(noon(days), served(account, usage, **columns))


def noon(days: int) -> datetime:
    """Returns noon this many UTC days ago.

    Before noon, today's moment is halfway between midnight and now, because the future is not added up.
    """
    midnight = datetime.combine(day_ago(days), time(), UTC)
    return midnight + min(timedelta(hours=12), (timezone.now() - midnight) / 2)


def words(client: Client, path: str, *, status: int = 200, **query: Any) -> str:
    """Returns the page's text, with each run of white space as one blank."""
    response = client.get(path, query)
    assert response.status_code == status, response.status_code
    return seen(response.text)


def seen(html: str) -> str:
    """Returns the visible text of some HTML, with the dash for unknown values in words."""
    shown = re.sub(r'<span class="visually-hidden">[^<]*</span>', " ", html.replace(UNKNOWN, "unknown"))
    return plain(shown).strip()


def rows(html: str, section: str) -> list[str]:
    """Returns the text of each table row in the section whose heading has this id."""
    body = html.partition(f'aria-labelledby="{section}"')[2].partition("</section>")[0].partition("<tbody")[2]
    return [seen(row) for row in re.findall(r'<tr role="row">(.*?)</tr>', body, re.DOTALL)]


def links(html: str, text: str) -> list[str]:
    """Returns the addresses of the links below the bar whose text begins with this one."""
    below = html[max(0, html.find("<main")) :]
    found = re.findall(r'<a href="([^"]+)"[^>]*>(.*?)</a>', below, re.DOTALL)
    return [unescape(address) for address, shown in found if seen(shown).startswith(text)]
