"""Management keys create, change and delete webhooks, and see what was sent (docs/webhooks.md#endpoints)."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from pytest_django import Settings

from accounts.models import Account, KeyKind, Webhook
from accounts.webhooks import delivery, endpoints
from gateway.encryption import decrypt
from tests.accounts.receiver import Receiver
from tests.factories import new_account, new_key

pytestmark = pytest.mark.django_db
PATH = "/v1/webhooks"
Reply = tuple[int, Any]


class Manager:
    """Calls the endpoints with a key of an account."""

    def __init__(self, account: Account, kind: KeyKind = KeyKind.MANAGEMENT) -> None:
        self.account = account
        _, self._token = new_key(account, kind.value, kind=kind)

    def __call__(self, method: str, path: str = "", body: Any = None, **query: Any) -> Reply:
        reply = Client().generic(
            method,
            PATH + path,
            b"" if body is None else json.dumps(body),
            headers={"Authorization": f"Bearer {self._token}"},
            query_params=query or None,
        )
        return reply.status_code, json.loads(reply.content) if reply.content else None

    def refused(self, method: str, path: str = "", body: Any = None, **query: Any) -> tuple[int, str | None, str]:
        status, answer = self(method, path, body, **query)
        assert list(answer) == ["error"]
        return status, answer["error"]["param"], answer["error"]["message"]

    def create(self, receiver: Receiver, **more: Any) -> Any:
        status, made = self("POST", body={"url": receiver.url, **more})
        assert status == 201
        return made


@pytest.fixture(autouse=True)
def _loopback_is_allowed(settings: Settings) -> None:
    settings.GATEWAY_WEBHOOK_HOSTS = ["127.0.0.1"]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()
    yield found
    found.close()


@pytest.fixture
def acme() -> Manager:
    return Manager(new_account("Acme", credit=None))


def test_the_secret_is_shown_once(acme: Manager, receiver: Receiver) -> None:
    made = acme.create(receiver, events=["budget.*"])
    assert set(made) == {"id", "url", "events", "disabled", "created_at", "secret"}
    assert made["secret"].startswith("whsec_")
    secret = made.pop("secret")
    assert (made["url"], made["events"], made["disabled"]) == (receiver.url, ["budget.*"], False)
    assert acme("GET") == (200, {"object": "list", "data": [made]})
    assert acme("GET", f"/{made['id']}") == (200, made)
    assert acme("GET", f"/{made['id']}/") == (200, made)
    assert acme("POST", f"/{made['id']}/test")[0] == 202
    delivery.send_due()
    assert receiver.received[0].verified(secret)["type"] == "test"


def test_without_events_a_webhook_takes_all(acme: Manager, receiver: Receiver) -> None:
    assert acme.create(receiver)["events"] == ["*"]


def test_a_webhook_can_be_changed_disabled_and_deleted(acme: Manager, receiver: Receiver) -> None:
    made = acme.create(receiver)
    path = f"/{made['id']}"
    assert acme("PATCH", path, {"events": ["key.*"]})[1]["events"] == ["key.*"]
    assert acme("PATCH", path, {"disabled": True})[1]["disabled"] is True
    status, _, message = acme.refused("POST", f"{path}/test")
    assert (status, message) == (400, "The webhook is disabled. Enable it first.")
    assert acme("PATCH", path, {"disabled": False})[1]["disabled"] is False
    assert acme("PATCH", path, {"url": receiver.url + "&b"})[1]["url"] == receiver.url + "&b"
    assert acme("DELETE", path) == (204, None)
    assert acme("GET", path)[0] == acme("DELETE", path)[0] == 404
    assert acme("GET")[1]["data"] == []


def test_deliveries_and_answers_are_listed_and_one_can_be_sent_again(acme: Manager, receiver: Receiver) -> None:
    receiver.answer(503)
    path = f"/{acme.create(receiver)['id']}"
    asked = acme("POST", f"{path}/test", {})[1]
    assert set(asked) == {"id", "event_id", "type", "created_at", "attempts", "next_attempt_at", "delivered_at"}
    delivery.send_due()
    [listed] = acme("GET", f"{path}/deliveries")[1]["data"]
    assert listed["id"] == asked["id"]
    [attempt] = listed["attempts"]
    assert set(attempt) == {"at", "status", "error"}
    assert (attempt["status"], attempt["error"], listed["delivered_at"]) == (503, None, None)
    status, again = acme("POST", f"{path}/deliveries/{asked['id']}/retry")
    assert (status, again["id"]) == (202, asked["id"])
    delivery.send_due()
    [listed] = acme("GET", f"{path}/deliveries")[1]["data"]
    assert [attempt["status"] for attempt in listed["attempts"]] == [503, 200]
    assert listed["delivered_at"] is not None
    assert listed["next_attempt_at"] is None


def test_lists_go_on_after_a_cursor(acme: Manager, receiver: Receiver) -> None:
    made = [acme.create(receiver)["id"] for _ in range(3)]
    _, first = acme("GET", limit=2)
    assert [each["id"] for each in first["data"]] == made[:0:-1]
    _, second = acme("GET", limit=2, after=first["next_cursor"])
    assert [each["id"] for each in second["data"]] == made[:1]
    assert "next_cursor" not in second
    other = Manager(new_account("Other", credit=None))
    assert other.refused("GET", after=first["next_cursor"])[:2] == (400, "after")
    assert acme.refused("GET", limit=0)[:2] == (400, "limit")
    assert acme.refused("GET", f"/{made[0]}/deliveries", limit="x")[:2] == (400, "limit")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "url"),
        ({"url": None}, "url"),
        ({"url": 1}, "url"),
        ({"url": "http://10.0.0.1/"}, "url"),
        ({"url": "https://10.0.0.1/"}, "url"),
        ({"url": "https://127.0.0.2/"}, "url"),
        ({"url": "https://nothing.invalid/"}, "url"),
        ({"url": "\0"}, "url"),
        ({"url": "http://127.0.0.1/", "events": "key.*"}, "events"),
        ({"url": "http://127.0.0.1/", "events": []}, "events"),
        ({"url": "http://127.0.0.1/", "events": ["*"] * 51}, "events"),
        ({"url": "http://127.0.0.1/", "events": ["key.*", 1]}, "events[1]"),
        ({"url": "http://127.0.0.1/", "events": ["policy.changed"]}, "events[0]"),
        ({"url": "http://127.0.0.1/", "secret": "whsec_mine"}, "secret"),
    ],
)
def test_a_bad_body_names_the_field_and_creates_nothing(acme: Manager, body: Any, param: str) -> None:
    assert acme.refused("POST", body=body)[:2] == (400, param)
    assert not Webhook.objects.exists()


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, None),
        ({"disabled": "true"}, "disabled"),
        ({"events": [], "disabled": True}, "events"),
        ({"url": "https://127.0.0.2/", "disabled": True}, "url"),
        ({"name": "x"}, "name"),
    ],
)
def test_a_bad_change_changes_nothing(acme: Manager, receiver: Receiver, body: Any, param: str | None) -> None:
    made = acme.create(receiver)
    del made["secret"]
    assert acme.refused("PATCH", f"/{made['id']}", body)[:2] == (400, param)
    assert acme("GET", f"/{made['id']}")[1] == made


def test_an_account_finds_nothing_of_another(acme: Manager, receiver: Receiver) -> None:
    path = f"/{acme.create(receiver)['id']}"
    sent = acme("POST", f"{path}/test")[1]["id"]
    other = Manager(new_account("Other", credit=None))
    own = f"/{other.create(receiver)['id']}"
    assert len(other("GET")[1]["data"]) == 1
    asked = [
        other("GET", path),
        other("PATCH", path, {"disabled": True}),
        other("DELETE", path),
        other("POST", f"{path}/test"),
        other("GET", f"{path}/deliveries"),
        other("POST", f"{path}/deliveries/{sent}/retry"),
        other("POST", f"{own}/deliveries/{sent}/retry"),
        other("GET", "/nonsense"),
    ]
    assert [status for status, _ in asked] == [404] * len(asked)
    assert acme("GET", path)[1]["disabled"] is False


def test_only_management_keys_are_taken(acme: Manager) -> None:
    inference = Manager(acme.account, KeyKind.INFERENCE)
    assert inference("GET")[1]["error"]["code"] == "key_kind_not_allowed"
    assert inference("POST", body={"url": "https://example.com/"})[0] == 403


def test_a_field_of_the_test_is_refused(acme: Manager, receiver: Receiver) -> None:
    path = f"/{acme.create(receiver)['id']}"
    assert acme.refused("POST", f"{path}/test", {"type": "key.created"})[:2] == (400, "type")


def test_an_account_has_at_most_20_webhooks(acme: Manager, receiver: Receiver) -> None:
    Webhook.objects.bulk_create(
        Webhook(account=acme.account, url=receiver.url, events=["*"], secret="") for _ in range(20)
    )
    assert acme.refused("POST", body={"url": receiver.url})[0] == 400


def test_a_secret_of_an_earlier_secret_key_is_renewed_so_that_the_key_can_go(
    acme: Manager, receiver: Receiver, settings: Settings
) -> None:
    made = acme.create(receiver)
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "another key " * 5, [settings.SECRET_KEY]
    assert endpoints.renew_secrets() == 1
    assert endpoints.renew_secrets() == 0
    settings.SECRET_KEY_FALLBACKS = []
    assert decrypt(Webhook.objects.get(pk=made["id"]).secret) == made["secret"]


def test_a_secret_that_no_key_decrypts_is_left_alone(acme: Manager, receiver: Receiver, settings: Settings) -> None:
    made = acme.create(receiver)
    stored = Webhook.objects.get(pk=made["id"]).secret
    settings.SECRET_KEY = "another key " * 5
    assert endpoints.renew_secrets() == 0
    assert Webhook.objects.get(pk=made["id"]).secret == stored
