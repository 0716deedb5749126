"""Owners who set no amounts get one mail when the balance is below what the account spends in seven days."""

from datetime import timedelta
from decimal import Decimal

import pytest
from django.core import mail
from django.test import Client
from pytest_django import Settings

from accounts.models import Account, AuditEvent, User
from billing import notices, pace_alerts
from billing.ledger import credits as ledger
from billing.ledger.balance_lines import set_amounts
from billing.usage import rollups
from tests.billing.records import open_for, serve
from tests.dashboard.people import OWNER, client_of, joined
from tests.page_text import plain

pytestmark = pytest.mark.django_db


@pytest.fixture
def account() -> Account:
    """Opens an account with 10 EUR."""
    account = open_for(name="Northwind", credit="10")
    joined(account, OWNER, "owner")
    return account


def spend(account: Account, amount: str) -> None:
    """Settles a request that costs about this much, and rolls it up."""
    serve(account, price=Decimal(amount) * 1000)
    rollups.advance(1000, trail=timedelta(0), rest=timedelta(0))


def mailed() -> list[str]:
    mail.outbox.clear()
    notices.send_due()
    return [str(message.subject) for message in mail.outbox]


def test_one_mail_is_sent_below_a_week_s_spending_until_credit_was_added(account: Account, settings: Settings) -> None:
    settings.OPERATOR_EMAIL = "billing@acme.example"
    spend(account, "4.99")
    assert mailed() == []
    spend(account, "0.02")
    assert mailed() == ["Low balance: Northwind (4.98 EUR left)"]
    body = str(mail.outbox[0].body)
    assert "and lasts about 6 days at the pace of the last week. Requests will be refused when the balance" in body
    assert "To top up, write to billing@acme.example" in body
    assert "You receive this email because you are an owner of Northwind." in body
    spend(account, "1")
    assert mailed() == []
    ledger.grant(account.pk, Decimal(50), "invoice 1")
    assert mailed() == []
    spend(account, "30")
    assert mailed() == ["Low balance: Northwind (23.98 EUR left)"]


def test_the_line_moves_down_without_a_second_mail(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    spend(account, "5.5")
    assert len(mailed()) == 1
    monkeypatch.setattr(pace_alerts, "PACE_DAYS", 0)  # no day counts: as if the spending were long ago
    assert mailed() == []
    monkeypatch.undo()
    assert mailed() == []


def test_accounts_without_spending_or_with_amounts_or_with_the_alert_off_get_none(account: Account) -> None:
    assert mailed() == []
    pace_alerts.switch(account.pk, is_on=False)
    spend(account, "8")
    assert mailed() == []
    pace_alerts.switch(account.pk, is_on=True)
    set_amounts(account.pk, [Decimal(1)])
    assert mailed() == []
    set_amounts(account.pk, [])
    assert mailed() == ["Low balance: Northwind (1.99 EUR left)"]


def test_an_empty_balance_is_told_instead(account: Account) -> None:
    spend(account, "11")
    assert mailed() == ["Northwind has no credit left"]


def test_an_owner_sees_the_alert_beside_the_balance_and_switches_it_off(account: Account) -> None:
    owner = client_of(OWNER)
    assert "less than seven days at your pace. Change" in plain(owner.get("/credit").text)
    spend(account, "2.5")
    assert "You will be alerted at about 2.50 EUR (seven days at your pace). Change" in plain(owner.get("/").text)
    form = {"account": str(account.pk), "wants_notices": "on", "low_balance": ""}
    owner.post("/notifications", form)
    assert pace_alerts.is_off(account.pk)
    assert AuditEvent.objects.filter(account_id=account.pk, action="alerts.changed").count() == 1
    assert "You will be alerted only when credit runs out. Change" in plain(owner.get("/credit").text)
    owner.post("/notifications", form | {"by_pace": "on", "low_balance": "5\n1"})
    assert "You will be alerted at 5.00 and 1.00 EUR. Change" in plain(owner.get("/credit").text)


def test_members_see_no_link_to_change_it(account: Account, client: Client) -> None:
    joined(account, "member@acme.example")
    client.force_login(User.objects.get(email="member@acme.example"))
    assert "You will be alerted" not in plain(client.get("/credit").text)
