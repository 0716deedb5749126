"""A rule of the edge holds for both handlers, Django's and the fast path's."""

from collections.abc import Mapping
from typing import Any

import pytest
from django.test import Client

from gateway.edge import rules
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
