"""A management key lists, invites and removes members, and reads the audit log (docs/management.md)."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests import managing
from tests.conftest import OpenAccount
from tests.envelope import refusal
from tests.servers.customer import Customer, GatewaySession
from tests.servers.gateway import GatewayServer

Json = dict[str, Any]


@pytest.fixture
def customer(gateway: GatewayServer, open_account: OpenAccount) -> Customer:
    return open_account(gateway)


@pytest.fixture
def management(customer: Customer) -> Iterator[GatewaySession]:
    yield managing.managing(customer)
    managing.close_all()


def audit(management: GatewaySession, **query: str) -> list[Json]:
    reply = management.get("/v1/audit", params=query)
    assert reply.status_code == 200, reply.text
    found: list[Json] = reply.json()["data"]
    return found


def add_owner(customer: Customer) -> str:
    """Makes a person the owner of the account and returns their address."""
    address = f"owner-of-{customer.name}@example.com"
    code = (
        "from accounts.models import *; Membership.objects.create("
        f"account_id='{customer.id}', user=User.objects.create_user('{address}'), role='owner')"
    )
    customer.gateway.manage("shell", "--no-imports", "--command", code).ok()
    return address


def test_a_person_is_invited_and_a_member_removed(customer: Customer, management: GatewaySession) -> None:
    owner = add_owner(customer)
    (member,) = management.get("/v1/members").json()["data"]
    assert (member["email"], member["role"]) == (owner, "owner")
    address = f"new-in-{customer.name}@example.com"
    invited = management.post("/v1/invitations", json={"email": address.upper(), "role": "owner"})
    assert invited.status_code == 201
    assert (invited.json()["email"], invited.json()["role"]) == (address, "owner")
    assert refusal(management.post("/v1/invitations", json={"email": owner}))[:1] == (400,)
    last = management.delete(f"/v1/members/{member['id']}")
    assert refusal(last) == (409, "invalid_request_error", "last_owner", None)
    for identifier in ("7", "x", "9" * 30, "-1"):
        assert refusal(management.delete(f"/v1/members/{identifier}"))[:1] == (404,)
    actions = [event["action"] for event in audit(management)]
    assert actions[:2] == ["invitation.sent", "member.added"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "email"),
        ({"email": 7}, "email"),
        ({"email": "nobody"}, "email"),
        ({"email": "a@example.com", "role": "king"}, "role"),
        ({"email": "a@example.com", "name": "A"}, "name"),
    ],
    ids=str,
)
def test_a_bad_invitation_names_its_field(management: GatewaySession, body: Json, param: str) -> None:
    reply = management.post("/v1/invitations", json=body)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)


def test_the_audit_log_says_who_did_what_and_from_where(customer: Customer, management: GatewaySession) -> None:
    key = management.post("/v1/keys", json={"name": "app"}).json()
    rotated = management.post(f"/v1/keys/{key['id']}/rotate", json={})
    management.patch(f"/v1/keys/{key['id']}", json={"name": "app2", "policy": {"rpm": 5}}).raise_for_status()
    customer.http.post("/v1/aliases", json={"name": "fast", "target": "sim/test/echo/FRPAR"}).raise_for_status()
    customer.http.patch("/v1/aliases/fast", json={"target": "sim/test/chunks/FRPAR"}).raise_for_status()
    management.delete(f"/v1/keys/{key['id']}").raise_for_status()
    found = audit(management)
    assert [event["action"] for event in found][:7] == [
        "key.deleted",
        "alias.repointed",
        "alias.created",
        "policy.changed",
        "key.changed",
        "key.rotated",
        "key.created",
    ]
    assert {event["action"] for event in found[7:]} == {"key.created", "credit.granted", "account.created"}
    rotation = next(event for event in found if event["action"] == "key.rotated")
    assert rotation["actor"]["kind"] == "key"
    assert rotation["actor"]["name"] == "admin"
    assert (rotation["object"]["kind"], rotation["object"]["id"], rotation["address"]) == (
        "key",
        key["id"],
        "127.0.0.1",
    )
    assert rotation["request_id"] == rotated.headers["X-Request-Id"]
    repointed = next(event for event in found if event["action"] == "alias.repointed")
    assert (repointed["from"], repointed["to"]) == (
        {"target": "sim/test/echo/FRPAR"},
        {"target": "sim/test/chunks/FRPAR"},
    )
    renamed = next(event for event in found if event["action"] == "key.changed")
    assert (renamed["from"], renamed["to"]) == ({"name": "app"}, {"name": "app2"})
    created = [event for event in found if event["action"] == "key.created"]
    assert {event["actor"]["kind"] for event in created} == {"key", "system"}
    for token in (customer.key, key["key"], rotated.json()["key"]):
        assert token not in str(found)


def test_the_audit_log_is_narrowed_and_paged(customer: Customer, management: GatewaySession) -> None:
    for number in range(4):
        management.post("/v1/keys", json={"name": f"key-{number}"}).raise_for_status()
    me = management.get("/v1/key").json()["id"]
    mine = audit(management, actor=me)
    assert [event["object"]["name"] for event in mine] == ["key-3", "key-2", "key-1", "key-0"]
    assert audit(management, actor=me, action="key.*") == mine
    assert audit(management, actor=me, action="key.created") == mine
    assert audit(management, action="alias.*") == []
    assert audit(management, actor=me, since=mine[1]["at"]) == mine[:2]
    assert audit(management, actor=me, until=mine[1]["at"]) == mine[1:]
    first = management.get("/v1/audit", params={"actor": me, "limit": "3"}).json()
    assert first["data"] == mine[:3]
    second = management.get("/v1/audit", params={"actor": me, "limit": "3", "after": first["next_cursor"]}).json()
    assert (second["data"], "next_cursor" in second) == (mine[3:], False)
    for query in ({"action": "a\0b"}, {"actor": "\0"}, {"since": "x"}):
        assert management.get("/v1/audit", params=query).status_code == 400


def test_the_events_and_members_of_another_account_are_not_listed(
    customer: Customer, management: GatewaySession, open_account: OpenAccount
) -> None:
    other = open_account(customer.gateway)
    add_owner(other)
    theirs = managing.managing(other)
    theirs.post("/v1/keys", json={"name": "theirs"}).raise_for_status()
    assert {event["object"]["name"] for event in audit(management)}.isdisjoint({"theirs", other.name})
    assert management.get("/v1/members").json()["data"] == []


@pytest.mark.parametrize("verb", ["UPDATE accounts_auditevent SET action = 'x'", "DELETE FROM accounts_auditevent"])
def test_the_database_keeps_every_event(customer: Customer, management: GatewaySession, verb: str) -> None:
    before = audit(management)
    with pytest.raises(Exception, match="append-only"):
        customer.gateway.query(f"{verb} WHERE account_id = %s", [customer.id])
    assert audit(management) == before
