"""The Billing page sums up the ledger by months, exactly, with a statement of each."""

import itertools
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from unittest.mock import patch

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from accounts.models import Account
from billing.ledger import booking
from billing.ledger import credits as ledger
from billing.usage import rollups
from billing.usage.months import Ledger, LedgerSums
from billing.usage.statement import Period, StatementTotals, lines
from tests.billing.plans import fill, plans
from tests.billing.records import open_for, serve
from tests.dashboard.usage import links, rows
from tests.page_text import plain

pytestmark = pytest.mark.django_db
DECEMBER, NOVEMBER = datetime(2025, 12, 15, 12, tzinfo=UTC), datetime(2025, 11, 30, 23, 59, 59, 999999, tzinfo=UTC)
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


def booked() -> Account:
    """Books entries of all kinds in three months: the first and the last moments of a month among them."""
    # In steps on PostgreSQL too, whose statement takes the time from its own clock.
    with patch.object(booking, "_book_by_statement", booking._book_in_steps):
        return _booked_in_the_past()


def _booked_in_the_past() -> Account:
    with patch.object(timezone, "now", return_value=NOVEMBER):
        account = open_for("member@example.com", credit="10")
        serve(account, created_at=NOVEMBER, price=Decimal("0.1234567"))
    with patch.object(timezone, "now", return_value=DECEMBER):
        ledger.grant(account.pk, Decimal("5.01"), "invoice 1")
        ledger.correct(account.pk, Decimal("-0.25"), "invoice 1, corrected")
        serve(account)
        serve(account, priced=False)
    with patch.object(timezone, "now", return_value=NEW_YEAR):
        serve(account)
    return account


def is_exact(sums: LedgerSums) -> bool:
    return sums.opening + sums.top_ups + sums.corrections - sums.usage == sums.closing


def test_each_month_adds_up_to_the_last_digit_and_is_its_statement() -> None:
    account = booked()
    months = Ledger(account.pk).months(2026, date(2026, 1, 20)) + Ledger(account.pk).months(2025, date(2026, 1, 20))
    assert [sums.days.first for sums in months] == [date(2026, 1, 1), date(2025, 12, 1), date(2025, 11, 1)]
    assert [sums.top_ups for sums in months] == [0, Decimal("5.01"), 10]
    assert [sums.corrections for sums in months] == [0, Decimal("-0.25"), 0]
    for newer, older in itertools.pairwise(months):
        assert newer.opening == older.closing
    for sums in months:
        assert is_exact(sums)
        totals = StatementTotals()
        list(lines(account, Period.between(f"{sums.days.first}", f"{sums.days.last}"), totals))
        assert (totals.opening_balance, totals.closing_balance) == (sums.opening, sums.closing)
        assert (totals.credits, totals.cost.total) == (sums.top_ups + sums.corrections, sums.usage)
        assert totals.cost.total > 0


def test_months_before_and_after_the_watermark_have_the_same_sums() -> None:
    account = booked()
    before = Ledger(account.pk).months(2025, date(2026, 1, 20))
    assert rollups.advance(1000, trail=timedelta(0))
    assert Ledger(account.pk).months(2025, date(2026, 1, 20)) == before


def test_entries_that_are_booked_meanwhile_are_in_no_sum() -> None:
    account = booked()
    reader = Ledger(account.pk)
    ledger.grant(account.pk, Decimal(7), "meanwhile")
    serve(account)
    today = timezone.now().astimezone(UTC).date()
    (this_month, *_) = reader.months(today.year, today)
    assert is_exact(this_month)
    assert this_month.top_ups == 0
    (this_month, *_) = Ledger(account.pk).months(today.year, today)
    assert is_exact(this_month)
    assert this_month.top_ups == 7


def test_the_page_lists_a_year_of_months_with_their_statements(client: Client) -> None:
    account = booked()
    client.force_login(account.members.get())
    page = client.get("/credit", {"year": "2025"}).text
    newest, oldest = rows(page, "months")
    assert newest.startswith("Dec 2025 9.9")
    assert "+5.01 −0.25" in newest  # noqa: RUF001
    assert oldest.startswith("Nov 2025 0.00 +10.00 0.00 −0.0")  # noqa: RUF001
    assert "View statement of December 2025" in plain(page)
    for words, content_type in (("View", "text/html"), ("CSV", "text/csv"), ("JSON Lines", "application/jsonl")):
        december, _ = (link for link in links(page, words) if "since=2025" in link)
        assert "since=2025-12-01&until=2025-12-31" in december
        assert client.get(december)["Content-Type"].startswith(content_type)
    (newer,) = links(page, "2026")
    assert "Jan 2026" in plain(client.get(newer).text)
    for year in ("2024", "9999", "x", "²025", ""):
        assert client.get("/credit", {"year": year}).status_code == 404


def test_a_year_takes_a_query_for_each_month(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    account = booked()
    with django_assert_num_queries(2 + 3):  # the wallet, the credits; three bounds of two months
        Ledger(account.pk).months(2025, date(2026, 1, 20))


@pytest.mark.usefixtures("no_dead_rows")
def test_a_balance_is_read_from_an_index(account: Account) -> None:
    fill(account, days=40, since=account.created_at)
    moment = account.created_at + timedelta(days=20)
    for sql, plan in plans(lambda: Ledger(account.pk).before(moment), "billing_generation").items():
        assert "Seq Scan" not in plan, f"{sql}\n{plan}"
        assert "SCAN" not in plan, f"{sql}\n{plan}"
        assert "Sort" not in plan, f"{sql}\n{plan}"
        assert "TEMP B-TREE" not in plan, f"{sql}\n{plan}"
