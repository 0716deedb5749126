"""A rule of the edge holds for both handlers, Django's and the fast path's."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from django.test import Client

from gateway.edge import rules
from gateway.edge.endpoint import WsgiEndpoint
from gateway.edge.responses import PlainResponse
from gateway.errors import InvalidRequest
from tests.chat import PATH

HOST = "localhost"


def environ(**fields: str) -> dict[str, Any]:
    return {"REQUEST_METHOD": "POST", "PATH_INFO": PATH, "HTTP_HOST": HOST, "CONTENT_LENGTH": "2"} | fields


@pytest.mark.parametrize(
    "fields",
    [
        {"HTTP_HOST": "foreign.example"},
        {"CONTENT_LENGTH": "+5"},
        {"CONTENT_LENGTH": "\xb2"},
        {"CONTENT_LENGTH": "9" * 30},
    ],
)
def test_the_fast_path_leaves_a_request_that_breaks_a_rule_to_django(fields: dict[str, str]) -> None:
    assert rules.is_allowed(environ())
    assert not rules.is_allowed(environ(**fields))


def test_a_new_rule_holds_for_both_handlers(monkeypatch: pytest.MonkeyPatch, client: Client) -> None:
    def refuse(_environ: Mapping[str, Any]) -> None:
        raise InvalidRequest("The new rule refuses it.")

    monkeypatch.setattr(rules, "require_allowed_length", refuse)
    assert not rules.is_allowed(environ())
    reply = client.post(PATH, b"{}", content_type="application/json", headers={"Host": HOST})
    assert (reply.status_code, reply.json()["error"]["message"]) == (400, "The new rule refuses it.")


def test_a_connection_that_cannot_be_returned_is_a_500_in_json_on_both_ways(
    monkeypatch: pytest.MonkeyPatch, client: Client
) -> None:
    def fail() -> None:
        raise RuntimeError("a secret of the pool")

    monkeypatch.setattr(rules, "release_all", fail)
    client.raise_request_exception = False
    reply = client.post(PATH, b"{}", content_type="application/json", headers={"Host": HOST})
    started: list[tuple[str, dict[str, str]]] = []
    endpoint = WsgiEndpoint("chat/completions", lambda _environ: PlainResponse(200, {}, b"{}"))
    body = endpoint(environ(), lambda status, headers: started.append((status, dict(headers))))
    ((status, headers),) = started
    assert (reply.status_code, status) == (500, "500 Internal Server Error")
    assert json.loads(b"".join(body)) == reply.json()
    assert reply.json()["error"]["code"] == "internal_server_error"
    assert headers["X-Request-Id"].startswith("req-")
    assert reply.headers["X-Request-Id"].startswith("req-")
