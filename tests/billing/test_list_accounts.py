"""`list_accounts` prints every account with its balance and what it spent, for people and for scripts."""

import io
import json
from decimal import Decimal
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from accounts import suspensions
from accounts.models import Account
from billing.ledger import booking
from billing.usage.spending import spending_by_account
from billing.usage.statistics import Days, Scope, Totals, totals
from tests.billing.records import open_for
from tests.billing.timeline import advance_all
from tests.dashboard.usage import day_ago, used
from tests.factories import SMALL, served

pytestmark = pytest.mark.django_db


def listed(*options: str) -> str:
    out = io.StringIO()
    call_command("list_accounts", *options, stdout=out)
    return out.getvalue()


def described(*options: str) -> list[dict[str, Any]]:
    accounts: list[dict[str, Any]] = json.loads(listed("--json", *options))
    return accounts


def names(*options: str) -> list[str]:
    return [account["name"] for account in described(*options)]


@pytest.fixture
def acme() -> Account:
    """Opens an account that spent 0.00084 EUR today and the same 40 days ago."""
    account = open_for(name="Acme", credit="10")
    used(account)
    used(account, 40)
    return account


def test_an_account_is_described_by_decimal_strings_and_moments(acme: Account) -> None:
    (account,) = described()
    suspended_at, closed_at, created_at = (account.pop(f"{what}_at") for what in ("suspended", "closed", "created"))
    assert account == {
        "id": str(acme.pk),
        "name": "Acme",
        "currency": "EUR",
        "balance": "9.99832",
        "since": str(day_ago(29)),
        "requests": 1,
        "spent": "0.00084",
        "spent_eur": "0.00084",
    }
    assert (suspended_at, closed_at) == (None, None)
    assert created_at.endswith("Z")


def test_what_is_spent_is_what_the_usage_pages_say_rolled_up_or_not(acme: Account) -> None:
    days = Days(day_ago(40), day_ago())
    advance_all()
    booking.book(served(acme, SMALL), using="default")  # not rolled up
    zenith = open_for(name="Zenith", currency="USD", credit="5")
    used(zenith)
    open_for(name="Idle")
    spending = spending_by_account(days)
    assert spending.keys() == {acme.pk, zenith.pk}
    for account_id, spent in spending.items():
        whole = totals(Scope(account_id), days)
        assert (spent.requests, spent.priced, spent.cost, spent.cost_eur) == (
            whole.requests,
            whole.priced,
            whole.cost,
            whole.cost_eur,
        )
    assert spending[acme.pk].cost == Decimal("0.00252")


def test_a_request_without_a_price_is_a_request_that_cost_nothing_known() -> None:
    account = open_for(name="Acme")
    used(account, cost=None, cost_eur=None, prompt_cost=None, completion_cost=None)
    advance_all()
    days = Days.until(account.created_at, 1)
    spent = spending_by_account(days).get(account.pk, Totals())
    assert (spent.priced, spent.cost) == (0, None)


def test_accounts_are_sorted_as_asked(acme: Account) -> None:
    for name, credit, requests in (("zenith", "5", 3), ("Busy", "100", 2), ("Idle", "1", 0)):
        account = open_for(name=name, credit=credit)
        for _ in range(requests):
            used(account)
    assert names() == ["Acme", "Busy", "Idle", "zenith"]
    assert names("--sort", "spend") == ["zenith", "Busy", "Acme", "Idle"]
    assert names("--sort", "balance") == ["Idle", "zenith", "Acme", "Busy"]
    assert names("--sort", "created") == ["Acme", "zenith", "Busy", "Idle"]


def test_what_is_spent_counts_from_a_day_on(acme: Account) -> None:
    assert described("--since", str(day_ago(40)))[0]["spent"] == "0.00168"
    assert described("--since", str(day_ago(39)))[0]["spent"] == "0.00084"
    for since, words in (
        ("yesterday", "is a day such as"),
        ("2026-13-01", "is a day such as"),
        ("9999-01-01", "future"),
    ):
        with pytest.raises(CommandError, match=words):
            listed("--since", since)


def test_people_get_a_table_whose_columns_are_aligned(acme: Account) -> None:
    suspensions.suspend(
        open_for(name="\N{CJK UNIFIED IDEOGRAPH-6771}\N{CJK UNIFIED IDEOGRAPH-4EAC}", credit="100"), "Abuse", by=None
    )
    heading, first, second = listed("--since", "2026-01-01").splitlines()
    assert heading.split() == [
        "NAME",
        "ID",
        "BALANCE",
        "SPENT",
        "SINCE",
        "2026-01-01",
        "CURRENCY",
        "SUSPENDED",
        "SINCE",
    ]
    assert first == f"Acme  {acme.pk}  9.99832{0.00168:>24}  EUR"
    assert second.startswith("\N{CJK UNIFIED IDEOGRAPH-6771}\N{CJK UNIFIED IDEOGRAPH-4EAC}  ")
    assert second.endswith("Z")


def test_without_an_account_there_is_an_empty_array_and_a_heading() -> None:
    assert described() == []
    assert listed().startswith("NAME  ID")
