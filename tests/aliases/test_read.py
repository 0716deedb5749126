"""`GET /v1/aliases` and `GET /v1/aliases/{name}` work, and all seven endpoints share some rules."""

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts import keys
from accounts.models import ApiKey
from tests.aliases.caller import ALIASES, CHUNKS, ECHO, FIELDS, NOT_FOUND, Caller

ENDPOINTS = [
    ("GET", ""),
    ("POST", ""),
    ("GET", "/fast"),
    ("PATCH", "/fast"),
    ("DELETE", "/fast"),
    ("GET", "/fast/stats"),
    ("GET", "/fast/history"),
]
NAMED = ENDPOINTS[2:]
# These cannot be names; PostgreSQL could not even be queried for some.
NO_NAMES = [
    "absent",
    "-fast",
    "a" * 65,
    "a" * 5000,
    "f%20st",
    "fast%00",
    "%00",
    "fast%0A",
    "%E2%84%AA",
    "%FF",
    "fa%ED%A0%80",
]


def test_no_aliases_are_an_empty_list(caller: Caller) -> None:
    assert caller.read() == {"aliases": [], "quota": {"used": 0, "max": 5}}


def test_they_are_listed_by_name_with_the_slots_in_use(caller: Caller) -> None:
    created = [caller.create(name) for name in ("b", "c", "a")]
    body = caller.read()
    assert body["aliases"] == sorted(created, key=lambda alias: alias["name"])
    assert body["quota"] == {"used": 3, "max": 5}


def test_one_is_read_by_its_bare_name(caller: Caller) -> None:
    created = caller.create("fast")
    assert caller.read(f"{ALIASES}/fast") == created
    assert set(created) == FIELDS


def test_the_name_in_a_path_may_be_in_any_case(caller: Caller) -> None:
    created = caller.create("fast")
    assert caller.read(f"{ALIASES}/FaSt") == created
    assert caller.read(f"{ALIASES}/FAST/stats")["alias"] == created
    assert caller.read(f"{ALIASES}/FAST/history")["alias"] == created
    assert caller.patch("FAST", name="quick").body["id"] == created["id"]
    assert caller.delete("QUICK").status == 204


@pytest.mark.parametrize("path", ["/v1/aliases{}", "/v1/aliases{}/", "/api/v1/aliases{}", "/api/v1/aliases{}/"])
def test_paths_have_four_forms(caller: Caller, path: str) -> None:
    caller.create("fast")
    for tail in ("", "/fast", "/fast/stats", "/fast/history"):
        assert caller.get(path.format(tail)).status == 200
    assert caller.send("PATCH", path.format("/fast"), {"name": "quick"}).status == 200
    assert caller.send("DELETE", path.format("/quick")).status == 204


def test_every_key_of_the_account_sees_the_same(caller: Caller) -> None:
    created = caller.create("fast")
    other = Caller.of(caller.account, "other")
    assert other.read()["aliases"] == [created]
    assert other.patch("fast", target=CHUNKS).body["target"] == CHUNKS
    assert caller.read(f"{ALIASES}/fast")["target"] == CHUNKS


def test_another_accounts_alias_is_nowhere(caller: Caller, stranger: Caller) -> None:
    stranger.create("fast")
    assert caller.read() == {"aliases": [], "quota": {"used": 0, "max": 5}}
    for method, tail in NAMED:
        foreign = caller.send(method, f"{ALIASES}{tail}", {"name": "mine", "target": ECHO})
        absent = caller.send(method, f"{ALIASES}{tail.replace('fast', 'none')}", {"name": "mine", "target": ECHO})
        assert foreign.refusal == absent.refusal == NOT_FOUND
        assert foreign.message == absent.message.replace("none", "fast")
    assert stranger.names() == ["fast"]


@pytest.mark.parametrize("name", NO_NAMES)
def test_a_malformed_name_is_not_found(caller: Caller, name: str) -> None:
    caller.create("fast")
    for method, tail in NAMED:
        reply = caller.send(method, f"{ALIASES}{tail.replace('fast', name)}", {"target": ECHO})
        assert reply.refusal == NOT_FOUND
        assert len(reply.message) < 400
    assert caller.names() == ["fast"]


@pytest.mark.parametrize(
    "path", ["/v1/aliases//", "/v1/aliases//stats", "/v1/aliases/fast/other", "/v1/aliases/a/b/stats"]
)
def test_other_paths_are_unknown(caller: Caller, path: str) -> None:
    assert caller.get(path).refusal == (404, "not_found", "not_found", None)


@pytest.mark.parametrize(("method", "tail"), ENDPOINTS)
def test_a_request_without_a_key_is_refused(caller: Caller, method: str, tail: str) -> None:
    caller.create("fast")
    response = Client().generic(method, f"{ALIASES}{tail}")
    assert response.status_code == 401
    assert response.json()["error"]["code"] == "authentication_error"
    assert caller.names() == ["fast"]


@pytest.mark.parametrize(("method", "tail"), ENDPOINTS)
def test_nor_with_one_that_is_malformed_unknown_expired_or_deleted(caller: Caller, method: str, tail: str) -> None:
    path = f"{ALIASES}{tail}"

    def code(token: str) -> str:
        reply = Caller(caller.account, caller.key, token).send(method, path, {"name": "x", "target": ECHO})
        status, kind, code, param = reply.refusal
        assert (status, kind, param) == (401, "authentication_error", None)
        return str(code)

    assert code("sk-gw-short") == "api_key_malformed"
    assert code("sk-gw-" + "x" * 43) == "api_key_not_registered"
    ApiKey.objects.filter(pk=caller.key.pk).update(expires_at=timezone.now())
    assert code(caller.token) == "api_key_expired"
    keys.delete(caller.key)
    assert code(caller.token) == "api_key_not_registered"


@pytest.mark.parametrize(
    ("tail", "allowed"),
    [
        ("", {"GET", "POST", "HEAD", "OPTIONS"}),
        ("/fast", {"GET", "PATCH", "DELETE", "HEAD", "OPTIONS"}),
        ("/fast/stats", {"GET", "HEAD", "OPTIONS"}),
        ("/fast/history", {"GET", "HEAD", "OPTIONS"}),
    ],
)
def test_other_methods_are_refused_with_those_that_work(caller: Caller, tail: str, allowed: set[str]) -> None:
    caller.create("fast")
    for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "TRACE"} - allowed:
        reply = caller.send(method, f"{ALIASES}{tail}", {"name": "x", "target": ECHO})
        assert reply.refusal == (405, "invalid_request_error", "method_not_allowed", None)
        assert set(reply.headers["Allow"].split(", ")) == allowed
    assert caller.names() == ["fast"]


@pytest.mark.parametrize("tail", ["", "/fast", "/fast/stats", "/fast/history"])
def test_head_and_options_have_no_body(caller: Caller, tail: str) -> None:
    caller.create("fast")
    head = caller.send("HEAD", f"{ALIASES}{tail}")
    assert (head.status, head.body) == (200, None)
    options = caller.send("OPTIONS", f"{ALIASES}{tail}")
    assert (options.status, options.body) == (204, None)


def test_the_list_costs_three_queries_however_long(caller: Caller) -> None:
    for number in range(4):
        caller.create(f"n{number}")
    with CaptureQueriesContext(connection) as queries:
        caller.read()
    # Queries: the key, the account's own limit, the aliases.
    assert len([query for query in queries if "SELECT" in query["sql"]]) == 3
