"""Owners add webhooks on pages, see deliveries and answers, and send a test or an event again."""

import re
from collections.abc import Iterator

import pytest
from django.test import Client
from pytest_django import Settings

from accounts.models import Account, Webhook, WebhookDelivery
from accounts.webhooks import delivery, endpoints
from tests.accounts.receiver import Receiver
from tests.billing.records import MEMBER, open_for
from tests.dashboard.people import OWNER, client_of, joined, words

pytestmark = pytest.mark.django_db


@pytest.fixture
def account(settings: Settings) -> Account:
    settings.GATEWAY_WEBHOOK_HOSTS = ["127.0.0.1"]
    return open_for(MEMBER)


@pytest.fixture
def owner(account: Account) -> Client:
    joined(account, OWNER, "owner")
    return client_of(OWNER)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()
    yield found
    found.close()


def test_an_owner_adds_a_webhook_tests_it_and_sends_the_event_again(
    account: Account, owner: Client, receiver: Receiver
) -> None:
    page = f"/webhooks?account={account.pk}"
    assert "No webhooks yet." in words(owner, page)
    sent = {"account": account.pk, "url": receiver.url, "events": "budget.*, key.created"}
    [secret] = re.findall(r"whsec_[A-Za-z0-9+/=]+", owner.post("/webhooks", sent).text)
    webhook = Webhook.objects.get()
    assert webhook.events == ["budget.*", "key.created"]
    one = f"/webhooks/{webhook.pk}"
    assert secret not in owner.get(page).text + owner.get(one).text
    assert "Nothing has been sent yet." in words(owner, one)
    receiver.answer(503)
    assert owner.post(one, {"action": "test"}).status_code == 302
    assert "none yet" in words(owner, one)
    delivery.send_due()
    assert "503" in words(owner, one)
    assert "waiting" in words(owner, one)
    assert owner.post(one, {"action": "again", "delivery": WebhookDelivery.objects.get().pk}).status_code == 302
    delivery.send_due()
    assert "delivered" in words(owner, one)
    assert [received.verified(secret)["type"] for received in receiver.received] == ["test"] * 2


def test_a_fault_is_said_next_to_its_field_and_adds_nothing(account: Account, owner: Client) -> None:
    sent = {"account": account.pk, "url": "https://10.0.0.1/", "events": "policy.changed"}
    response = owner.post("/webhooks", sent)
    assert response.status_code == 422
    assert "Has a host in a private network, to which the gateway does not send." in response.text
    assert "Must be a type of events, or a pattern of some" in response.text
    assert not Webhook.objects.exists()


def test_a_webhook_is_changed_disabled_enabled_and_deleted(account: Account, owner: Client, receiver: Receiver) -> None:
    webhook, _ = endpoints.create(account.pk, receiver.url, ["*"])
    one = f"/webhooks/{webhook.pk}"
    owner.post(one, {"action": "save", "url": f"{receiver.url}&b", "events": "key.*"})
    webhook.refresh_from_db()
    assert (webhook.url, webhook.events) == (f"{receiver.url}&b", ["key.*"])
    owner.post(one, {"action": "disable"})
    assert "Enable webhook" in words(owner, one)
    assert "The webhook is disabled." in owner.post(one, {"action": "test"}, follow=True).text
    owner.post(one, {"action": "enable"})
    assert "Send a test" in words(owner, one)
    assert owner.post(one, {"action": "save", "url": "x", "events": "key.*"}).status_code == 422
    for nonsense in ({}, {"action": "again"}, {"action": "again", "delivery": "x"}):
        assert owner.post(one, nonsense).status_code == 302
    assert owner.get(f"{one}?before=x").status_code == 404
    assert "Delete this webhook?" in words(owner, f"{one}/delete")
    assert Webhook.objects.exists()
    owner.post(f"{one}/delete")
    assert not Webhook.objects.exists()


def test_why_the_gateway_disabled_a_webhook_is_on_its_page(account: Account, owner: Client, receiver: Receiver) -> None:
    webhook, _ = endpoints.create(account.pk, receiver.url, ["*"])
    receiver.answer(410)
    endpoints.send_test(webhook)
    delivery.send_due()
    assert f"The gateway has disabled it. {delivery.GONE_REASON}" in words(owner, f"/webhooks/{webhook.pk}")


def test_only_owners_see_webhooks(account: Account, owner: Client, receiver: Receiver) -> None:
    webhook, _ = endpoints.create(account.pk, receiver.url, ["*"])
    member = client_of(MEMBER)
    for path in (f"/webhooks?account={account.pk}", f"/webhooks/{webhook.pk}", f"/webhooks/{webhook.pk}/delete"):
        assert owner.get(path).status_code == 200
        assert member.get(path).status_code == 403
    assert "Webhooks" in words(owner, f"/?account={account.pk}")
    assert "Webhooks" not in words(member, f"/?account={account.pk}")
