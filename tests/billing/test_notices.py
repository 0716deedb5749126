"""Owners hear by mail of credit that ends and of keys that expire: once each, if they want to, from any worker."""

import logging
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from decimal import Decimal

import pytest
from django.core import mail
from django.db import connections
from django.utils import timezone
from pytest_django import Settings

from accounts import keys
from accounts.models import Account, ApiKey, User
from billing import maintenance, notices
from billing.ledger import entries as ledger
from gateway.stores.outages import Outage
from tests.billing.records import open_for
from tests.dashboard.people import joined

pytestmark = pytest.mark.django_db
OWNER, OTHER = "owner@acme.example", "other@acme.example"


@pytest.fixture
def account() -> Account:
    account = open_for(name="Acme", credit="10")
    Account.objects.filter(pk=account.pk).update(low_balance=Decimal(5))
    joined(account, OWNER, "owner")
    joined(account, "member@acme.example")
    return account


def take(account: Account, amount: str) -> None:
    ledger.correct(account.pk, Decimal(amount), f"taken {amount}")


def mailed() -> list[tuple[str, str]]:
    """Looks, and returns to whom what was sent."""
    mail.outbox.clear()
    sent = notices.look()
    assert sent == len(mail.outbox)
    return sorted((message.to[0], str(message.subject)) for message in mail.outbox)


def expiring(account: Account, *, in_days: float, after_days: float) -> ApiKey:
    """A key that lives for so many days, of which so many are left."""
    key, _ = keys.issue(account, name="laptop", lifetime="90d")
    end = timezone.now() + timedelta(days=in_days)
    ApiKey.objects.filter(pk=key.pk).update(expires_at=end, created_at=end - timedelta(days=after_days))
    return ApiKey.objects.get(pk=key.pk)


def test_a_balance_that_falls_below_the_accounts_threshold_is_told_once_until_it_has_recovered(
    account: Account, settings: Settings
) -> None:
    settings.PUBLIC_URL = "https://gateway.example"
    take(account, "-5")
    assert mailed() == [], "not below"
    take(account, "-0.001")
    assert mailed() == [(OWNER, "Acme: the balance is low")]
    body = str(mail.outbox[0].body)
    assert "The balance of Acme is 4.99 EUR, below 5.00 EUR. Requests are refused at zero." in body
    assert f"https://gateway.example/credit?account={account.pk}" in body
    assert f"https://gateway.example/notifications?account={account.pk}" in body
    take(account, "-1")
    assert mailed() == []
    ledger.grant(account.pk, Decimal(10), "recovered")
    assert mailed() == []
    take(account, "-12")
    assert mailed() == [(OWNER, "Acme: the balance is low")]


def test_an_account_that_is_used_up_is_told_and_one_that_never_had_credit_is_not(account: Account) -> None:
    joined(open_for(name="New", credit=None), OWNER, "owner")
    assert mailed() == []
    take(account, "-11.5")
    assert mailed() == [(OWNER, "Acme has no credit left")]
    assert "The balance of Acme is -1.50 EUR." in mail.outbox[0].body
    assert mailed() == []


def test_without_a_threshold_only_zero_is_told(account: Account) -> None:
    Account.objects.update(low_balance=None)
    take(account, "-9.99")
    assert mailed() == []


def test_a_key_that_expires_within_seven_days_is_told_to_every_owner(account: Account) -> None:
    joined(account, OTHER, "owner")
    key = expiring(account, in_days=6.9, after_days=90)
    subject = "Acme: the API key laptop expires soon"
    assert mailed() == [(OTHER, subject), (OWNER, subject)]
    assert f"The API key laptop ({key.masked}) of Acme expires on {key.expires_at:%Y-%m-%d %H:%M} UTC." in (
        mail.outbox[0].body
    )
    assert mailed() == []


@pytest.mark.parametrize(("in_days", "after_days"), [(7.1, 90), (6.9, 7), (-1, 90)])
def test_other_keys_are_not(account: Account, in_days: float, after_days: float) -> None:
    expiring(account, in_days=in_days, after_days=after_days)
    assert mailed() == []


def test_nor_one_that_is_deleted(account: Account) -> None:
    keys.delete(expiring(account, in_days=3, after_days=90))
    assert mailed() == []


def test_who_wants_no_mail_gets_none(account: Account) -> None:
    joined(account, OTHER, "owner")
    User.objects.filter(email=OWNER).update(wants_notices=False)
    User.objects.create_user("gone@acme.example", is_active=False)
    joined(account, "gone@acme.example", "owner")
    take(account, "-6")
    assert [to for to, _ in mailed()] == [OTHER]


def test_what_a_mail_server_refuses_is_tried_again(
    account: Account, settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(
        "gateway.pages.mail.outage", Outage("a mail could not be sent", logging.getLogger("gateway.pages.mail").error)
    )
    take(account, "-6")
    works = settings.EMAIL_BACKEND
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", 9  # nobody listens
    assert mailed() == []
    assert caplog.messages == ["a mail could not be sent: ConnectionRefusedError"]
    settings.EMAIL_BACKEND = works
    assert mailed() == [(OWNER, "Acme: the balance is low")]
    assert mailed() == []


@pytest.mark.django_db(transaction=True, databases=["default", "settlement"])
def test_maintain_sends_them_too(account: Account) -> None:
    take(account, "-6")
    maintenance.maintain_once()
    assert [message.subject for message in mail.outbox] == ["Acme: the balance is low"]


@pytest.mark.django_db(transaction=True)
def test_many_workers_send_it_once(account: Account) -> None:
    take(account, "-6")
    mail.outbox.clear()

    def run(_number: int) -> int:
        try:
            return notices.look()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(run, range(8))) == 1
    assert len(mail.outbox) == 1
