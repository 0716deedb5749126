"""An inference and a control-plane endpoint authenticate their callers (docs/api.md#authentication)."""

import pytest
import requests

from tests.bills import hex_of
from tests.chat import HELLO_COST, PATH, answer, question
from tests.conftest import OpenAccount
from tests.envelope import message, refusal
from tests.rawhttp import exchange
from tests.servers.customer import Customer, GatewaySession
from tests.servers.gateway import GatewayServer

BODY_43 = "A" * 43
LONG_AGO = "2020-01-01 00:00:00"
ENDPOINTS = [("POST", PATH), ("GET", "/v1/models")]

either_plane = pytest.mark.parametrize(("method", "path"), ENDPOINTS, ids=["inference", "control"])


def call(gateway: GatewayServer, method: str, path: str, authorization: str | None) -> requests.Response:
    """Sends a sound request, except for its Authorization header."""
    headers = {} if authorization is None else {"Authorization": authorization}
    with GatewaySession(gateway.origin) as http:
        body = question("echo") if method == "POST" else None
        return http.request(method, path, json=body, headers=headers)


@pytest.mark.parametrize("header", [None, ""], ids=["absent", "empty"])
@either_plane
def test_a_missing_authorization_header_is_named(
    gateway: GatewayServer, method: str, path: str, header: str | None
) -> None:
    reply = call(gateway, method, path, header)
    assert refusal(reply) == (401, "authentication_error", "authentication_error", None)
    assert "missing authorization header" in message(reply).lower()


@pytest.mark.parametrize(
    "header",
    [
        "Bearer",
        "Bearer ",
        f"sk-gw-{BODY_43}",
        f"Basic sk-gw-{BODY_43}",
        f"bearer sk-gw-{BODY_43}",
        f"Bearer  sk-gw-{BODY_43}",
        f"Bearer\tsk-gw-{BODY_43}",
        f"Bearer sk-gw-{BODY_43} more",
        f'Bearer "sk-gw-{BODY_43}"',
        f'"Bearer sk-gw-{BODY_43}"',
        f"Bearer sk-gw-{BODY_43[:-1]}",
        f"Bearer sk-gw-{BODY_43}A",
        f"Bearer sk-{BODY_43}",
        f"Bearer SK-GW-{BODY_43}",
        f"Bearer sk_live_{BODY_43}",
        f"Bearer sk-gw-{BODY_43[:-1]}'",
        "Bearer sk-gw-" + "é" * 43,
        f"Bearer sk-gw-{BODY_43}, Bearer sk-gw-{BODY_43}",
        "Bearer " + "ab" * 4000,
    ],
    ids=lambda header: header[:60],
)
@either_plane
def test_another_shape_is_malformed(gateway: GatewayServer, method: str, path: str, header: str) -> None:
    reply = call(gateway, method, path, header.encode().decode("latin-1"))
    assert refusal(reply) == (401, "authentication_error", "api_key_malformed", None)


@either_plane
def test_a_well_shaped_key_without_an_owner_is_not_registered(gateway: GatewayServer, method: str, path: str) -> None:
    reply = call(gateway, method, path, f"Bearer sk-gw-{BODY_43}")
    assert refusal(reply) == (401, "authentication_error", "api_key_not_registered", None)


@either_plane
def test_a_key_with_its_last_character_changed_is_not_registered(
    gateway: GatewayServer, account: Customer, method: str, path: str
) -> None:
    changed = account.key[:-1] + ("A" if account.key[-1] != "A" else "E")
    assert refusal(call(gateway, method, path, f"Bearer {changed}")).code == "api_key_not_registered"


@either_plane
def test_a_deleted_key_fails_on_the_next_request(
    gateway: GatewayServer, account: Customer, method: str, path: str
) -> None:
    assert call(gateway, method, path, f"Bearer {account.key}").status_code == 200
    gateway.manage("delete_key", account.name, "--name", "test").ok()
    reply = call(gateway, method, path, f"Bearer {account.key}")
    assert refusal(reply) == (401, "authentication_error", "api_key_not_registered", None)


def test_deleting_one_key_leaves_the_accounts_others_alone(gateway: GatewayServer, account: Customer) -> None:
    other = account.another_key("other")
    gateway.manage("delete_key", account.name, "--name", "test").ok()
    assert call(gateway, "POST", PATH, f"Bearer {other}").status_code == 200


@pytest.mark.parametrize("purged", [False, True], ids=["with its verifier", "with its verifier purged"])
@either_plane
def test_a_key_past_its_expiry_is_expired(
    gateway: GatewayServer, account: Customer, method: str, path: str, purged: bool
) -> None:
    expire(account, purged=purged)
    reply = call(gateway, method, path, f"Bearer {account.key}")
    assert refusal(reply) == (401, "authentication_error", "api_key_expired", None)


def test_an_expired_key_that_is_deleted_is_not_registered(gateway: GatewayServer, account: Customer) -> None:
    expire(account, purged=True)
    gateway.manage("delete_key", account.name, "--name", "test").ok()
    assert refusal(call(gateway, "POST", PATH, f"Bearer {account.key}")).code == "api_key_not_registered"


def test_a_key_without_its_verifier_proves_nothing(gateway: GatewayServer, account: Customer) -> None:
    gateway.query("UPDATE accounts_apikey SET verifier = NULL WHERE account_id = %s", [hex_of(account.id)])
    assert refusal(call(gateway, "POST", PATH, f"Bearer {account.key}")).code == "api_key_not_registered"


@pytest.mark.parametrize("lifetime", ["7d", "1y", "never"])
def test_a_key_works_before_its_expiry(gateway: GatewayServer, account: Customer, lifetime: str) -> None:
    key = account.another_key(lifetime, "--expires", lifetime)
    assert call(gateway, "POST", PATH, f"Bearer {key}").status_code == 200


def test_every_key_of_an_account_spends_its_balance(account: Customer) -> None:
    answer(account, "echo")
    account.http.headers["Authorization"] = f"Bearer {account.another_key('other')}"
    assert answer(account, "echo")["usage"]["remaining_balance"] == 100 - 2 * float(HELLO_COST)


@pytest.mark.parametrize(
    "authorization", [None, "Bearer x", f"Bearer sk-gw-{BODY_43}"], ids=["missing", "malformed", "not registered"]
)
@either_plane
def test_a_retry_is_futile_and_the_token_is_not_repeated(
    gateway: GatewayServer, method: str, path: str, authorization: str | None
) -> None:
    reply = call(gateway, method, path, authorization)
    assert (reply.headers["x-should-retry"], reply.headers["WWW-Authenticate"]) == ("false", "Bearer")
    assert BODY_43 not in reply.text


def test_the_key_is_judged_before_a_byte_of_the_body_is_read(gateway: GatewayServer) -> None:
    """The announced body never arrives."""
    reply = exchange(gateway, f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n")
    assert refusal(reply).code == "authentication_error"


def test_the_key_is_judged_before_the_body_makes_sense(gateway: GatewayServer) -> None:
    with GatewaySession(gateway.origin) as http:
        assert refusal(http.post(PATH, data="{not JSON")).status == 401


@either_plane
def test_the_size_of_the_body_is_judged_before_the_key(gateway: GatewayServer, method: str, path: str) -> None:
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {32 * 1024 * 1024 + 1}\r\n\r\n"
    assert refusal(exchange(gateway, head)) == (413, "invalid_request_error", "request_too_large", None)


def test_the_key_is_judged_before_the_balance(gateway: GatewayServer, open_account: OpenAccount) -> None:
    poor = open_account(gateway, credit=None)
    expire(poor, purged=False)
    assert refusal(call(gateway, "POST", PATH, f"Bearer {poor.key}")).code == "api_key_expired"


def expire(customer: Customer, *, purged: bool) -> None:
    """Makes the account's keys expire, and with `purged` removes them as `maintain` does."""
    verifier = ", verifier = NULL" if purged else ""
    statement = f"UPDATE accounts_apikey SET expires_at = %s{verifier} WHERE account_id = %s"
    customer.gateway.query(statement, [LONG_AGO, hex_of(customer.id)])
