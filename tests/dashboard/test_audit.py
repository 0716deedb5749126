"""Owners read and download what was done to their account (docs/management.md#audit-log)."""

import csv
import io
from html import unescape

import pytest
from django.test import Client

from accounts import audit, keys
from accounts.actions import Action
from accounts.audit import Actor, Subject
from accounts.models import Account, ApiKey, AuditEvent
from billing.policies import Holder, set_policy
from gateway.errors import ApiKeyDisabled
from tests.billing.records import key_of
from tests.dashboard.people import client_of, joined
from tests.factories import new_account, new_key
from tests.page_text import plain

pytestmark = [pytest.mark.django_db]
OWNER, MEMBER = "owner@acme.example", "member@acme.example"


@pytest.fixture
def account() -> Account:
    return new_account("Acme")


@pytest.fixture
def owner(account: Account) -> Client:
    joined(account, OWNER, "owner")
    return client_of(OWNER)


def page(client: Client, account: Account, query: str = "") -> str:
    response = client.get(f"/audit?account={account.pk}{query}")
    assert response.status_code == 200
    return plain(response.text).partition(" Events ")[2]


def test_the_log_shows_who_did_what_and_from_where(owner: Client, account: Account) -> None:
    owner.post(
        f"/keys?account={account.pk}", {"account": account.pk, "name": "app", "expiry": "90d"}, REMOTE_ADDR="10.1.2.3"
    )
    (created,) = AuditEvent.objects.filter(action="key.created")
    assert (created.actor_kind, created.address, created.object_name) == ("member", "10.1.2.3", "app")
    assert created.actor_name == "", "an address is not stored"
    shown = page(owner, account)
    assert "key created key app Expires at: " in shown
    assert f" UTC Kind: inference Name: app {OWNER} 10.1.2.3" in shown


def test_policies_are_shown_in_the_words_of_their_pages(owner: Client, account: Account) -> None:
    rules = {"jurisdictions": ["eu-sovereign"], "rpm": 6000, "budget": {"amount": "5.00", "period": "month"}}
    set_policy(Holder.of_account(account), rules)
    assert (
        "policy changed account Budgets: 5.00 EUR per month Jurisdictions: EU-sovereign Requests per minute: 6,000 "
        in page(owner, account)
    ), "the account's id says nothing on its own page"


@pytest.mark.parametrize(
    ("field", "value", "shown"),
    [
        ("expires_at", 1790000000, "Expires at: 1790000000"),
        ("expires_at", {"at": None}, 'Expires at: {"at":null}'),
        ("expires_at", "soon", "Expires at: soon"),
        ("limits", {"rpm": None}, 'Limits: {"rpm":null}'),
        ("events", [{"name": None}, "key.created"], 'Events: {"name":null}, key.created'),
    ],
)
def test_a_value_of_another_shape_is_shown_as_it_is_stored(
    owner: Client, account: Account, field: str, value: object, shown: str
) -> None:
    audit.record(account.pk, Action.POLICY_CHANGED, Subject.of_account(account), old={field: value}, new={field: value})
    assert f"{shown} {shown} " in unescape(page(owner, account))
    assert owner.get(f"/policies?account={account.pk}").status_code == 200


def test_the_log_is_narrowed_by_subject_actor_and_day(owner: Client, account: Account) -> None:
    with audit.acting_as(Actor(AuditEvent.ActorKind.KEY, "x", "robot")):
        keys.delete(key_of(account))
    assert "key deleted" in page(owner, account, "&subject=key")
    assert "key deleted" not in page(owner, account, "&subject=alias")
    assert "key robot" in page(owner, account, "&who=key")
    assert "key deleted" not in page(owner, account, "&who=staff")
    assert "key deleted" in page(owner, account, "&until=9999-12-31&since=2020-01-01")
    assert "No such events." in page(owner, account, "&since=9999-12-31")
    assert owner.get(f"/audit?account={account.pk}&since=yesterday").status_code == 422
    assert owner.get(f"/audit?account={account.pk}&before=x").status_code == 404


def test_a_long_log_has_pages(owner: Client, account: Account, key: ApiKey) -> None:
    for number in range(60):
        keys.rename(key, f"name {number}")
    first = owner.get(f"/audit?account={account.pk}&subject=key")
    older = first.context["older"]
    assert "name 59" in first.text
    assert "name 1 " not in plain(first.text)
    second = plain(owner.get(f"/audit?account={account.pk}&subject=key&before={older}").text)
    assert "Name: name 1 " in second
    assert "Name: name 59" not in second


@pytest.fixture
def key(account: Account) -> ApiKey:
    return key_of(account)


def test_the_download_has_every_chosen_event_and_is_noted_itself(owner: Client, account: Account, key: ApiKey) -> None:
    keys.rename(key, "=1+1")
    reply = owner.get(f"/audit/export?account={account.pk}&subject=key")
    rows = list(csv.DictReader(io.StringIO(b"".join(reply).decode())))
    assert [row["action"] for row in rows] == ["key.changed", *["key.created"] * (len(rows) - 1)]
    assert rows[0]["to"] == '{"name":"=1+1"}'
    assert rows[0]["object"] == "'=1+1", "a spreadsheet would run it"
    assert AuditEvent.objects.filter(action="export.made").count() == 1
    assert owner.get(f"/audit/export?account={account.pk}&since=x").status_code == 400


def test_members_do_not_see_it(account: Account) -> None:
    joined(account, MEMBER)
    for address in ("/audit", "/audit/export"):
        assert client_of(MEMBER).get(f"{address}?account={account.pk}").status_code == 403


def test_sign_ins_are_noted_in_each_account_of_the_person(account: Account, client: Client) -> None:
    other = new_account("Other")
    membership = joined(account, OWNER, "owner")
    joined(other, OWNER, "member")
    membership.user.set_password("correct horse battery staple")
    membership.user.save()
    client.post("/login", {"login": OWNER, "username": OWNER, "password": "wrong"})
    client.post("/login", {"login": "nobody@example.com", "username": "nobody@example.com", "password": "wrong"})
    failed = AuditEvent.objects.filter(action="session.failed")
    assert {event.account_id for event in failed} == {account.pk, other.pk}
    assert {event.actor_id for event in failed} == {""}, "nobody knows who it was"
    assert {event.object_id for event in failed} == {str(membership.user.pk)}


def test_a_key_is_rotated_disabled_and_made_for_management_on_pages(owner: Client, account: Account) -> None:
    fields = {"account": account.pk, "name": "boss", "expiry": "never", "kind": "management"}
    made = owner.post(f"/keys?account={account.pk}", fields)
    assert "sk-gm-" in made.text
    key = ApiKey.objects.get(name="boss")
    old = made.context["token"]
    rotated = owner.post(f"/keys/{key.pk}/rotate", {"overlap": "24"})
    new = rotated.context["token"]
    assert keys.caller_of(old).key_id == keys.caller_of(new).key_id == key.pk
    assert owner.post(f"/keys/{key.pk}/rotate", {"overlap": "500"}).status_code == 422
    assert owner.post(f"/keys/{key.pk}", {"action": "disable"}).status_code == 302
    assert "disabled" in plain(owner.get(f"/keys?account={account.pk}").text)
    with pytest.raises(ApiKeyDisabled):
        keys.caller_of(new)
    owner.post(f"/keys/{key.pk}", {"action": "enable"})
    assert keys.caller_of(new).key_id == key.pk


def test_a_member_does_not_enable_a_key_that_an_owner_has_disabled(owner: Client, account: Account) -> None:
    member = joined(account, MEMBER)
    key, token = new_key(account, "theirs", created_by=member.user)
    owner.post(f"/keys/{key.pk}", {"action": "disable"})
    client = client_of(MEMBER)
    page = client.get(f"/keys/{key.pk}").text
    assert "An owner can enable it." in plain(page)
    assert 'value="enable"' not in page
    assert client.post(f"/keys/{key.pk}", {"action": "enable"}).status_code == 403
    with pytest.raises(ApiKeyDisabled):
        keys.caller_of(token)


def test_a_member_makes_no_management_key_and_changes_none(account: Account) -> None:
    member = joined(account, MEMBER)
    client = client_of(MEMBER)
    fields = {"account": account.pk, "name": "sneaky", "expiry": "never", "kind": "management"}
    client.post(f"/keys?account={account.pk}", fields)
    assert ApiKey.objects.get(name="sneaky").kind == "inference"
    ApiKey.objects.filter(name="sneaky").update(kind="management", created_by=member.user)
    key = ApiKey.objects.get(name="sneaky")
    for address in (f"/keys/{key.pk}", f"/keys/{key.pk}/rotate", f"/keys/{key.pk}/delete"):
        assert client.post(address, {"overlap": "0", "action": "disable"}).status_code == 403, address
