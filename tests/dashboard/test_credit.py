"""The dashboard's page on credit shows the balance and the ledger a page at a time, only to the account's members."""

import functools
import itertools
import re
from datetime import timedelta
from decimal import Decimal
from html import unescape
from uuid import UUID

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries, Settings

from accounts.models import Account, User
from billing.ledger import credits as ledger
from dashboard.credit import PAGE_ENTRIES, LedgerView, ledger_page
from tests.billing.plans import fill, plans
from tests.billing.records import MEMBER, open_for, serve
from tests.dashboard.usage import day_ago, noon, rows, used
from tests.dashboard.usage import links as links_of
from tests.page_text import plain

pytestmark = pytest.mark.django_db
ENTRY = re.compile(r'data-label="Reference">\s*(.*?)</td>', re.DOTALL)
LINK = re.compile(r'<a rel="(prev|next)" href="([^"#]+)#ledger">')
CROWD = 2 * PAGE_ENTRIES + 20


def page(client: Client, address: str = "/credit?show=all") -> str:
    response = client.get(address)
    assert response.status_code == 200
    return response.text


def references(text: str) -> list[str]:
    """Returns the names in the ledger's lines, in their order."""
    return [plain(cell).strip() for cell in ENTRY.findall(text)]


def links(text: str) -> dict[str, str]:
    """Returns the addresses of the previous page (`prev`, newer) and the next (`next`, older)."""
    return {rel: unescape(address) for rel, address in LINK.findall(text)}


def grants(account: Account, count: int) -> list[str]:
    """Books this many grants, and returns their names, newest first."""
    names = [f"invoice {number}" for number in range(count)]
    for name in names:
        ledger.grant(account.pk, Decimal(1), name)
    return names[::-1]


def seqs(account: Account, shown: LedgerView = LedgerView.ALL, **position: int) -> list[int]:
    return [line.entry.seq for line in ledger_page(account.pk, shown, **position).rows]


def test_it_shows_every_kind_of_entry_with_sign_and_balance(member: Client, account: Account) -> None:
    record = serve(account)
    ledger.correct(account.pk, Decimal("-20.5"), "invoice 17, corrected", reason="typed twice by Eve")
    text = page(member)
    assert references(text) == [
        "invoice 17, corrected",
        f"sim/demo/echo/FRPAR {record.public_id}",
        "opening",
    ]
    assert re.search(r"Correction invoice 17, corrected −20.5000 79.49", plain(text))  # noqa: RUF001
    assert re.search(rf"Usage sim/demo/echo/FRPAR {record.public_id} −0.0007 99.99", plain(text))  # noqa: RUF001
    assert re.search(r"Top-up opening \+100.0000 100.00", plain(text))
    assert '<data value="-0.00072" title="-0.00072">' in text


def test_the_reason_is_for_staff_alone(member: Client, account: Account) -> None:
    ledger.grant(account.pk, Decimal(1), "invoice 17", reason="as agreed with Mallory")
    assert "invoice 17" in page(member)
    assert "Mallory" not in page(member)


def test_it_says_how_credit_is_added(member: Client) -> None:
    assert "The gateway's operator adds credit." in plain(page(member))


def test_a_low_and_an_empty_balance_are_noticed(member: Client, account: Account) -> None:
    serve(account, price=Decimal(90_000))
    assert "The balance is low." in page(member)
    serve(account, price=Decimal(90_000))
    assert "402 insufficient_credits" in page(member)


def test_the_page_of_an_account_without_entries_says_so(client: Client) -> None:
    open_for(MEMBER, credit=None)
    client.force_login(User.objects.get(email=MEMBER))
    assert "No top-ups and no usage" in page(client)
    assert "No credit has been added yet." in page(client, "/credit?show=credit")
    assert "No usage yet." in page(client, "/credit?show=usage")


def test_the_ledger_is_walked_by_its_links_in_both_directions(member: Client, account: Account) -> None:
    expected = [*grants(account, CROWD), "opening"]
    pages, text = [], page(member)
    assert "prev" not in links(text)
    while "next" in links(text):
        pages.append(text)
        text = page(member, links(text)["next"])
    pages.append(text)
    walked = [references(each) for each in pages]
    assert [name for names in walked for name in names] == expected
    assert [len(names) for names in walked] == [PAGE_ENTRIES, PAGE_ENTRIES, 21]
    back = page(member, links(pages[2])["prev"])
    assert references(back) == walked[1]
    back = page(member, links(back)["prev"])
    assert references(back) == walked[0]
    assert "prev" not in links(back) or references(page(member, links(back)["prev"])) == walked[0]


def test_entries_that_come_meanwhile_shift_no_page(member: Client, account: Account) -> None:
    grants(account, CROWD)
    older = links(page(member))["next"]
    before = references(page(member, older))
    ledger.grant(account.pk, Decimal(1), "meanwhile")
    assert references(page(member, older)) == before


def test_credit_and_usage_can_be_shown_alone(member: Client, account: Account) -> None:
    serve(account)
    ledger.correct(account.pk, Decimal(-1), "correction")
    serve(account)
    assert references(page(member, "/credit?show=credit")) == ["correction", "opening"]
    assert len(references(page(member, "/credit?show=usage"))) == 2
    assert 'show=credit" aria-current="true"' in page(member, "/credit?show=credit")
    assert seqs(account, LedgerView.USAGE) == [4, 2]
    assert seqs(account, LedgerView.CREDIT) == [3, 1]


def test_the_choice_is_kept_from_page_to_page(member: Client, account: Account) -> None:
    expected = [*grants(account, PAGE_ENTRIES), "opening"]
    serve(account)
    text = page(member, "/credit?show=credit")
    rest = page(member, links(text)["next"])
    assert references(text) + references(rest) == expected


def test_beyond_the_oldest_there_is_nothing_and_a_way_back(member: Client) -> None:
    text = page(member, "/credit?before=1")
    assert "No older entries." in text
    assert references(page(member, links(text)["prev"])) == ["opening"]


@pytest.mark.parametrize(
    "query",
    ["before=x", "before=-1", "before=", "before=9223372036854775808", "after=1.5", "after=²", "show=everything"],
)
def test_what_is_no_position_or_choice_is_not_found(member: Client, query: str) -> None:
    assert member.get(f"/credit?{query}").status_code == 404


def test_the_number_of_queries_is_fixed(
    member: Client, account: Account, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for _ in range(5):
        serve(account)
    with django_assert_num_queries(11):  # session, user, accounts; ledger; wallet, watermark, sums; four for the months
        page(member)


@pytest.mark.usefixtures("no_dead_rows")
def test_a_page_is_read_from_its_start_in_an_index(account: Account) -> None:
    fill(account, days=40, since=account.created_at)
    fill(open_for(name="Other"), days=40, since=account.created_at)
    positions: list[dict[str, int]] = [{}, {"before": 500}, {"after": 100}]
    for shown, position in itertools.product(LedgerView, positions):
        read = functools.partial(ledger_page, account.pk, shown, **position)
        for sql, plan in plans(read, "billing_ledgerentry").items():
            plan_of_query = f"{shown} {position}: {sql}\n{plan}"
            assert "Seq Scan" not in plan, plan_of_query
            assert "SCAN" not in plan, plan_of_query
            if shown == LedgerView.CREDIT:  # there are so few entries here that PostgreSQL may sort them
                assert "ledger_credit" in plan, plan_of_query
            else:
                assert "TEMP B-TREE" not in plan, plan_of_query
                assert "Sort" not in plan, plan_of_query


def test_strangers_are_sent_to_the_login(client: Client, account: Account) -> None:
    assert client.get("/credit")["Location"] == "/login?next=/credit"
    assert client.head("/credit")["Location"] == "/login?next=/credit"
    assert client.post("/credit").status_code == 405


@pytest.mark.parametrize("staff", [False, True])
def test_members_of_other_accounts_find_nothing_by_any_verb(client: Client, account: Account, staff: bool) -> None:
    client.force_login(User.objects.create_user("somebody@example.com", is_staff=staff))
    assert "not a member of any account" in client.get("/credit").text
    open_for("somebody@example.com", name="Theirs")
    for send in (client.get, client.head):
        assert send("/credit", {"account": str(account.pk)}).status_code == 404
    for verb in ("post", "put", "patch", "delete"):
        assert getattr(client, verb)(f"/credit?account={account.pk}").status_code == 405
    assert "Acme" not in client.get("/credit").text


@pytest.mark.parametrize("wanted", ["", "nonsense", str(UUID(int=7))])
def test_an_unknown_account_is_not_found(member: Client, wanted: str) -> None:
    assert member.get("/credit", {"account": wanted}).status_code == 404


def test_a_post_without_its_token_is_refused_before_the_verb_is(account: Account) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.get(email=MEMBER))
    assert client.post("/credit", {"account": str(account.pk)}).status_code == 403


def test_entries_of_ones_other_account_are_not_mixed_in(member: Client, account: Account) -> None:
    other = open_for(MEMBER, name="Beta", currency="USD")
    grants(other, 3)
    assert references(page(member, f"/credit?account={account.pk}&show=all")) == ["opening"]
    assert len(references(page(member, f"/credit?account={other.pk}&show=all"))) == 4
    assert f'href="/credit?account={other.pk}"' in page(member)


def test_it_is_kept_by_no_cache(member: Client) -> None:
    assert "no-store" in member.get("/credit")["Cache-Control"]


def test_what_a_reference_says_is_escaped(member: Client, account: Account) -> None:
    ledger.grant(account.pk, Decimal(1), "<script>alert(1)</script>")
    assert "<script>alert" not in page(member)


def test_by_default_top_ups_are_listed_with_the_usage_of_each_day(member: Client, account: Account) -> None:
    used(account)
    used(account)
    ledger.grant(account.pk, Decimal(5), "invoice 5")
    html = page(member, "/credit")
    today = f"{day_ago():%-d %b %Y}"
    shown = rows(html, "ledger")
    assert shown[0] == f"{today} Top-up invoice 5 +5.0000"
    assert f"{today} Usage 2 requests −0.0017" in shown  # noqa: RUF001
    (requests,) = links_of(html, "2 requests")
    assert member.get(requests).text.count("sim/test/echo/FRPAR</span>") == 2


def test_the_ledger_is_turned_by_months_of_the_account(member: Client, account: Account) -> None:
    html = page(member, "/credit")
    assert "Previous month" not in html
    Account.objects.filter(pk=account.pk).update(created_at=noon(40))
    (older,) = links_of(page(member, "/credit"), "Previous month")
    html = page(member, older)
    assert f"{day_ago().replace(day=1) - timedelta(days=1):%B %Y}" in html
    assert "Next month" in html
    for month in ("2026-13", "1999-12", "9999-01", "x"):
        assert member.get("/credit", {"month": month}).status_code == 404


def test_the_operator_says_how_to_top_up(member: Client, account: Account, settings: Settings) -> None:
    settings.BILLING_CONTACT_URL = "https://billing.example/top-up"
    assert 'href="https://billing.example/top-up">How to top up' in page(member)
    serve(account, price=Decimal(200_000))
    assert 'href="https://billing.example/top-up">How to top up' in member.get("/").text
