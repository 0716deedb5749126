"""Staff get one mail about an account far below zero, and another only after it has recovered."""

import logging
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest
from django.core import mail
from django.db import connections
from django.test import Client
from pytest_django import DjangoAssertNumQueries, Settings

from accounts.models import Account, User
from billing import maintenance
from billing.ledger import credits as ledger
from billing.ledger import overdraft
from billing.models import OverdraftAlert
from gateway.pages.mail import finish
from tests.billing.records import open_for

pytestmark = pytest.mark.django_db
ACCOUNTS = "/admin/accounts/account/"


@pytest.fixture
def account() -> Account:
    return open_for(name="Acme", credit="1")


def take(account: Account, amount: str) -> None:
    ledger.correct(account.pk, Decimal(amount), f"taken {amount}")


def look(**options: int) -> int:
    raised = overdraft.raise_alerts(**options)
    finish()
    return raised


def alerted() -> list[str]:
    return sorted(OverdraftAlert.objects.values_list("account__name", flat=True))


def test_staff_get_a_mail_and_the_log_a_line(account: Account, caplog: pytest.LogCaptureFixture) -> None:
    User.objects.create_user("one@example.com", is_staff=True)
    User.objects.create_user("two@example.com", is_staff=True)
    User.objects.create_user("gone@example.com", is_staff=True, is_active=False)
    User.objects.create_user("member@example.com")
    take(account, "-11.5")
    with caplog.at_level(logging.ERROR):
        assert look() == 1
    assert caplog.messages == [f"account {account.pk} is far below zero: its balance is -10.50 EUR"]
    assert sorted(message.to for message in mail.outbox) == [["one@example.com"], ["two@example.com"]]
    message = mail.outbox[0]
    assert message.subject == "Overdrawn account: Acme"
    assert "its balance is -10.50 EUR" in message.body
    assert f"http://127.0.0.1:8000{ACCOUNTS}{account.pk}/change/" in message.body


@pytest.mark.parametrize(("amount", "is_far"), [("-11", False), ("-11.0000000001", True)])
def test_far_is_more_than_the_threshold(account: Account, amount: str, is_far: bool) -> None:
    take(account, amount)
    assert look() == is_far
    assert alerted() == ["Acme"] * is_far


def test_it_is_announced_once_until_the_account_has_recovered(account: Account) -> None:
    take(account, "-12")
    assert [look(), look()] == [1, 0]
    ledger.grant(account.pk, Decimal("10.5"), "not enough")
    take(account, "-20")
    assert look() == 0
    ledger.grant(account.pk, Decimal("20.5"), "to zero")
    assert (look(), alerted()) == (0, [])
    take(account, "-10.1")
    assert (look(), alerted()) == (1, ["Acme"])


def test_the_threshold_is_a_setting_and_zero_is_off(account: Account, settings: Settings) -> None:
    take(account, "-50")
    settings.GATEWAY_OVERDRAFT_ALERT = 0
    assert look() == 0
    settings.GATEWAY_OVERDRAFT_ALERT = 49
    assert look() == 0
    settings.GATEWAY_OVERDRAFT_ALERT = 48
    assert look() == 1


def test_alerts_are_removed_if_they_are_no_longer_raised(account: Account, settings: Settings) -> None:
    take(account, "-50")
    look()
    settings.GATEWAY_OVERDRAFT_ALERT = 0
    ledger.grant(account.pk, Decimal(100), "back")
    look()
    assert alerted() == []


def test_many_overdrafts_are_announced_in_rounds_the_worst_first(account: Account) -> None:
    for number in range(3):
        take(open_for(name=f"Account {number}", credit="1"), f"-{20 + number}")
    assert look(most=2) == 2
    assert alerted() == ["Account 1", "Account 2"]
    assert look() == 1


def test_a_look_at_healthy_accounts_is_two_statements(
    account: Account, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_num_queries(2):  # recovered, far below zero
        overdraft.raise_alerts()


@pytest.mark.django_db(transaction=True, databases=["default", "settlement"])
def test_maintenance_looks_too(account: Account) -> None:
    take(account, "-50")
    maintenance.maintain_once()
    assert alerted() == ["Acme"]


@pytest.mark.django_db(transaction=True)
def test_workers_that_look_at_once_tell_once() -> None:
    take(open_for(name="Acme", credit="1"), "-50")

    def run(_number: int) -> int:
        try:
            return overdraft.raise_alerts()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(run, range(8))) == 1
    finish()


def test_the_admin_marks_them_and_finds_them(account: Account, client: Client) -> None:
    client.force_login(User.objects.create_superuser("staff@example.com"))
    take(account, "-50")
    take(open_for(name="Slightly", credit="1"), "-2")
    take(open_for(name="Even", credit="1"), "-1")
    open_for(name="Fine")
    look()
    assert f"since {OverdraftAlert.objects.get().raised_at:%Y-%m-%d %H:%M} UTC" in client.get(ACCOUNTS).text
    for choice, names in {
        "alert": ["Acme"],
        "below": ["Acme", "Slightly"],
        "empty": ["Acme", "Even", "Slightly"],
    }.items():
        found = client.get(ACCOUNTS, {"balance": choice}).context["cl"].result_list
        assert [row.name for row in found] == names
