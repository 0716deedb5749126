"""Webhooks are told of lines of balances and budgets, expiring keys, statements and providers (docs/webhooks.md)."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.core import mail
from django.utils import timezone
from pytest_django import Settings

from accounts import keys
from accounts.models import Account, ApiKey, Policy, Webhook, WebhookDelivery
from accounts.webhooks import delivery, endpoints
from billing import notices, statements_ready
from billing.ledger import balance_lines
from billing.ledger import credits as ledger
from billing.models import BudgetAlert
from billing.policies import Holder, set_policy
from catalogue import provider_outages
from catalogue.models import Provider, ProviderOutage
from catalogue.routing import health
from tests.billing.records import open_for
from tests.dashboard.people import joined
from tests.factories import forget_health

pytestmark = pytest.mark.django_db
URL = "http://127.0.0.1:9/"  # nothing is sent
OWNER = "owner@acme.example"


@pytest.fixture
def account(settings: Settings) -> Account:
    settings.GATEWAY_WEBHOOK_HOSTS = ["127.0.0.1"]
    return open_for(name="Acme", credit="10")


@pytest.fixture
def healthy() -> Iterator[None]:
    forget_health()
    yield
    forget_health()


def told(webhook: Webhook) -> list[tuple[str, Any]]:
    """Returns the events that were written for a webhook: their types, and data without the account."""
    found = []
    for each in webhook.deliveries.order_by("pk"):
        data = json.loads(each.body)["data"]
        assert data.pop("account_id") == str(webhook.account_id)
        found.append((each.type, data))
    return found


def test_a_line_of_the_balance_is_told_once_with_its_figures(account: Account) -> None:
    webhook, _ = endpoints.create(account.pk, URL, ["balance.*"])
    balance_lines.set_amounts(account.pk, [Decimal(5), Decimal(2)])
    ledger.correct(account.pk, Decimal(-6), "taken")
    for _ in range(2):
        notices.send_due()
    [(kind, data)] = told(webhook)
    assert kind == "balance.threshold"
    assert datetime.fromisoformat(data.pop("crossed_at")) <= timezone.now()
    assert data == {"threshold": "5.00", "balance": "4.00", "currency": "EUR"}
    ledger.correct(account.pk, Decimal(-9), "taken too")
    notices.send_due()
    assert told(webhook)[1][1]["balance"] == "-5.00"


def test_crossed_lines_are_told_of_long_before_the_next_look_at_everything(account: Account) -> None:
    webhook, _ = endpoints.create(account.pk, URL, ["balance.*"])
    joined(account, OWNER, "owner")
    balance_lines.set_amounts(account.pk, [Decimal(5)])
    assert notices.send_crossed() == 0
    ledger.correct(account.pk, Decimal(-6), "taken")
    mail.outbox.clear()
    assert [notices.send_crossed(), notices.send_crossed(), notices.send_due()] == [1, 0, 0]
    assert [message.to for message in mail.outbox] == [[OWNER]]
    assert len(told(webhook)) == 1
    assert notices.CROSSED_EVERY_SECONDS < notices.EVERY_SECONDS


def test_an_alert_of_a_budget_is_told_once_with_ids_and_figures(account: Account) -> None:
    webhook, _ = endpoints.create(account.pk, URL, ["budget.*"])
    key, _ = keys.issue(account, name="secret project")
    set_policy(Holder.of_key(key), {"budget": [{"amount": "50.00", "period": "month"}], "alerts": [80]})
    policy, begins = Policy.objects.get(key=key), timezone.now().astimezone(UTC).date().replace(day=1)
    BudgetAlert.objects.create(
        policy=policy,
        period="month",
        begins=begins,
        percent=80,
        amount=Decimal(50),
        spent=Decimal("40.5"),
        crossed_at=timezone.now(),
    )
    for _ in range(2):
        notices.send_due()
    [(kind, data)] = told(webhook)
    del data["crossed_at"]
    assert kind == "budget.threshold"
    assert data == {
        "policy_id": str(policy.pk),
        "level": "key",
        "key_id": str(key.pk),
        "tag": None,
        "period": "month",
        "begins": begins.isoformat(),
        "threshold": 80,
        "budget": "50.00",
        "spent": "40.50",
        "currency": "EUR",
    }
    assert "project" not in WebhookDelivery.objects.get().body


def test_a_key_that_expires_soon_is_told_once(account: Account) -> None:
    webhook, _ = endpoints.create(account.pk, URL, ["key.expiring"])
    key, _ = keys.issue(account, name="laptop", lifetime="90d")
    end = timezone.now() + timedelta(days=6)
    ApiKey.objects.filter(pk=key.pk).update(expires_at=end, created_at=end - timedelta(days=90))
    for _ in range(2):
        notices.send_due()
    [(kind, data)] = told(webhook)
    assert (kind, data["key_id"]) == ("key.expiring", str(key.pk))
    assert datetime.fromisoformat(data["expires_at"]) == end


def test_a_statement_is_told_once_on_the_first_days_of_a_month(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    webhook, _ = endpoints.create(account.pk, URL, ["statement.ready"])
    idle = open_for(name="Idle", credit=None)
    unused, _ = endpoints.create(idle.pk, URL, ["*"])
    booked = timezone.now().astimezone(UTC)
    begin = (booked.replace(day=1, hour=0, minute=0, second=0, microsecond=0) + timedelta(days=32)).replace(day=1)
    Webhook.objects.update(created_at=booked)
    monkeypatch.setattr(timezone, "now", lambda: begin - timedelta(seconds=1))
    statements_ready.tell()
    assert ("statement.ready", {"month": f"{booked:%Y-%m}"}) not in told(webhook)
    monkeypatch.setattr(timezone, "now", lambda: begin + timedelta(hours=1))
    for _ in range(2):
        statements_ready.tell()
    assert told(webhook).count(("statement.ready", {"month": f"{booked:%Y-%m}"})) == 1
    assert told(unused) == []


def test_a_provider_that_goes_down_and_comes_back_is_told_once_to_everybody(account: Account, healthy: None) -> None:
    webhooks = [
        endpoints.create(each.pk, URL, ["provider.*"])[0] for each in (account, open_for(name="Other", credit=None))
    ]
    slug = Provider.objects.create(slug="webhooked", name="Webhooked").slug
    for _ in range(health.FEWEST_ATTEMPTS):
        health.note(slug, failed=True, words="broken")
    health.flush()
    for _ in range(2):
        provider_outages.look()
    assert [told(webhook) for webhook in webhooks] == [[("provider.down", {"provider": slug})]] * 2
    for _ in range(100):
        health.note(slug, failed=False)
    health.flush()
    for _ in range(2):
        provider_outages.look()
    assert [told(webhook)[1:] for webhook in webhooks] == [[("provider.up", {"provider": slug})]] * 2
    assert not ProviderOutage.objects.filter(provider=slug).exists()


def test_owners_get_a_mail_if_the_gateway_disables_a_webhook_and_none_if_they_do(account: Account) -> None:
    joined(account, OWNER, "owner")
    webhook, _ = endpoints.create(account.pk, URL, ["*"])
    endpoints.change(webhook, disabled=True)
    assert notices.send_due() == 0
    endpoints.change(webhook, disabled=False)
    delivery.disable(webhook, delivery.FAILED_REASON, timezone.now())
    assert notices.send_due() == 1
    assert mail.outbox[-1].subject == "Acme: a webhook has been disabled"
    assert delivery.FAILED_REASON in mail.outbox[-1].body
    assert f"/webhooks/{webhook.pk}?account=" in mail.outbox[-1].body
    assert notices.send_due() == 0
