"""Names that people chose keep their own writing direction on pages: digits and brackets around them stay in place."""

import re

import pytest
from django.test import Client

from accounts.models import User
from tests.every_page import OWNER, Acme

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("served")]
ACCOUNT, KEY = "חשבון 2026 (EU)", "مفتاح 7 (test)"
# These take no markup, or are only read aloud.
ELSEWHERE = re.compile(
    r"<title>.*?</title>|<script.*?</script>|<option.*?</option>|<bdi\b.*?</bdi>"
    r'|<span class="visually-hidden">.*?</span>|<[^>]+>',
    re.DOTALL,
)


def test_every_name_on_every_page_is_isolated(client: Client) -> None:
    acme = Acme.open()
    for row, name in ((acme.account, ACCOUNT), (acme.key, KEY)):
        row.name = name
        row.save()
    client.force_login(User.objects.get(email=OWNER))
    bare, shown = [], 0
    for page in acme.pages():
        response = client.get(page.address)
        if response.status_code != 200 or response.streaming or "html" not in response["Content-Type"]:
            continue
        shown += len(re.findall(rf"<bdi>(?:{re.escape(ACCOUNT)}|{re.escape(KEY)})</bdi>", response.text))
        rest = ELSEWHERE.sub("", response.text)
        bare += [page.name for name in (ACCOUNT, KEY) if name in rest]
    assert bare == []
    assert shown > 10


def test_an_ordinary_name_is_whole_and_a_long_one_has_a_title(client: Client) -> None:
    acme = Acme.open()
    client.force_login(User.objects.get(email=OWNER))
    acme.key.name = '"><b>' + "k" * 195
    acme.key.save()
    text = client.get("/keys").text
    escaped = "&quot;&gt;&lt;b&gt;" + "k" * 195
    assert f'<bdi class="clamp" title="{escaped}">{escaped}</bdi>' in text
    acme.key.name = "laptop"
    acme.key.save()
    assert "<bdi>laptop</bdi>" in client.get("/keys").text
