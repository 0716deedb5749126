"""What happens to an account is sent to its webhooks, signed, until it has been delivered (docs/webhooks.md)."""

import json
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import certifi
import gevent.socket
import pytest
from django.db import connections, transaction
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries, Settings

from accounts import closing, keys
from accounts.actions import WEBHOOKS, Action
from accounts.models import Account, AuditEvent, Webhook, WebhookDelivery
from accounts.webhooks import delivery, endpoints, events, posting
from gateway.errors import InvalidRequest, NotFound
from gateway.fastpath import connections as connections_to_upstreams
from tests.accounts.receiver import Receiver
from tests.dashboard.people import joined
from tests.factories import new_account, new_key
from tests.inference.odd_upstream import self_signed
from tests.locks import waiting_sessions
from tests.patience import eventually
from tests.servers.process import free_port

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _loopback_is_allowed(settings: Settings) -> None:
    settings.GATEWAY_WEBHOOK_HOSTS = ["127.0.0.0/8"]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()
    yield found
    found.close()


@pytest.fixture
def acme() -> Account:
    return new_account("Acme", credit=None)


def listen(account: Account, receiver: Receiver, *patterns: str) -> tuple[Webhook, str]:
    return endpoints.create(account.pk, receiver.url, patterns or ["*"])


def make_due(webhook: Webhook) -> None:
    """Stands for the pause until the next attempt."""
    waiting = WebhookDelivery.objects.filter(webhook=webhook, next_attempt_at__isnull=False)
    assert waiting.update(next_attempt_at=timezone.now()) > 0


def only_delivery(webhook: Webhook) -> WebhookDelivery:
    return WebhookDelivery.objects.get(webhook=webhook)


def stored(webhook: Webhook) -> Webhook:
    return Webhook.objects.get(pk=webhook.pk)


def test_a_new_key_is_told_with_a_signature_that_the_package_verifies(acme: Account, receiver: Receiver) -> None:
    webhook, secret = listen(acme, receiver)
    key, token = new_key(acme, "laptop of Ada")
    assert delivery.send_due() == 1
    [received] = receiver.received
    assert received.first_line == "POST /hook?team=a HTTP/1.1"
    assert received.headers["host"] == f"127.0.0.1:{receiver.port}"
    body = received.verified(secret)
    assert set(body) == {"type", "timestamp", "data"}
    assert body["type"] == "key.created"
    assert body["data"]["account_id"] == str(acme.pk)
    assert body["data"]["key_id"] == str(key.pk)
    assert "laptop" not in received.body
    assert token not in received.body
    found = only_delivery(webhook)
    assert received.headers["webhook-id"] == found.event_id
    assert found.event_id.startswith("evt_")
    assert found.delivered_at is not None
    assert found.next_attempt_at is None
    assert [attempt["status"] for attempt in found.attempts] == [200]
    assert delivery.send_due() == 0


def test_the_secret_is_encrypted_in_the_database(acme: Account, receiver: Receiver) -> None:
    webhook, secret = listen(acme, receiver)
    assert secret.startswith("whsec_")
    assert secret.removeprefix("whsec_") not in stored(webhook).secret


def test_a_webhook_gets_only_the_types_that_it_takes(acme: Account, receiver: Receiver) -> None:
    listen(acme, receiver, "budget.*", "key.deleted")
    key, _ = new_key(acme)
    keys.rotate(key, timedelta())
    keys.delete(key)
    delivery.send_due()
    assert [json.loads(received.body)["type"] for received in receiver.received] == ["key.deleted"]


def test_members_are_named_by_their_ids_alone(acme: Account, receiver: Receiver) -> None:
    _, secret = listen(acme, receiver, "member.*")
    membership = joined(acme, "ada@acme.example")
    person = membership.user_id
    membership.delete()
    delivery.send_due()
    told = {body["type"]: body["data"] for body in (received.verified(secret) for received in receiver.received)}
    whose = {"account_id": str(acme.pk), "member_id": str(person)}
    assert told == {"member.added": whose | {"role": "member"}, "member.removed": whose}


def test_an_event_is_not_sent_if_its_action_is_undone(acme: Account, receiver: Receiver) -> None:
    listen(acme, receiver)
    with transaction.atomic():
        new_key(acme)
        transaction.set_rollback(True)
    assert delivery.send_due() == 0


def test_an_account_without_webhooks_pays_one_look(
    acme: Account, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_num_queries(1):
        events.enqueue(acme.pk, Action.KEY_EXPIRING, {"key_id": "1"})


def test_an_account_is_told_nothing_of_another(acme: Account, receiver: Receiver) -> None:
    listen(acme, receiver)
    new_key(new_account("Other", credit=None))
    assert delivery.send_due() == 0


def test_an_event_of_an_identity_is_written_once(acme: Account, receiver: Receiver) -> None:
    webhook, _ = listen(acme, receiver)
    for moment in ("2026-10", "2026-10", "2026-11"):
        events.enqueue(acme.pk, Action.STATEMENT_READY, {"month": moment}, once=moment)
    assert [json.loads(each.body)["data"]["month"] for each in webhook.deliveries.order_by("pk")] == [
        "2026-10",
        "2026-11",
    ]


def test_failures_are_repeated_by_the_schedule_with_the_same_id(acme: Account, receiver: Receiver) -> None:
    webhook, secret = listen(acme, receiver)
    receiver.answer(500, 404)
    endpoints.send_test(webhook)
    pauses = []
    for _ in range(2):
        assert delivery.send_due() == 1
        found = only_delivery(webhook)
        assert found.next_attempt_at is not None
        pauses.append(found.next_attempt_at - datetime.fromisoformat(found.attempts[-1]["at"]))
        assert delivery.send_due() == 0
        make_due(webhook)
    assert delivery.send_due() == 1
    assert pauses == [timedelta(seconds=5), timedelta(minutes=5)]
    assert [attempt["status"] for attempt in only_delivery(webhook).attempts] == [500, 404, 200]
    assert len({received.headers["webhook-id"] for received in receiver.received}) == 1
    assert [received.verified(secret)["type"] for received in receiver.received] == ["test"] * 3
    assert stored(webhook).failing_since is None


def test_the_pauses_grow_from_5_seconds_to_12_hours_and_then_it_is_given_up(acme: Account, receiver: Receiver) -> None:
    assert [pause.total_seconds() for pause in delivery.PAUSES] == [5, 300, 1800, 7200, 18000, 36000, 43200]
    webhook, _ = listen(acme, receiver)
    receiver.answer(*[503] * 8)
    endpoints.send_test(webhook)
    for _ in delivery.PAUSES:
        delivery.send_due()
        make_due(webhook)
    assert delivery.send_due() == 1
    found = only_delivery(webhook)
    assert (found.next_attempt_at, found.delivered_at, len(found.attempts)) == (None, None, 8)
    endpoints.send_again(webhook, found)
    delivery.send_due()
    assert only_delivery(webhook).delivered_at is not None


def test_a_redirect_is_not_followed(acme: Account, receiver: Receiver) -> None:
    webhook, _ = listen(acme, receiver)
    location = receiver.url.encode()
    receiver.answers.append(b"HTTP/1.1 307 Elsewhere\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n" % location)
    endpoints.send_test(webhook)
    delivery.send_due()
    assert len(receiver.received) == 1
    assert [attempt["status"] for attempt in only_delivery(webhook).attempts] == [307]
    assert only_delivery(webhook).delivered_at is None


def test_a_receiver_that_never_answers_is_cut(
    acme: Account, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(posting, "TIMEOUT_SECONDS", 0.2)
    webhook, _ = listen(acme, receiver)
    receiver.answers.append(None)
    endpoints.send_test(webhook)
    delivery.send_due()
    [attempt] = only_delivery(webhook).attempts
    assert (attempt["status"], attempt["error"]) == (None, "there was no answer in time")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"nonsense\r\n\r\n", "the answer is not HTTP"),
        (b"", "the answer is not HTTP"),
        (b"HTTP/1.1 200 OK\r\nA: " + b"b" * 20000, "the answer is not HTTP"),
    ],
    ids=["nonsense", "nothing", "endless"],
)
def test_an_answer_that_is_not_http_is_a_failure(acme: Account, receiver: Receiver, answer: bytes, error: str) -> None:
    webhook, _ = listen(acme, receiver)
    receiver.answers.append(answer)
    endpoints.send_test(webhook)
    delivery.send_due()
    [attempt] = only_delivery(webhook).attempts
    assert (attempt["status"], attempt["error"]) == (None, error)


def test_a_receiver_that_is_not_there_is_a_failure(acme: Account) -> None:
    webhook, _ = endpoints.create(acme.pk, f"http://127.0.0.1:{free_port()}/", ["*"])
    endpoints.send_test(webhook)
    delivery.send_due()
    [attempt] = only_delivery(webhook).attempts
    assert (attempt["status"], attempt["error"]) == (None, "the connection failed")


@pytest.mark.parametrize(
    ("host", "is_trusted", "attempt"),
    [
        ("127.0.0.1", True, (200, None)),
        ("127.0.0.1", False, (None, "the certificate is not valid for the host")),
        ("localhost", True, (None, "the certificate is not valid for the host")),
    ],
    ids=["valid", "of a stranger", "for another host"],
)
def test_the_certificate_must_be_valid_for_the_host(
    acme: Account,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    host: str,
    is_trusted: bool,
    attempt: tuple[int | None, str | None],
) -> None:
    server = Receiver(self_signed(tmp_path))
    if is_trusted:
        monkeypatch.setattr(certifi, "where", lambda: str(tmp_path / "certificate.pem"))
    connections_to_upstreams.tls_context.cache_clear()
    webhook, _ = endpoints.create(acme.pk, server.url.replace("127.0.0.1", host), ["*"])
    endpoints.send_test(webhook)
    delivery.send_due()
    connections_to_upstreams.tls_context.cache_clear()
    server.close()
    [found] = only_delivery(webhook).attempts
    assert (found["status"], found["error"]) == attempt
    assert len(server.received) == (attempt[0] == 200)


def test_status_410_disables_the_webhook(acme: Account, receiver: Receiver) -> None:
    webhook, _ = listen(acme, receiver)
    receiver.answer(410)
    endpoints.send_test(webhook)
    delivery.send_due()
    found = stored(webhook)
    assert found.disabled_at is not None
    assert "410" in found.disabled_reason
    new_key(acme)
    assert delivery.send_due() == 0
    assert only_delivery(webhook).next_attempt_at is None


def test_what_is_being_sent_when_a_webhook_is_disabled_is_given_up(acme: Account, receiver: Receiver) -> None:
    webhook, _ = listen(acme, receiver)
    receiver.answer(410, 410)
    for _ in range(2):
        endpoints.send_test(webhook)
    delivery.send_due()
    assert len(receiver.received) == 2
    assert not webhook.deliveries.exclude(next_attempt_at=None).exists()
    endpoints.change(webhook, disabled=False)
    assert delivery.send_due() == 0


def test_nothing_is_sent_to_a_webhook_that_was_deleted_or_disabled_meanwhile(acme: Account, receiver: Receiver) -> None:
    webhook, _ = listen(acme, receiver)
    found = endpoints.send_test(webhook)
    endpoints.change(webhook, disabled=True)
    with pytest.raises(InvalidRequest):
        endpoints.send_again(webhook, found)
    endpoints.delete(webhook)
    with pytest.raises(NotFound):
        endpoints.send_again(webhook, found)
    with pytest.raises(NotFound):
        endpoints.send_test(webhook)


@pytest.mark.only_postgres
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "remove",
    [endpoints.delete, lambda webhook: closing.close(webhook.account, "Left.", by=None)],
    ids=["by hand", "by closing"],
)
def test_a_webhook_is_not_deleted_between_an_event_and_what_it_tells_of(
    acme: Account, receiver: Receiver, remove: Callable[[Webhook], object]
) -> None:
    webhook, _ = listen(acme, receiver)

    def removed() -> None:
        try:
            remove(webhook)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as other:
        with transaction.atomic():
            events.enqueue(acme.pk, Action.STATEMENT_READY, {"month": "2026-11"})
            removal = other.submit(removed)
            assert eventually(lambda: len(waiting_sessions()) == 1)
        removal.result()
    assert not Webhook.objects.exists()


def test_a_webhook_that_failed_for_five_days_is_disabled(acme: Account, receiver: Receiver) -> None:
    webhook, _ = listen(acme, receiver)
    receiver.answer(500, 500)
    endpoints.send_test(webhook)
    delivery.send_due()
    assert stored(webhook).failing_since is not None
    assert stored(webhook).disabled_at is None
    Webhook.objects.filter(pk=webhook.pk).update(failing_since=timezone.now() - delivery.FAILED_FOR)
    make_due(webhook)
    delivery.send_due()
    assert stored(webhook).disabled_reason == delivery.FAILED_REASON
    enabled = endpoints.change(webhook, disabled=False)
    assert (enabled.disabled_at, enabled.disabled_reason, enabled.failing_since) == (None, "", None)


def test_a_name_that_leads_to_loopback_on_the_second_look_up_is_refused(
    acme: Account, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    settings.GATEWAY_WEBHOOK_HOSTS = []
    answers = ["93.184.215.14", "127.0.0.1"]

    def look_up(_host: str, port: int, **_options: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (answers.pop(0), port))]

    monkeypatch.setattr(gevent.socket, "getaddrinfo", look_up)
    url = endpoints.checked_url(f"https://rebound.example:{receiver.port}/")
    webhook, _ = endpoints.create(acme.pk, url, ["*"])
    endpoints.send_test(webhook)
    delivery.send_due()
    [attempt] = only_delivery(webhook).attempts
    assert attempt["status"] is None
    assert "private network" in attempt["error"]
    assert receiver.received == []
    assert answers == []


def test_the_connection_goes_to_the_address_that_was_checked(
    acme: Account, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    """A second look-up, as `create_connection` would make for a name, has no answer here."""
    settings.GATEWAY_WEBHOOK_HOSTS = ["hooks.example"]
    asked = []

    def look_up(host: str, port: int, *rest: Any, **options: Any) -> list[Any]:
        asked.append(host)
        if host == "hooks.example" and asked.count(host) > 1:
            raise socket.gaierror
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    webhook, _ = endpoints.create(acme.pk, f"http://hooks.example:{receiver.port}/", ["*"])
    monkeypatch.setattr(gevent.socket, "getaddrinfo", look_up)
    endpoints.send_test(webhook)
    delivery.send_due()
    assert [received.headers["host"] for received in receiver.received] == [f"hooks.example:{receiver.port}"]


def test_what_a_process_claimed_before_it_died_is_sent_by_another(acme: Account, receiver: Receiver) -> None:
    webhook, _ = listen(acme, receiver)
    endpoints.send_test(webhook)
    WebhookDelivery.objects.update(claimed_at=timezone.now())
    assert delivery.send_due() == 0
    WebhookDelivery.objects.update(claimed_at=timezone.now() - delivery.CLAIMED_FOR)
    assert delivery.send_due() == 1
    assert only_delivery(webhook).delivered_at is not None


@pytest.mark.django_db(transaction=True)
def test_two_workers_send_a_delivery_once(acme: Account, receiver: Receiver) -> None:
    webhook, _ = listen(acme, receiver)
    for _ in range(2):
        endpoints.send_test(webhook)

    def send(_worker: int) -> int:
        try:
            return delivery.send_due()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as workers:
        sent = sum(workers.map(send, range(2)))
    assert sent == 2
    assert len({received.headers["webhook-id"] for received in receiver.received}) == len(receiver.received) == 2


def test_a_webhook_and_an_account_leave_places_to_others(acme: Account, receiver: Receiver) -> None:
    for _ in range(delivery.MOST_AT_ONCE_OF_AN_ACCOUNT):
        crowded, _ = listen(acme, receiver)
        for _ in range(delivery.MOST_AT_ONCE_OF_A_WEBHOOK + 1):
            endpoints.send_test(crowded)
    other, _ = listen(new_account("Other", credit=None), receiver)
    for _ in range(delivery.MOST_AT_ONCE_OF_A_WEBHOOK + 1):
        endpoints.send_test(other)
    sender = delivery.Sender()
    assert sender.begin() == delivery.MOST_AT_ONCE_OF_AN_ACCOUNT + delivery.MOST_AT_ONCE_OF_A_WEBHOOK
    assert sender.begin() == 0
    sender.wait()
    assert other.deliveries.exclude(delivered_at=None).count() == delivery.MOST_AT_ONCE_OF_A_WEBHOOK


def test_a_crowd_of_events_does_not_hide_those_of_others(
    acme: Account, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "LOOKED_AT", 3)
    crowded, _ = listen(acme, receiver)
    for _ in range(7):
        endpoints.send_test(crowded)
    other, _ = listen(new_account("Other", credit=None), receiver)
    endpoints.send_test(other)
    sender = delivery.Sender()
    assert sender.begin() == delivery.MOST_AT_ONCE_OF_A_WEBHOOK + 1
    sender.wait()
    assert only_delivery(other).delivered_at is not None


def test_nobody_waits_for_a_slow_receiver(acme: Account, receiver: Receiver) -> None:
    slow = Receiver()
    slow.answers.append(None)
    sender = delivery.Sender()
    try:
        endpoints.send_test(listen(acme, slow)[0])
        assert sender.begin() == 1
        other, _ = listen(acme, receiver)
        endpoints.send_test(other)
        assert sender.begin() == 1
        sender.wait(count=1)
        assert only_delivery(other).delivered_at is not None
        assert sender.is_busy
    finally:
        slow.close()
    sender.wait()


def test_a_round_of_maintain_ends_while_events_are_left(
    acme: Account, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "SENDING_SECONDS", 0.0)
    webhook, _ = listen(acme, receiver)
    for _ in range(3):
        endpoints.send_test(webhook)
    assert [delivery.send_due() for _ in range(3)] == [2, 1, 0]


def test_a_secret_that_cannot_be_decrypted_is_a_failure(acme: Account, receiver: Receiver, settings: Settings) -> None:
    webhook, _ = listen(acme, receiver)
    endpoints.send_test(webhook)
    settings.SECRET_KEY = "another"
    delivery.send_due()
    [attempt] = only_delivery(webhook).attempts
    assert "SECRET_KEY" in attempt["error"]
    assert receiver.received == []


def test_deliveries_that_ended_are_kept_for_30_days(acme: Account, receiver: Receiver) -> None:
    webhook, _ = listen(acme, receiver)
    for _ in range(2):
        endpoints.send_test(webhook)
    WebhookDelivery.objects.update(created_at=timezone.now() - delivery.KEPT_FOR - timedelta(seconds=1))
    assert delivery.drop_some() is False
    assert webhook.deliveries.count() == 2
    delivery.send_due()
    assert delivery.drop_before(timezone.now() - delivery.KEPT_FOR) == 2


def test_changes_of_webhooks_are_in_the_audit_log_without_the_path_of_the_url(
    acme: Account, receiver: Receiver
) -> None:
    webhook, _ = listen(acme, receiver)
    endpoints.change(webhook, patterns=["key.*"])
    endpoints.change(webhook, patterns=["key.*"])
    endpoints.change(webhook, disabled=True)
    assert endpoints.delete(webhook)
    assert not endpoints.delete(webhook)
    found = list(AuditEvent.objects.filter(account=acme, object_kind="webhook").order_by("id"))
    assert [event.action for event in found] == [
        "webhook.created",
        "webhook.changed",
        "webhook.changed",
        "webhook.deleted",
    ]
    assert (found[1].old, found[1].new) == ({"events": ["*"]}, {"events": ["key.*"]})
    assert (found[2].old, found[2].new) == ({"disabled": False}, {"disabled": True})
    assert "/hook" not in str([event.new for event in found])


def test_a_closed_account_has_no_webhooks(acme: Account, receiver: Receiver) -> None:
    webhook, _ = listen(acme, receiver)
    endpoints.send_test(webhook)
    closing.close(acme, "asked for it", by=None)
    assert not Webhook.objects.filter(account=acme).exists()


def test_patterns_cover_types() -> None:
    assert events.covers("*", "key.created")
    assert events.covers("*.created", "key.created")
    assert not events.covers("key", "key.created")
    assert not events.covers("key.*", "keyXcreated")
    assert all(events.matches_any_type(action) for action in WEBHOOKS)
    assert not events.matches_any_type("policy.changed")
