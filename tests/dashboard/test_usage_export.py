"""The CSV of some days' usage is exact, complete and harmless."""

import csv
import io
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client

from accounts import keys
from accounts.models import Account
from gateway.ids import uuid7
from tests.billing.records import MEMBER, open_for
from tests.billing.timeline import advance_until
from tests.dashboard.usage import day_ago, links, noon, used
from tests.factories import new_key

pytestmark = pytest.mark.django_db


@pytest.fixture
def account() -> Account:
    return open_for(MEMBER, name="Acme =1+1")


def download(client: Client, **query: Any) -> tuple[Any, list[dict[str, str]]]:
    """Returns the response, which is streamed, and its lines."""
    response: Any = client.get("/usage/export", query)
    assert response.status_code == 200
    assert response.streaming
    return response, list(csv.DictReader(io.StringIO(response.getvalue().decode(), newline="")))


def test_each_day_and_group_is_a_line(member: Client, account: Account) -> None:
    used(account, 2, energy_wh=Decimal("0.1234567891"), interrupted=True)
    used(account, 2, usage_estimated=True)
    advance_until(noon(2))
    used(account, 1, priced=False, provider="acme", model="test/other", carbon_gco2e=Decimal(0))
    used(account, 31)
    response, (first, second) = download(member)
    assert first == {
        "day": day_ago(2).isoformat(),
        "provider": "sim",
        "model": "test/echo",
        "requests": "2",
        "interrupted": "1",
        "estimated": "1",
        "prompt_tokens": "2000",
        "completion_tokens": "400",
        "currency": "EUR",
        "cost": "0.00168",
        "requests_priced": "2",
        "energy_wh": "0.1234567891",
        "requests_with_energy": "1",
        "carbon_gco2e": "",
        "requests_with_carbon": "0",
    }
    assert (second["provider"], second["cost"], second["carbon_gco2e"]) == ("acme", "", "0.00")
    assert response["Content-Type"] == "text/csv; charset=utf-8"
    name = f"acme-1-1-usage-{day_ago(29)}-{day_ago()}-by-model.csv"
    assert response["Content-Disposition"] == f'attachment; filename="{name}"'
    assert "no-store" in response["Cache-Control"]


def test_keys_and_aliases_come_with_id_and_name(member: Client, account: Account) -> None:
    key, _ = new_key(account, "=HYPERLINK(1)")
    record = used(account, key=key, alias_id=uuid7())
    used(account, 1, key=key)
    keys.delete(key)
    _, lines = download(member, by="key")
    assert [(line["key_id"], line["key"]) for line in lines] == [(str(key.pk), "'=HYPERLINK(1)")] * 2
    _, (without, with_alias) = download(member, by="alias")
    assert (without["alias_id"], without["alias"]) == ("", "")
    assert with_alias["alias_id"] == str(record.alias_id)
    _, lines = download(member, by="region", key=str(key.pk), since=day_ago().isoformat())
    assert [(line["region"], line["requests"]) for line in lines] == [("FRPAR", "1")]


def test_each_tag_is_a_line_and_usage_without_tags_has_an_empty_one(member: Client, account: Account) -> None:
    for tags in (None, "env=prod team=search"):
        used(account, tags=tags)
    _, lines = download(member, by="tag")
    assert [(line["tag"], line["requests"]) for line in lines] == [("", "1"), ("env=prod", "1"), ("team=search", "1")]
    _, lines = download(member, by="model", tag="team=search")
    assert [line["requests"] for line in lines] == ["1"]


def test_every_group_is_in_it(member: Client, account: Account) -> None:
    for number in range(105):
        used(account, model=f"test/m{number}")
    _, lines = download(member)
    assert len(lines) == 105


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"since": "2026-13-01"}, "since: Enter a date"),
        ({"since": "2020-02-02", "until": "2020-02-01"}, "since: Date is after the end date"),
    ],
)
def test_invalid_days_are_refused_in_plain_text(member: Client, query: dict[str, str], expected: str) -> None:
    response = member.get("/usage/export", query)
    assert (response.status_code, response["Content-Type"]) == (400, "text/plain; charset=utf-8")
    assert response.text.startswith(expected)


def test_it_is_only_read(member: Client) -> None:
    for verb in ("head", "post", "put", "patch", "delete"):
        assert getattr(member, verb)("/usage/export").status_code == 405


def test_the_page_leads_to_what_it_shows(member: Client, account: Account) -> None:
    used(account, region="FRPAR")
    used(account, region="DEFRA")
    (address,) = links(member.get("/usage", {"by": "key", "region": "DEFRA", "days": "7"}).text, "Download as CSV")
    response: Any = member.get(address)
    (line,) = csv.DictReader(io.StringIO(response.getvalue().decode(), newline=""))
    assert (line["key"], line["requests"]) == ("test", "1")
    assert f"{day_ago(6)}-{day_ago()}-by-key" in response["Content-Disposition"]
