"""Owners get mail when credit runs out or keys expire: once each, if they want it, from any worker."""

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from decimal import Decimal

import pytest
from django.core import mail
from django.core.mail import EmailMessage
from django.core.mail.backends.locmem import EmailBackend
from django.db import connections
from django.utils import timezone
from pytest_django import Settings

from accounts import keys, playground_keys
from accounts.models import Account, ApiKey, Membership, User
from billing import maintenance, notices
from billing.ledger import balance_lines
from billing.ledger import credits as ledger
from billing.models import Notice, Wallet
from gateway.db.outages import Outage
from tests.billing.records import open_for
from tests.dashboard.people import joined

pytestmark = pytest.mark.django_db
OWNER, OTHER = "owner@acme.example", "other@acme.example"


@pytest.fixture
def account() -> Account:
    account = open_for(name="Acme", credit="10")
    balance_lines.set_amounts(account.pk, [Decimal(5)])
    joined(account, OWNER, "owner")
    joined(account, "member@acme.example")
    return account


def take(account: Account, amount: str) -> None:
    ledger.correct(account.pk, Decimal(amount), f"taken {amount}")


def mailed() -> list[tuple[str, str]]:
    """Sends the notices that are due, and returns their addresses and subjects."""
    mail.outbox.clear()
    sent = notices.send_due()
    assert sent == len(mail.outbox)
    return sorted((message.to[0], str(message.subject)) for message in mail.outbox)


def expiring(account: Account, *, in_days: float, after_days: float, name: str = "laptop") -> ApiKey:
    """Issues a key that was made to live for `after_days`, of which `in_days` are left."""
    key, _ = keys.issue(account, name=name, lifetime="90d")
    end = timezone.now() + timedelta(days=in_days)
    ApiKey.objects.filter(pk=key.pk).update(expires_at=end, created_at=end - timedelta(days=after_days))
    return ApiKey.objects.get(pk=key.pk)


def test_a_balance_below_the_accounts_threshold_is_announced_once_until_it_has_recovered(
    account: Account, settings: Settings
) -> None:
    settings.PUBLIC_URL = "https://gateway.example"
    take(account, "-4.999")
    assert mailed() == []
    take(account, "-0.002")
    assert mailed() == [(OWNER, "Low balance: Acme (4.99 EUR left)")]
    body = str(mail.outbox[0].body)
    assert "The balance of Acme has fallen to 5.00 EUR or below: it is 4.99 EUR." in body
    assert f"https://gateway.example/credit?account={account.pk}" in body
    assert f"https://gateway.example/notifications?account={account.pk}" in body
    take(account, "-1")
    assert mailed() == []
    ledger.grant(account.pk, Decimal(10), "recovered")
    assert mailed() == []
    take(account, "-12")
    assert mailed() == [(OWNER, "Low balance: Acme (1.99 EUR left)")]


def test_an_exhausted_account_gets_a_mail_and_one_that_never_had_credit_does_not(account: Account) -> None:
    joined(open_for(name="New", credit=None), OWNER, "owner")
    assert mailed() == []
    take(account, "-11.5")
    assert mailed() == [(OWNER, "Acme has no credit left")]
    assert "The balance of Acme is -1.50 EUR." in mail.outbox[0].body
    assert mailed() == []


def test_without_a_threshold_only_a_balance_of_zero_is_announced(account: Account) -> None:
    balance_lines.set_amounts(account.pk, [])
    take(account, "-9.99")
    assert mailed() == []


def test_every_owner_gets_a_mail_about_a_key_that_expires_within_seven_days(account: Account) -> None:
    joined(account, OTHER, "owner")
    key = expiring(account, in_days=6.9, after_days=90)
    subject = "Acme: the API key laptop expires soon"
    assert mailed() == [(OTHER, subject), (OWNER, subject)]
    assert f"The API key laptop ({key.masked}) of Acme expires on {key.expires_at:%Y-%m-%d %H:%M} UTC." in (
        mail.outbox[0].body
    )
    assert mailed() == []


@pytest.mark.parametrize(("in_days", "after_days"), [(7.1, 90), (6.9, 7), (-1, 90)])
def test_keys_that_expire_later_or_were_short_lived_or_have_expired_cause_no_mail(
    account: Account, in_days: float, after_days: float
) -> None:
    expiring(account, in_days=in_days, after_days=after_days)
    assert mailed() == []


def test_a_deleted_key_causes_no_mail(account: Account) -> None:
    keys.delete(expiring(account, in_days=3, after_days=90))
    assert mailed() == []


def test_a_key_of_the_playground_causes_no_mail(account: Account) -> None:
    key, _ = playground_keys.issue(User.objects.get(email="member@acme.example"), account)
    ApiKey.objects.filter(pk=key.pk).update(created_at=timezone.now() - timedelta(days=30))
    assert mailed() == []


def test_only_keys_that_are_about_to_expire_cause_mail(account: Account) -> None:
    joined(account, OTHER, "owner")
    for lifetime in ("never", "1y", "90d"):
        keys.issue(account, name=lifetime, lifetime=lifetime)
    keys.issue(account, name="week", lifetime="7d")
    expiring(account, in_days=-1, after_days=90, name="expired")
    keys.delete(expiring(account, in_days=3, after_days=90, name="deleted"))
    playground_keys.issue(User.objects.get(email="member@acme.example"), account)
    keys.issue(open_for(name="Zenith", credit="10"), name="never", lifetime="never")
    expiring(account, in_days=3, after_days=30)
    subject = "Acme: the API key laptop expires soon"
    assert mailed() == [(OTHER, subject), (OWNER, subject)]
    expiring(account, in_days=2, after_days=30, name="server")
    subject = "Acme: the API key server expires soon"
    assert mailed() == [(OTHER, subject), (OWNER, subject)]
    assert mailed() == []


def test_a_key_that_an_earlier_release_announced_too_early_is_announced_again_in_time(account: Account) -> None:
    key, _ = keys.issue(account, name="laptop", lifetime="90d")
    (owner,) = User.objects.filter(email=OWNER)
    Notice.objects.create(
        kind="expiry", account=account, person=owner, subject=key.pk, raised_at=timezone.now(), sent_at=timezone.now()
    )
    assert mailed() == []
    end = timezone.now() + timedelta(days=6)
    ApiKey.objects.filter(pk=key.pk).update(expires_at=end, created_at=end - timedelta(days=90))
    assert mailed() == [(OWNER, "Acme: the API key laptop expires soon")]


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
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", 9  # a port without a server
    assert mailed() == []
    assert caplog.messages == ["a mail could not be sent: ConnectionRefusedError"]
    settings.EMAIL_BACKEND = works
    assert mailed() == [(OWNER, "Low balance: Acme (4.00 EUR left)")]
    assert mailed() == []


def while_the_mail_server_is_away(settings: Settings) -> None:
    works = settings.EMAIL_BACKEND
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", 9  # a port without a server
    assert mailed() == []
    settings.EMAIL_BACKEND = works
    assert Notice.objects.filter(sent_at=None).exists()


def test_a_late_notice_is_not_sent_if_its_key_was_deleted_meanwhile(account: Account, settings: Settings) -> None:
    key = expiring(account, in_days=3, after_days=90)
    while_the_mail_server_is_away(settings)
    keys.delete(key)
    assert mailed() == []


def test_a_late_notice_is_not_sent_to_a_former_owner(account: Account, settings: Settings) -> None:
    joined(account, OTHER, "owner")
    take(account, "-6")
    while_the_mail_server_is_away(settings)
    Membership.objects.filter(user__email=OWNER).update(role="member")
    assert mailed() == [(OTHER, "Low balance: Acme (4.00 EUR left)")]


class DeletingBackend(EmailBackend):
    """Deletes every key and pays for all accounts while the first mail is sent."""

    def send_messages(self, messages: Sequence[EmailMessage]) -> int:
        for key in ApiKey.objects.filter(deleted_at=None):
            keys.delete(key)
        for account in Account.objects.all():
            ledger.grant(account.pk, Decimal(100), "paid")
        return super().send_messages(messages)


def test_a_look_that_takes_long_sends_nothing_that_is_over_by_then(account: Account, settings: Settings) -> None:
    settings.EMAIL_BACKEND = f"{__name__}.{DeletingBackend.__name__}"
    take(account, "-6")
    for name in ("laptop", "server"):
        expiring(account, in_days=3, after_days=90, name=name)
    assert len(mailed()) == 1
    assert mailed() == []


def test_a_notice_that_cannot_be_written_stops_no_other(account: Account, caplog: pytest.LogCaptureFixture) -> None:
    broken = open_for(name="Broken", credit=None)
    joined(broken, OWNER, "owner")
    expiring(broken, in_days=3, after_days=90)
    Wallet.objects.filter(account=broken).delete()
    take(account, "-6")
    expiring(account, in_days=3, after_days=90)
    assert mailed() == [(OWNER, "Acme: the API key laptop expires soon"), (OWNER, "Low balance: Acme (4.00 EUR left)")]
    assert mailed() == []


@pytest.mark.django_db(transaction=True, databases=["default", "settlement"])
def test_maintain_sends_them_too(account: Account) -> None:
    take(account, "-6")
    maintenance.maintain_once()
    assert [message.subject for message in mail.outbox] == ["Low balance: Acme (4.00 EUR left)"]


@pytest.mark.django_db(transaction=True)
def test_many_workers_send_it_once(account: Account) -> None:
    take(account, "-6")
    mail.outbox.clear()

    def run(_number: int) -> int:
        try:
            return notices.send_due()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(run, range(8))) == 1
    assert len(mail.outbox) == 1
