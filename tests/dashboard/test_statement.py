"""The dashboard offers a statement for download. Its content is tested in test_export_usage.py."""

import csv
import io
import json
import re
from datetime import timedelta
from decimal import Decimal
from html import escape
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from accounts.models import Account, User
from billing.ledger import credits as ledger
from billing.usage import rollups
from billing.usage.statement import Period
from dashboard.parts import printed
from tests.billing.records import MEMBER, open_for, serve
from tests.dashboard.usage import day_ago, rows, seen, used
from tests.page_text import plain

pytestmark = pytest.mark.django_db


def download(client: Client, **query: str) -> tuple[Any, str]:
    """Returns the response, which is streamed, and its text."""
    response: Any = client.get("/statement", query)
    assert response.status_code == 200
    assert response.streaming
    return response, response.getvalue().decode()


def test_a_member_downloads_this_month_as_csv(member: Client, account: Account) -> None:
    record = serve(account)
    response, text = download(member)
    line, total = csv.DictReader(io.StringIO(text, newline=""))
    assert (line["generation_id"], line["ledger_seq"], line["cost"]) == (record.public_id, "2", "0.00072")
    assert (total["closing_balance"], total["reconciled"]) == ("99.99928", "true")
    assert response["Content-Type"] == "text/csv; charset=utf-8"
    today = timezone.now()
    name = f"acme-{today:%Y-%m}-01-{today:%Y-%m-%d}.csv"
    assert response["Content-Disposition"] == f'attachment; filename="{name}"'
    assert "no-store" in response["Cache-Control"]


def test_or_as_json_lines_of_other_days(member: Client, account: Account) -> None:
    serve(account)
    response, text = download(
        member, account=str(account.pk), since="2020-01-01", until="2020-01-31T00:00:00Z", format="jsonl"
    )
    (total,) = map(json.loads, text.splitlines())
    assert (total["requests"], total["until"]) == (0, "2020-01-31T00:00:00.000000Z")
    assert response["Content-Type"] == "application/jsonl; charset=utf-8"


@pytest.mark.parametrize(
    ("name", "saved_as"),
    [
        ("שלום עולם 2026 (EU)", "שלום-עולם-2026-eu"),
        ("Søns", "søns"),
        ("हिन्दी", "हिन्दी"),
        ('a/b\\c:"d"; é\u202etxt', "a-b-c-d-é-txt"),
    ],
)
def test_the_file_has_every_letter_of_the_name(member: Client, account: Account, name: str, saved_as: str) -> None:
    Account.objects.update(name=name)
    response, _ = download(member, since="2026-10-01", until="2026-10-31")
    days = "2026-10-01-2026-10-31.csv"
    plain_name, encoded = f'filename="{account.pk}-{days}"', f"filename*=utf-8''{quote(saved_as)}-{days}"
    assert response["Content-Disposition"] == f"attachment; {plain_name}; {encoded}"


def test_a_name_without_letters_gives_way_to_the_id(member: Client, account: Account) -> None:
    Account.objects.update(name="☕ ☕")
    response, _ = download(member, since="2026-10-01", until="2026-10-31")
    assert response["Content-Disposition"] == f'attachment; filename="{account.pk}-2026-10-01-2026-10-31.csv"'


def test_the_billing_page_says_how_a_spreadsheet_reads_it(member: Client, account: Account) -> None:
    assert f'href="/docs/statements?account={account.pk}#in-a-spreadsheet"' in member.get("/credit").text
    assert 'id="in-a-spreadsheet"' in member.get("/docs/statements").text


def test_an_account_is_chosen_among_ones_own(member: Client, account: Account) -> None:
    other = open_for(MEMBER, name="Beta =1+1", currency="USD")
    response, text = download(member, account=str(other.pk), format="jsonl")
    assert json.loads(text)["currency"] == "USD"
    assert 'filename="beta-1-1-' in response["Content-Disposition"]


def test_strangers_are_sent_to_the_login(client: Client) -> None:
    assert client.get("/statement?format=csv")["Location"] == "/login?next=/statement%3Fformat%3Dcsv"


@pytest.mark.parametrize("staff", [False, True])
def test_members_of_other_accounts_find_nothing(client: Client, account: Account, staff: bool) -> None:
    client.force_login(User.objects.create_user("somebody@example.com", is_staff=staff))
    assert "not a member of any account" in client.get("/statement").text
    assert client.get("/statement", {"account": str(account.pk)}).status_code == 404
    open_for("somebody@example.com", name="Theirs")
    assert client.get("/statement", {"account": str(account.pk)}).status_code == 404


@pytest.mark.parametrize("wanted", ["", "nonsense", str(UUID(int=7))])
def test_an_unknown_account_is_not_found(member: Client, wanted: str) -> None:
    assert member.get("/statement", {"account": wanted}).status_code == 404


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"since": ""}, "From This field is required."),
        ({"until": "2026-13-01"}, "To Enter a date like 2026-10-30."),
        ({"since": "<script>"}, "From Enter a date like 2026-10-30."),
        ({"since": "2026-10-02", "until": "2026-10-01"}, "From Date is after the end date, 2026-10-01."),
        ({"since": "9999-12-31T23:59:59.9999999Z", "until": "9999-12-31"}, "From Date is after the end date"),
    ],
)
def test_invalid_days_lead_to_the_credit_page_with_the_reason_at_their_field(
    member: Client, account: Account, query: dict[str, str], expected: str
) -> None:
    other = open_for(MEMBER, name="Beta")
    response = member.get("/statement", {**query, "account": str(other.pk), "format": "csv"}, follow=True)
    assert response.redirect_chain[0][0].startswith(f"/credit?account={other.pk}&")
    assert response.status_code == 422
    for value in query.values():
        assert f'value="{escape(value)}"' in response.text or not value
    assert expected in plain(response.text)
    assert 'aria-invalid="true"' in response.text
    assert f'name="account" value="{other.pk}"' in response.text
    assert "Ledger" in response.text
    assert "<script>" not in response.text


def test_an_unknown_format_is_refused_in_plain_text(member: Client) -> None:
    response = member.get("/statement", {"format": "xlsx"})
    assert (response.status_code, response["Content-Type"]) == (400, "text/plain; charset=utf-8")
    assert "format: 'xlsx' is not one of csv, jsonl" in response.text


def test_it_is_only_read(member: Client) -> None:
    assert member.post("/statement").status_code == 405
    assert member.head("/statement").status_code == 405


def test_the_credit_page_has_its_form(member: Client, account: Account) -> None:
    page = member.get("/credit").text
    assert 'action="/statement"' in page
    assert f'name="account" value="{account.pk}"' in page
    assert f'value="{timezone.now():%Y-%m}-01"' in page
    assert f'href="/credit?account={account.pk}">Billing and statements' in member.get("/").text


def test_a_period_may_last_until_the_end_of_the_calendar(member: Client, account: Account) -> None:
    used(account)
    period = {"since": f"{timezone.now():%Y-%m}-01", "until": "9999-12-31"}
    assert "reconciled" in download(member, **period)[1]
    printed = member.get("/statement", {**period, "format": "html"})
    assert printed.status_code == 200
    assert "9999" in plain(printed.text)


def test_it_can_be_printed_with_its_days_and_its_seal(
    member: Client, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    used(account)
    used(account)
    used(account, priced=False)
    ledger.grant(account.pk, Decimal(5), "invoice 5")
    query = {"format": "html", "since": f"{day_ago()}", "until": f"{day_ago()}"}
    html = member.get("/statement", query).text
    text = seen(html)
    for expected in (
        "Top-ups and corrections +105.00 EUR",
        "Usage, 3 requests, of which 1 not charged −0.00168 EUR",  # noqa: RUF001
        "Closing balance 104.99832 EUR",
        "Reconciled All request costs match the ledger.",
    ):
        assert expected in text
    assert [row.split()[-2:] for row in rows(html, "credits")] == [["opening", "+100.00"], ["5", "+5.00"]]
    assert rows(html, "by-day")[0].startswith(f"{day_ago():%-d %b %Y} 3 0.00168")
    monkeypatch.setattr(printed, "MOST_PRINTED", 2)
    html = member.get("/statement", query).text
    assert "3 requests are too many for a page" in seen(html)
    assert "Reconciled" not in html


def test_it_names_both_parties_and_has_a_number_and_sums_by_key_model_region_and_tag(
    member: Client, account: Account, settings: Settings
) -> None:
    settings.OPERATOR_NAME, settings.OPERATOR_ADDRESS = "Acme AI", "1 Road\n75002 Paris"
    settings.OPERATOR_EMAIL, settings.OPERATOR_VAT_ID = "billing@acme.example", "FR123"
    used(account, 1)
    used(account, 1, tags="blue green")
    used(account, 1, priced=False)
    period = {"since": f"{day_ago(1)}", "until": f"{day_ago(1)}"}
    html = member.get("/statement", {"format": "html", **period}).text
    text = seen(html)
    number = f"{day_ago(1):%Y%m%d}-{day_ago(1):%Y%m%d}-{account.pk.hex[-12:].upper()}"
    for expected in ("Acme AI1 Road75002 Paris", "VAT id FR123", str(account.pk), number, "billing@acme.example"):
        assert expected in text.replace(" 1 Road", "1 Road").replace(" 75002", "75002")
    assert f"{day_ago(1):%-d %b %Y} to {day_ago(1):%-d %b %Y} (UTC)" in text
    assert rows(html, "by-key")[0].startswith("test 3 0.00168")
    model, total = rows(html, "by-model")
    assert model.startswith("sim/test/echo 3 0.00168")  # in all of its regions
    assert total.startswith("Total 3 0.00168")
    assert rows(html, "by-region")[0].startswith("FRPAR 3 0.00168")
    assert [row.split(" 0.")[0] for row in rows(html, "by-tag")][:3] == ["blue 1", "green 1", "no tags 2"]


def test_each_column_has_one_unit_and_an_incomplete_sum_says_so(member: Client, account: Account) -> None:
    used(account, 2, energy_wh=Decimal(1_234), carbon_gco2e=Decimal(54))
    used(account, 1, energy_wh=Decimal(5), carbon_gco2e=Decimal("0.2"))
    used(account, 1, energy_wh=None, carbon_gco2e=None)
    period = {"since": f"{day_ago(2)}", "until": f"{day_ago(1)}"}
    html = member.get("/statement", {"format": "html", **period}).text
    heads = re.findall(r'aria-labelledby="by-day".*?<thead.*?</thead>', html, re.DOTALL)
    assert seen(heads[0]).endswith("Energy kWh Carbon g CO₂e")
    assert [row.split()[-4:] for row in rows(html, "by-day")] == [
        ["1", "0.00084", "1.23", "54.0"],
        ["<", "0.01", "≥", "0.2"],
        ["≥", "1.24", "≥", "54.2"],
    ]
    assert "≥ some requests have no figure" in seen(html)


def test_a_long_period_is_shown_by_month(member: Client, account: Account) -> None:
    used(account, printed.MOST_DAYS)
    for days in (1, 1, 0):
        used(account, days)
    period = {"since": f"{day_ago(printed.MOST_DAYS)}", "until": f"{day_ago()}"}
    html = member.get("/statement", {"format": "html", **period}).text
    assert "Usage by day" not in seen(html)
    assert rows(html, "by-month")[0].startswith(f"{day_ago(printed.MOST_DAYS):%B %Y} 1 0.00084")
    assert rows(html, "by-month")[-1].startswith("Total 4 0.00336")


def test_the_number_of_a_month_s_statement_is_its_account_and_month(account: Account) -> None:
    end = account.pk.hex[-12:].upper()
    assert printed.number_of(account, Period.between("2026-11-01", "2026-11-30")) == f"2026-11-{end}"
    assert printed.number_of(account, Period.between("2026-11-01", "2026-11-29")) == f"20261101-20261129-{end}"


def test_sums_of_days_that_are_over_are_those_of_the_records(account: Account) -> None:
    for days in (3, 2, 2, 1):
        used(account, days, tags="blue")
    used(account, 2, priced=False)
    period = Period.between(f"{day_ago(3)}", f"{day_ago(1)}")
    one_by_one = printed._of_lines(account, period)
    assert rollups.advance(1000, trail=timedelta(0)) == 5
    from_days = printed.printed(account, period)
    for name in ("whole", "days", "keys", "models", "regions", "tags"):
        assert getattr(from_days, name) == getattr(one_by_one, name), name
    assert from_days.totals.requests == 5
