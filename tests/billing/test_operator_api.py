"""An operator key opens, funds, limits and suspends accounts over HTTP (docs/management.md)."""

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pytest
from requests import Response, post

from tests import managing
from tests.chat import PATH, question
from tests.envelope import refusal
from tests.servers.customer import GatewaySession
from tests.servers.gateway import GatewayServer

Json = dict[str, Any]
ACCOUNTS = "/v1/operator/accounts"


@pytest.fixture
def operator(gateway: GatewayServer) -> Iterator[GatewaySession]:
    yield managing.operating(gateway)
    managing.close_all()


def fresh() -> str:
    return f"opened-{uuid.uuid4().hex[:12]}"


def opened(operator: GatewaySession, **fields: Any) -> Json:
    reply = operator.post(ACCOUNTS, json={"name": fresh()} | fields)
    assert reply.status_code == 201, reply.text
    body: Json = reply.json()
    return body


def test_an_account_is_opened_with_credit_owner_policy_and_key_and_used(
    gateway: GatewayServer, operator: GatewaySession
) -> None:
    owner = f"{fresh()}@example.com"
    account = opened(
        operator,
        credit="12.50",
        owner=owner,
        policy={"rpm": 600},
        key={"name": "first", "policy": {"budget": {"amount": "5", "period": "month"}}, "tags": ["team=hr"]},
    )
    assert (account["balance"], account["currency"], account["suspended"]) == ("12.50", "EUR", False)
    assert account["key"]["policy"]["budget"] == [{"amount": "5.00", "period": "month"}]
    assert account["key"]["tags"] == ["team=hr"]
    key = managing.using(gateway, account["key"]["key"])
    assert key.post(PATH, json=question("echo")).status_code == 200
    assert key.get("/v1/key").json()["account"]["id"] == account["id"]
    management = opened(operator, key={"name": "boss", "kind": "management", "expires": "never"})["key"]
    members = managing.using(gateway, management["key"]).get("/v1/members")
    assert members.json()["data"] == []
    shown = operator.get(f"{ACCOUNTS}/{account['id']}").json()
    assert Decimal(shown["spend_30d"]) == Decimal("12.50") - Decimal(shown["balance"]) > 0
    assert "key" not in shown


def test_a_repeated_request_opens_one_account_and_does_not_repeat_the_token(operator: GatewaySession) -> None:
    body, headers = {"name": fresh(), "credit": "1.00", "key": {"name": "first"}}, {"Idempotency-Key": fresh()}
    first = operator.post(ACCOUNTS, json=body, headers=headers)
    again = operator.post(ACCOUNTS, json=body, headers=headers)
    assert (first.status_code, again.status_code) == (201, 201)
    answered = first.json()
    assert answered["key"].pop("key").startswith("sk-gw-")
    assert again.json() == answered
    other = operator.post(ACCOUNTS, json=body | {"credit": "2.00"}, headers=headers)
    assert refusal(other)[:1] + refusal(other)[2:3] == (409, "idempotency_key_reused")
    assert refusal(operator.post(ACCOUNTS, json=body)) == (409, "invalid_request_error", "account_exists", "name")
    bad = operator.post(ACCOUNTS, json=body, headers={"Idempotency-Key": "x" * 256})
    assert refusal(bad)[3] == "Idempotency-Key"


def at_once(
    gateway: GatewayServer, operator: GatewaySession, requests: list[tuple[Json, dict[str, str]]]
) -> list[Response]:
    """Sends requests that open accounts at the same time, each on a connection of its own."""

    def send(request: tuple[Json, dict[str, str]]) -> Response:
        body, headers = request
        both = {"Authorization": str(operator.headers["Authorization"]), **headers}
        return post(gateway.origin + ACCOUNTS, json=body, headers=both, timeout=60)

    with ThreadPoolExecutor(len(requests)) as pool:
        return list(pool.map(send, requests))


def test_requests_at_once_with_one_idempotency_key_open_one_account(
    gateway: GatewayServer, operator: GatewaySession
) -> None:
    body, headers = {"name": fresh(), "credit": "1.00", "key": {"name": "first"}}, {"Idempotency-Key": fresh()}
    replies = at_once(gateway, operator, [(body, headers)] * 8)
    assert [reply.status_code for reply in replies] == [201] * 8, replies[-1].text
    answered = [reply.json() for reply in replies]
    tokens = [each["key"].pop("key") for each in answered if "key" in each["key"]]
    assert len(tokens) == 1
    assert all(each == answered[0] for each in answered)


def test_requests_at_once_with_one_name_open_one_account(gateway: GatewayServer, operator: GatewaySession) -> None:
    replies = at_once(gateway, operator, [({"name": fresh()}, {})] * 8)
    assert sorted(reply.status_code for reply in replies) == [201, *[409] * 7]
    refused = {refusal(reply) for reply in replies if reply.status_code == 409}
    assert refused == {(409, "invalid_request_error", "account_exists", "name")}


def test_accounts_of_one_new_owner_are_opened_at_once(gateway: GatewayServer, operator: GatewaySession) -> None:
    owner = f"{fresh()}@example.com"
    replies = at_once(gateway, operator, [({"name": fresh(), "owner": owner}, {}) for _ in range(8)])
    assert [reply.status_code for reply in replies] == [201] * 8


def test_a_repeated_request_is_answered_after_its_key_was_deleted(
    gateway: GatewayServer, operator: GatewaySession
) -> None:
    body = {"name": fresh(), "key": {"name": "boss", "kind": "management"}}
    headers = {"Idempotency-Key": fresh()}
    first = operator.post(ACCOUNTS, json=body, headers=headers).json()
    managing.using(gateway, first["key"].pop("key")).delete(f"/v1/keys/{first['key']['id']}").raise_for_status()
    again = operator.post(ACCOUNTS, json=body, headers=headers)
    assert (again.status_code, again.json()["key"]["id"]) == (201, first["key"]["id"])


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"name": ""}, "name"),
        ({"name": 7}, "name"),
        ({"name": "a\0b"}, "name"),
        ({"currency": "euro"}, "currency"),
        ({"credit": 5}, "credit"),
        ({"credit": "0"}, "credit"),
        ({"credit": "-1"}, "credit"),
        ({"credit": "0.00000000001"}, "credit"),
        ({"owner": "nobody"}, "owner"),
        ({"policy": {"rpm": -1}}, "policy.rpm"),
        ({"key": {}}, "key.name"),
        ({"key": {"name": "a", "kind": "operator"}}, "key.kind"),
        ({"key": {"name": "a", "policy": {"colour": 1}}}, "key.policy.colour"),
        ({"key": {"name": "a", "tags": ["X"]}}, "key.tags[0]"),
        ({"colour": "red"}, "colour"),
    ],
    ids=str,
)
def test_a_fault_names_its_field_and_opens_nothing(operator: GatewaySession, fields: Json, param: str) -> None:
    body = {"name": fresh()} | fields
    reply = operator.post(ACCOUNTS, json=body)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)
    names = [account["name"] for account in operator.get(ACCOUNTS, params={"limit": "1000"}).json()["data"]]
    assert body["name"] not in names


def test_credit_is_booked_once_for_each_reference(operator: GatewaySession) -> None:
    account = opened(operator)
    address = f"{ACCOUNTS}/{account['id']}/credit"
    grant = {"amount": "50.00", "reference": "invoice-7", "reason": "paid"}
    first = operator.post(address, json=grant)
    again = operator.post(address, json=grant)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    assert (first.json()["amount"], first.json()["balance_after"], first.json()["reason"]) == ("50.00", "50.00", "paid")
    other = operator.post(address, json=grant | {"amount": "51"})
    assert refusal(other) == (409, "invalid_request_error", "reference_conflict", "reference")
    correction = operator.post(address, json={"amount": "-20.5", "reference": "back", "correction": True})
    assert (correction.status_code, correction.json()["kind"]) == (201, "correction")
    assert operator.get(f"{ACCOUNTS}/{account['id']}").json()["balance"] == "29.50"
    for fields, param in (
        ({"amount": "-1", "reference": "a"}, "amount"),
        ({"amount": "0", "reference": "a"}, "amount"),
        ({"amount": "1e3", "reference": "a"}, "amount"),
        ({"amount": "1", "reference": ""}, "reference"),
        ({"amount": "1", "reference": "   "}, "reference"),
        ({"amount": "1"}, "reference"),
        ({"amount": "1", "reference": "a", "correction": "yes"}, "correction"),
    ):
        assert refusal(operator.post(address, json=fields))[3] == param, fields
    assert operator.get(f"{ACCOUNTS}/{account['id']}").json()["balance"] == "29.50"


def test_an_account_is_suspended_renamed_and_limited(gateway: GatewayServer, operator: GatewaySession) -> None:
    account = opened(operator, credit="1.00", key={"name": "first"})
    address, key = f"{ACCOUNTS}/{account['id']}", managing.using(gateway, account["key"]["key"])
    suspended = operator.patch(address, json={"suspended": True, "suspended_reason": "unpaid"}).json()
    assert (suspended["suspended"], suspended["suspended_reason"]) == (True, "unpaid")
    assert refusal(key.post(PATH, json=question("echo")))[2] == "account_suspended"
    name = fresh()
    resumed = operator.patch(address, json={"suspended": False, "name": name, "policy": {"providers": []}}).json()
    assert (resumed["suspended"], resumed["suspended_reason"], resumed["name"]) == (False, None, name)
    assert refusal(key.post(PATH, json=question("echo")))[2] == "policy_denied"
    for fields, param in (
        ({"suspended": True}, "suspended_reason"),
        ({"suspended_reason": "x"}, "suspended_reason"),
        ({"suspended": "yes"}, "suspended"),
        ({"name": ""}, "name"),
        ({"policy": {"tpm": 0}}, "policy.tpm"),
        ({}, None),
    ):
        assert refusal(operator.patch(address, json=fields))[3] == param, fields
    other = opened(operator)
    taken = operator.patch(address, json={"name": other["name"]})
    assert refusal(taken) == (409, "invalid_request_error", "account_exists", "name")


def test_an_account_is_suspended_by_several_requests_at_once(operator: GatewaySession) -> None:
    address = f"{ACCOUNTS}/{opened(operator)['id']}"

    def suspend(_number: int) -> int:
        return operator.patch(address, json={"suspended": True, "suspended_reason": "unpaid"}).status_code

    with ThreadPoolExecutor(8) as pool:
        assert [*pool.map(suspend, range(8))] == [200] * 8


def test_of_renames_to_one_name_at_once_one_succeeds(operator: GatewaySession, gateway: GatewayServer) -> None:
    token, name = str(operator.headers["Authorization"]).removeprefix("Bearer "), fresh()
    accounts = [opened(operator)["id"] for _ in range(6)]
    sessions = [managing.using(gateway, token) for _ in accounts]

    def rename(number: int) -> int:
        return sessions[number].patch(f"{ACCOUNTS}/{accounts[number]}", json={"name": name}).status_code

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(rename, range(6))) == [200] + [409] * 5


def test_accounts_are_listed_by_name_balance_and_spend(operator: GatewaySession) -> None:
    accounts = [opened(operator, credit=credit) for credit in ("3.00", "1.00", "2.00")]
    names = {account["name"] for account in accounts}

    def listed(**query: str) -> list[Json]:
        found: list[Json] = []
        cursor: dict[str, str] = {}
        while True:
            page = operator.get(ACCOUNTS, params={"limit": "50"} | query | cursor).json()
            found += page["data"]
            if "next_cursor" not in page:
                return [account for account in found if account["name"] in names]
            cursor = {"after": page["next_cursor"]}

    assert [account["name"] for account in listed()] == sorted(names)
    assert [account["balance"] for account in listed(sort="balance")] == ["1.00", "2.00", "3.00"]
    assert {account["name"] for account in listed(sort="spend")} == names
    operator.patch(f"{ACCOUNTS}/{accounts[0]['id']}", json={"suspended": True, "suspended_reason": "x"})
    assert [account["name"] for account in listed(suspended="true")] == [accounts[0]["name"]]
    assert {account["name"] for account in listed(suspended="false")} == names - {accounts[0]["name"]}


def test_an_operator_key_does_nothing_else(gateway: GatewayServer, operator: GatewaySession) -> None:
    assert operator.get("/v1/key").json()["kind"] == "operator"
    for method, path in (
        ("POST", PATH),
        ("GET", "/v1/models"),
        ("GET", "/v1/keys"),
        ("GET", "/v1/credits"),
        ("GET", "/v1/aliases"),
        ("GET", "/v1/generations"),
    ):
        assert operator.request(method, path, json=question("echo")).status_code == 403, path
    for identifier in ("x", str(uuid.uuid4())):
        assert refusal(operator.get(f"{ACCOUNTS}/{identifier}"))[:1] == (404,)
        assert refusal(operator.post(f"{ACCOUNTS}/{identifier}/credit", json={}))[:1] == (404,)
    name = operator.get("/v1/key").json()["name"]
    gateway.manage("delete_operator_key", name).ok()
    assert refusal(operator.get("/v1/key"))[2] == "api_key_not_registered"
    assert gateway.manage("delete_operator_key", name).code == 1
