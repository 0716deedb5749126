"""A management key runs an account's keys and policies over HTTP (docs/management.md)."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
import requests

from gateway.money import plain
from tests import bills
from tests import managing as managing_
from tests.chat import PATH, answer, ask, question
from tests.conftest import OpenAccount
from tests.envelope import Refusal, message, refusal
from tests.managing import managing
from tests.servers.customer import Customer, GatewaySession
from tests.servers.gateway import GatewayServer

WRONG_KIND = (403, "permission_error", "key_kind_not_allowed", None)
INVALID = Refusal(400, "invalid_request_error", "invalid_request_error", None)
UNKNOWN = (404, "not_found", "not_found", None)
ABSENT_ID = "01a22826-e066-7fbb-a243-0709e1eb6e35"


@pytest.fixture
def customer(gateway: GatewayServer, open_account: OpenAccount) -> Customer:
    return open_account(gateway)


@pytest.fixture(autouse=True)
def sessions() -> Iterator[None]:
    """Closes the sessions of a test at its end."""
    yield
    managing_.close_all()


def using(customer: Customer, token: str) -> GatewaySession:
    return managing_.using(customer.gateway, token)


def text_of(amount: Decimal) -> str:
    """Returns an amount as answers write it."""
    return plain(amount)


def made(management: GatewaySession, **fields: Any) -> dict[str, Any]:
    reply = management.post("/v1/keys", json=fields)
    assert reply.status_code == 201, reply.text
    body: dict[str, Any] = reply.json()
    return body


def test_a_key_is_made_used_changed_and_deleted(customer: Customer) -> None:
    management = managing(customer)
    policy = {"providers": ["sim"], "budget": {"amount": "50.00", "period": "month"}, "alerts": [80]}
    key = made(management, name="hr", expires="30d", policy=policy, tags=["team=hr"])
    assert key["key"].startswith("sk-gw-")
    assert (key["kind"], key["name"], key["tags"], key["disabled"]) == ("inference", "hr", ["team=hr"], False)
    assert key["policy"] == policy | {"budget": [policy["budget"]]}
    assert (key["budget"]["amount"], key["budget"]["spent"], key["budget"]["remaining"]) == ("50.00", "0.00", "50.00")
    expires_at = datetime.fromisoformat(key["expires_at"])
    assert timedelta(days=29) < expires_at - datetime.now(UTC) < timedelta(days=31)
    today = datetime.now(UTC).date()
    with using(customer, key["key"]) as hr:
        assert hr.post(PATH, json=question("echo")).status_code == 200
        cost = bills.debits(customer)[0]
        address = f"/v1/keys/{key['id']}"
        shown = management.get(address).json()
        assert "key" not in shown
        assert shown["usage"]["total"] == text_of(cost)
        periods = dict.fromkeys(("day", "week", "month", "total"), text_of(cost))
        assert shown["usage"] == periods or datetime.now(UTC).date() > today  # at midnight a new day begins
        assert shown["budget"]["spent"] == text_of(cost)
        # 1. It is disabled and enabled.
        assert management.patch(address, json={"disabled": True}).json()["disabled"]
        assert refusal(hr.post(PATH, json=question("echo"))) == (401, "authentication_error", "api_key_disabled", None)
        assert refusal(hr.get("/v1/models")) == (401, "authentication_error", "api_key_disabled", None)
        assert not management.patch(address, json={"disabled": False}).json()["disabled"]
        # 2. Its policy is replaced as a whole.
        changed = management.patch(address, json={"policy": {"providers": []}, "name": "people", "tags": []}).json()
        assert (changed["name"], changed["policy"], changed["budget"], changed["tags"]) == (
            "people",
            {"providers": []},
            None,
            [],
        )
        assert refusal(hr.post(PATH, json=question("echo")))[2] == "policy_denied"
        # 3. It is deleted.
        assert management.delete(address).status_code == 204
        assert refusal(hr.get("/v1/key"))[2] == "api_key_not_registered"
        assert refusal(management.get(address)) == UNKNOWN


def test_after_a_rotation_both_tokens_work_until_the_overlap_ends(customer: Customer) -> None:
    management = managing(customer)
    key = made(management, name="app")
    rotated = management.post(f"/v1/keys/{key['id']}/rotate", json={"overlap_hours": 168})
    assert rotated.status_code == 201
    assert (rotated.json()["id"], rotated.json()["name"]) == (key["id"], "app")
    new, old = using(customer, rotated.json()["key"]), using(customer, key["key"])
    for session in (new, old):
        assert session.post(PATH, json=question("echo")).status_code == 200
        assert session.get("/v1/key").json()["id"] == key["id"]
    # a rotation without an overlap ends all former tokens
    last = using(customer, management.post(f"/v1/keys/{key['id']}/rotate", json={"overlap_hours": 0}).json()["key"])
    for session in (new, old):
        assert refusal(session.post(PATH, json=question("echo")))[2] == "api_key_not_registered"
        assert refusal(session.get("/v1/key"))[2] == "api_key_not_registered"
    assert last.post(PATH, json=question("echo")).status_code == 200
    assert management.delete(f"/v1/keys/{key['id']}").status_code == 204
    assert refusal(last.get("/v1/key"))[2] == "api_key_not_registered"


def test_a_former_token_ends_with_its_overlap(customer: Customer) -> None:
    management = managing(customer)
    key = made(management, name="app")
    management.post(f"/v1/keys/{key['id']}/rotate", json={"overlap_hours": 1}).raise_for_status()
    old = using(customer, key["key"])
    assert old.get("/v1/key").status_code == 200
    customer.gateway.query("UPDATE accounts_formertoken SET works_until = now() WHERE key_id = %s", [key["id"]])
    assert refusal(old.post(PATH, json=question("echo")))[2] == "api_key_not_registered"
    assert refusal(old.get("/v1/key"))[2] == "api_key_not_registered"


def test_a_key_that_has_expired_is_extended_until_its_proof_is_removed_and_not_rotated(customer: Customer) -> None:
    management = managing(customer)
    key = made(management, name="app")
    address, past = f"/v1/keys/{key['id']}", "UPDATE accounts_apikey SET expires_at = now() WHERE id = %s"
    customer.gateway.query(past, [key["id"]])
    assert refusal(using(customer, key["key"]).get("/v1/key"))[2] == "api_key_expired"
    assert refusal(management.post(f"{address}/rotate", json={})) == INVALID
    assert management.patch(address, json={"expires": "7d"}).status_code == 200
    assert using(customer, key["key"]).get("/v1/key").status_code == 200
    customer.gateway.query(past, [key["id"]])
    customer.gateway.manage("maintain", "--once").ok()
    assert refusal(management.patch(address, json={"expires": "7d"})) == INVALID._replace(param="expires")


def test_a_key_that_is_deleted_while_it_is_changed_gets_nothing_more(customer: Customer) -> None:
    management = managing(customer)
    sessions = [using(customer, str(management.headers["Authorization"]).removeprefix("Bearer ")) for _ in range(8)]
    for number in range(3):
        address = f"/v1/keys/{made(management, name=f'app {number}')['id']}"

        def change(position: int, address: str = address) -> int:
            if position == 4:
                return sessions[position].delete(address).status_code
            return sessions[position].patch(address, json={"policy": {"rpm": position + 1}}).status_code

        with ThreadPoolExecutor(8) as pool:
            statuses = list(pool.map(change, range(8)))
        assert statuses[4] == 204
        assert {*statuses} <= {200, 204, 404}
    events = management.get("/v1/audit", params={"limit": "1000"}).json()["data"]
    deleted: set[str] = set()
    for event in reversed(events):
        assert event["object"]["id"] not in deleted, event
        if event["action"] == "key.deleted":
            deleted.add(event["object"]["id"])
    assert len(deleted) == 3


def test_an_old_token_ends_when_its_key_is_disabled_or_deleted(customer: Customer) -> None:
    management = managing(customer)
    key = made(management, name="app")
    management.post(f"/v1/keys/{key['id']}/rotate", json={}).raise_for_status()
    old = using(customer, key["key"])
    management.patch(f"/v1/keys/{key['id']}", json={"disabled": True}).raise_for_status()
    assert refusal(old.post(PATH, json=question("echo")))[2] == "api_key_disabled"
    management.delete(f"/v1/keys/{key['id']}").raise_for_status()
    assert refusal(old.post(PATH, json=question("echo")))[2] == "api_key_not_registered"


def test_a_key_says_who_it_is(customer: Customer) -> None:
    management = managing(customer)
    rules = {"rpm": 60, "budget": [{"amount": "5", "period": "day"}, {"amount": "0.01", "period": "total"}]}
    management.put("/v1/policies/account", json={"budget": {"amount": "90", "period": "month"}}).raise_for_status()
    key = made(management, name="app", policy=rules)
    today = datetime.now(UTC).date()
    with using(customer, key["key"]) as app:
        app.post(PATH, json=question("echo")).raise_for_status()
        (cost,) = bills.debits(customer)
        who = app.get("/v1/key").json()
    assert (who["id"], who["kind"], who["name"]) == (key["id"], "inference", "app")
    balance = text_of(Decimal(100) - cost)
    assert who["account"] == {
        "id": customer.id,
        "name": customer.name,
        "currency": "EUR",
        "balance": balance,
        "suspended": False,
    }
    assert {(each["level"], each["period"]) for each in who["budgets"]} == {
        ("account", "month"),
        ("key", "day"),
        ("key", "total"),
    }
    assert (who["budget"]["amount"], who["budget"]["period"]) == ("0.01", "total")
    assert who["budget"]["renews_at"] is None
    assert who["budget"]["remaining"] == text_of(Decimal("0.01") - cost)
    assert who["rate_limits"] == {"rpm": 60, "tpm": None, "rpm_remaining": 59, "tpm_remaining": None}
    assert who["usage"]["total"] == text_of(cost)
    assert who["data"]["limit"] == 0.01
    assert who["data"]["usage_daily"] == float(cost) or datetime.now(UTC).date() > today
    assert who["data"]["limit_reset"] is None
    assert who["data"]["is_free_tier"] is False


def test_credits_are_all_that_was_granted_and_used(customer: Customer) -> None:
    answer(customer, "echo")
    (cost,) = bills.debits(customer)
    for session in (customer.http, managing(customer)):
        found = session.get("/v1/credits").json()
        assert found == {
            "balance": text_of(Decimal(100) - cost),
            "currency": "EUR",
            "total_credits": "100.00",
            "total_usage": text_of(cost),
            "data": {"total_credits": 100.0, "total_usage": float(cost)},
        }


def test_keys_are_listed_in_pages(customer: Customer) -> None:
    management = managing(customer)
    names = [f"key-{number}" for number in range(5)]
    for name in names:
        made(management, name=name)
    found: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = management.get("/v1/keys", params={"limit": "3"} | cursor).json()
        assert page["object"] == "list"
        found += [key["name"] for key in page["data"]]
        if "next_cursor" not in page:
            break
        cursor = {"after": page["next_cursor"]}
    assert found == [*reversed(names), "admin", "test"]
    other = management.get("/v1/keys", params={"after": "made-up"})
    assert (other.status_code, other.json()["error"]["param"]) == (400, "after")


def test_policies_of_account_default_and_tag(customer: Customer) -> None:
    management = managing(customer)
    for holder, level in (("account", "account"), ("default", "default"), ("tag:team=hr", "tag")):
        address = f"/v1/policies/{holder}"
        assert management.get(address).json()["policy"] == {}
        reply = management.put(address, json={"rpm": 7, "models": ["nobody/*"]})
        assert reply.json()["policy"] == {"rpm": 7, "models": ["nobody/*"]}
        assert reply.json()["level"] == level
        assert "nobody/*" in reply.json()["warnings"][0]
        assert management.get(address).json()["policy"] == {"rpm": 7, "models": ["nobody/*"]}
    assert made(management, name="new")["policy"] == {"rpm": 7, "models": ["nobody/*"]}
    assert management.get("/v1/policies/key").status_code == 404
    assert refusal(management.get("/v1/policies/tag:Team"))[3] == "tag"
    assert refusal(management.put("/v1/policies/account", json={"locodes": ["ZZXXX"]}))[3] == "locodes[0]"
    assert management.get("/v1/policies/account").json()["policy"] == {"rpm": 7, "models": ["nobody/*"]}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "name"),
        ({"name": ""}, "name"),
        ({"name": 7}, "name"),
        ({"name": "x" * 201}, "name"),
        ({"name": "test"}, "name"),
        ({"name": "a", "kind": "operator"}, "kind"),
        ({"name": "a", "expires": "soon"}, "expires"),
        ({"name": "a", "expires": "2020-01-01T00:00:00Z"}, "expires"),
        ({"name": "a", "policy": {"budget": {"amount": "1", "period": "MONTH"}}}, "policy.budget.period"),
        ({"name": "a", "policy": []}, "policy"),
        ({"name": "a", "tags": ["Team"]}, "tags[0]"),
        ({"name": "a", "tags": "team=a"}, "tags"),
        ({"name": "a", "colour": "red"}, "colour"),
    ],
    ids=str,
)
def test_a_fault_names_its_field_and_makes_no_key(customer: Customer, body: dict[str, Any], param: str) -> None:
    management = managing(customer)
    reply = management.post("/v1/keys", json=body)
    assert reply.status_code == (409 if body == {"name": "test"} else 400)
    assert reply.json()["error"]["param"] == param
    assert [key["name"] for key in management.get("/v1/keys").json()["data"]] == ["admin", "test"]


@pytest.mark.parametrize("overlap", [-1, 169, 1.5, "1"])
def test_an_overlap_is_up_to_seven_days(customer: Customer, overlap: object) -> None:
    management = managing(customer)
    key = made(management, name="app")
    reply = management.post(f"/v1/keys/{key['id']}/rotate", json={"overlap_hours": overlap})
    assert refusal(reply)[3] == "overlap_hours"
    assert using(customer, key["key"]).get("/v1/key").status_code == 200


OF_MANAGEMENT = [
    ("GET", "/v1/keys"),
    ("POST", "/v1/keys"),
    ("GET", f"/v1/keys/{ABSENT_ID}"),
    ("PATCH", f"/v1/keys/{ABSENT_ID}"),
    ("DELETE", f"/v1/keys/{ABSENT_ID}"),
    ("POST", f"/v1/keys/{ABSENT_ID}/rotate"),
    ("GET", "/v1/policies/account"),
    ("PUT", "/v1/policies/account"),
    ("GET", "/v1/ledger"),
    ("GET", "/v1/usage"),
    ("GET", "/v1/members"),
    ("DELETE", "/v1/members/7"),
    ("POST", "/v1/invitations"),
    ("GET", "/v1/audit"),
    ("GET", "/v1/webhooks"),
    ("POST", "/v1/webhooks"),
    ("GET", f"/v1/webhooks/{ABSENT_ID}"),
    ("PATCH", f"/v1/webhooks/{ABSENT_ID}"),
    ("DELETE", f"/v1/webhooks/{ABSENT_ID}"),
    ("POST", f"/v1/webhooks/{ABSENT_ID}/test"),
    ("GET", f"/v1/webhooks/{ABSENT_ID}/deliveries"),
    ("POST", f"/v1/webhooks/{ABSENT_ID}/deliveries/{ABSENT_ID}/retry"),
]


@pytest.mark.parametrize(("method", "path"), OF_MANAGEMENT, ids=str)
def test_each_endpoint_takes_its_kind_of_key_and_tells_nothing_of_other_accounts(
    customer: Customer, open_account: OpenAccount, method: str, path: str
) -> None:
    gateway = customer.gateway
    operator = gateway.manage("create_operator_key", "--name", f"{customer.name} {method} {path}"[:200]).ok()
    for token in (customer.key, operator):
        assert refusal(using(customer, token).request(method, path, json={})) == WRONG_KIND
    assert requests.request(method, gateway.origin + path, json={}, timeout=10).status_code == 401
    deleted = managing(customer, "gone")
    deleted.delete(f"/v1/keys/{deleted.get('/v1/key').json()['id']}").raise_for_status()
    assert refusal(deleted.request(method, path, json={}))[2] == "api_key_not_registered"
    if path.startswith("/v1/keys/"):
        mine, theirs = managing(customer), managing(open_account(gateway))
        foreign = theirs.get("/v1/keys").json()["data"][0]["id"]
        for identifier in (ABSENT_ID, foreign, "no-id"):
            reply = mine.request(method, path.replace(ABSENT_ID, identifier), json={"name": "x"})
            assert refusal(reply) == UNKNOWN
            assert message(reply) == "This account has no such key."
        assert theirs.get("/v1/key").json()["name"] == "admin"


def test_a_management_key_is_useless_for_inference_and_reads_all_of_its_account(customer: Customer) -> None:
    management = managing(customer)
    answer(customer, "echo")
    for path in (PATH, "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages"):
        reply = management.post(path, json=question("echo"))
        assert reply.status_code == 403
        assert "This endpoint takes an inference key, and this is a management key." in reply.text
    assert management.get("/v1/models").status_code == 200
    assert management.get("/v1/providers").status_code == 200
    assert management.get("/v1/aliases").status_code == 200
    (record,) = management.get("/v1/generations").json()["data"]
    assert management.get(f"/v1/generation/{record['generation_id']}").status_code == 200
    assert len(bills.debits(customer)) == 1


def test_a_key_of_a_suspended_account_reads_and_changes_nothing(customer: Customer) -> None:
    management = managing(customer)
    customer.gateway.manage("suspend_account", customer.name, "--reason", "unpaid").ok()
    assert management.get("/v1/key").json()["account"]["suspended"]
    assert refusal(management.post("/v1/keys", json={"name": "new"}))[2] == "account_suspended"
    assert refusal(ask(customer, "echo"))[2] == "account_suspended"
