"""The admin's filters of the ledger and the records find the right rows, and none reads a whole table for it."""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from django.utils.html import escape

from accounts.models import Account
from billing.ledger import credits as ledger
from billing.models import FLAGS, Generation
from tests.billing.plans import RECORDS_A_DAY, fill, plans
from tests.billing.records import MEMBER, key_of, open_for, serve

pytestmark = pytest.mark.django_db

RECORDS, ENTRIES = "/admin/billing/generation/", "/admin/billing/ledgerentry/"
START, DAYS = datetime(2026, 3, 1, 23, 50, tzinfo=UTC), 10  # each day's usage continues after midnight
DAY = "2026-03-05"
BEFORE_MIDNIGHT = 10
# SQLite reads a partial index from its end if that is the requested order, and then reads only requested rows.
WHOLE_TABLE = re.compile(
    r"Seq Scan on billing_(generation|ledgerentry)"
    r"|Rows Removed by Filter: \d{4}"  # an index that does not fit: an account has 200 rows, the other one 2,400
    r"|SCAN billing_(generation|ledgerentry)"
    r"(?! USING (COVERING )?INDEX (ledger_credit|generation_not_priced|generation_flagged)\b)"
)


@pytest.fixture
def account() -> Account:
    return open_for(MEMBER)


def found(client: Client, listing: str, **query: str) -> list[Any]:
    response = client.get(listing, query)
    assert response.status_code == 200
    return list(response.context["cl"].result_list)


@pytest.mark.usefixtures("no_dead_rows")
def test_no_filter_reads_a_whole_table(staff: Client, account: Account) -> None:
    record = fill(account, DAYS, START)[30]
    fill(open_for(name="Other"), 12 * DAYS, START)
    narrowed = {
        RECORDS: [
            {"day": DAY},
            {"priced": "no"},
            {"flagged": "any"},
            {"flagged": "malformed_event"},
            {"q": "Acme"},
            {"q": "Acme", "day": DAY},
            {"q": "Acme", "priced": "no"},
            {"q": str(key_of(account).pk)},
            {"q": record.public_id},
        ],
        ENTRIES: [
            {"day": DAY},
            {"kind": "credit"},
            {"kind": "grant"},
            {"kind": "correction"},
            {"kind": "grant", "day": DAY},
            {"q": "Acme"},
            {"q": "Acme", "day": DAY},
            {"q": "Acme", "kind": "credit"},
            {"q": record.public_id},
        ],
    }
    for listing, queries in narrowed.items():
        table = "billing_generation" if listing == RECORDS else "billing_ledgerentry"
        for query in queries:
            read = plans(lambda: found(staff, listing, **query), table)  # noqa: B023  # read at once
            assert read
            for sql, plan in read.items():
                is_newest_row = "LIMIT 1" in sql and "WHERE" not in sql
                assert is_newest_row or not WHOLE_TABLE.search(plan), f"{query}: {sql}\n{plan}"


def test_a_day_is_the_utc_day_of_records_and_entries(staff: Client) -> None:
    records = fill(open_for(credit=None), 3, START)
    since = datetime(2026, 3, 2, tzinfo=UTC)
    expected = [r.pk for r in records if since <= r.created_at < since + timedelta(days=1)]
    assert len(expected) == RECORDS_A_DAY
    assert sorted(row.pk for row in found(staff, RECORDS, day="2026-03-02")) == expected
    entries = found(staff, ENTRIES, day="2026-03-02")
    assert {e.created_at for e in entries} == {r.created_at for r in records if r.pk in expected and r.cost is not None}
    assert len(found(staff, ENTRIES, day="2026-03-01", kind="usage")) == BEFORE_MIDNIGHT - 1
    assert found(staff, ENTRIES, day="2026-02-01") == []


def test_a_record_that_was_settled_the_day_after_it_was_asked_for_is_of_that_day(
    staff: Client, account: Account
) -> None:
    record = fill(account, 1, START)[0]
    Generation.objects.filter(pk=record.pk).update(created_at=START + timedelta(hours=20))
    assert record.pk in [row.pk for row in found(staff, RECORDS, day="2026-03-02")]
    assert record.pk not in [row.pk for row in found(staff, RECORDS, day="2026-03-01")]


def test_the_calendar_keeps_what_was_chosen_before(staff: Client, account: Account) -> None:
    text = staff.get(ENTRIES, {"kind": "credit", "q": "Acme", "day": DAY}).text
    assert f'<input type="date" name="day" value="{DAY}"' in text
    assert '<input type="hidden" name="kind" value="credit">' in text
    assert '<input type="hidden" name="q" value="Acme">' in text
    today = serve(account).created_at.date()
    assert f"day={today}" in staff.get(RECORDS).text


@pytest.mark.parametrize("day", ["nonsense", "2026-02-30", "0001-01-01", "9999-12-31"])
@pytest.mark.parametrize("listing", [RECORDS, ENTRIES])
def test_what_is_no_day_leads_back_to_the_list(staff: Client, account: Account, listing: str, day: str) -> None:
    assert staff.get(listing, {"day": day})["Location"] == f"{listing}?e=1"


@pytest.mark.parametrize("year", ["0", "10000", "99999"])
@pytest.mark.parametrize("listing", ["accounts/account", "accounts/apikey", "admin/logentry", "accounts/user"])
def test_a_year_that_no_calendar_has_leads_back_to_the_list(staff: Client, listing: str, year: str) -> None:
    times = {"admin/logentry": "action_time", "accounts/user": "date_joined"}
    for lookup in ("year", "year__gte", "iso_year"):
        response = staff.get(f"/admin/{listing}/", {f"{times.get(listing, 'created_at')}__{lookup}": year})
        assert response["Location"] == f"/admin/{listing}/?e=1"


def test_an_empty_ledger_has_days_too(staff: Client) -> None:
    assert found(staff, ENTRIES, day=DAY) == []


@pytest.mark.parametrize(
    ("kind", "count"), [("credit", 3), ("grant", 2), ("correction", 1), ("usage", 2), ("", 5), ("other", 5)]
)
def test_entries_are_narrowed_by_kind(staff: Client, account: Account, kind: str, count: int) -> None:
    ledger.grant(account.pk, Decimal(5), "invoice 17")
    ledger.correct(account.pk, Decimal(-5), "invoice 17, undone")
    serve(account)
    serve(account)
    assert len(found(staff, ENTRIES, kind=kind)) == count


def test_records_without_a_price_are_found(staff: Client, account: Account) -> None:
    serve(account)
    record = serve(account, priced=False)
    assert [row.pk for row in found(staff, RECORDS, priced="no")] == [record.pk]
    assert len(found(staff, RECORDS)) == 2


@pytest.mark.parametrize(("flagged", "count"), [("any", 2), ("malformed_event", 1), ("", 3), ("other", 3)])
def test_records_are_narrowed_by_their_flags(staff: Client, account: Account, flagged: str, count: int) -> None:
    for flags in (None, "another", "another malformed_event"):
        serve(account, flags=flags)
    assert len(found(staff, RECORDS, flagged=flagged)) == count


def test_a_flag_is_shown_in_words(staff: Client, account: Account) -> None:
    serve(account, flags="malformed_event another")
    words = f"{FLAGS['malformed_event']} another"
    assert f">{escape(words)}<" in staff.get(RECORDS, {"flagged": "any"}).text
