"""A completion takes two round trips to the database; each query is listed with its purpose."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, connections
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from catalogue import loader
from catalogue.routing import snapshot
from gateway.fastpath import connections as connections_to_providers
from gateway.observing.request_events import begin
from inference import idempotency
from inference.api import ENDPOINTS
from inference.wire_forms.chat import ChatForm
from tests.catalogue import catalogue_for
from tests.factories import forget_snapshot, mismatches, new_account, new_key
from tests.servers.simulator import Simulator

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "settlement"])

WHO = ["SELECT accounts_policy"]  # policies, key, account and balance, by the fingerprint of the token
SETTLE = {
    # It is one statement: lock the wallet, insert the record, move the wallet, insert the entry, return the balance.
    "postgresql": ["WITH"],
    # SQLite runs a transaction instead: a statement in this process takes no round trip.
    "sqlite": [
        "BEGIN IMMEDIATE",  # takes the only write lock, so that nothing interferes below
        "SELECT billing_wallet",  # the balance and the number of the last entry
        "SELECT billing_generation",  # has it been settled before?
        "INSERT billing_generation",  # the record
        "UPDATE billing_wallet",  # the new balance and number
        "INSERT billing_ledgerentry",  # the entry that explains it
        "COMMIT",
    ],
}
VERB_AND_TABLE = re.compile(r'\s*(WITH|BEGIN \w+|COMMIT|\w+)(?:.*?(?:FROM|INTO|(?<=UPDATE))\s+"?(\w+))?', re.DOTALL)


@pytest.fixture
def token(simulator: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Issues a key of an account with credit, and seeds the simulator's models."""
    # On a busy machine a settlement may take as long as one that waited for its wallet, which then counts as crowded.
    monkeypatch.setattr("billing.ledger.booking.CROWDED_AFTER_SECONDS", 3600)
    file = tmp_path / "catalogue.json"
    file.write_text(json.dumps(catalogue_for(simulator.url)))
    loader.seed([file])
    forget_snapshot()
    snapshot.refresh()
    yield new_key(new_account(credit="100"))[1]
    forget_snapshot()
    connections_to_providers.close_idle(0)


def ask(token: str, *, idempotency_key: str | None = None, **fields: object) -> tuple[int, str]:
    """Requests one chat completion, reads it to its end, and returns its status and body."""
    headers = {"Authorization": f"Bearer {token}"}
    if idempotency_key is not None:
        headers["Idempotency-Key"] = idempotency_key
    response = Client().post(
        "/v1/chat/completions",
        {"model": "sim/test/echo", "messages": [{"role": "user", "content": "Hello"}], **fields},
        content_type="application/json",
        headers=headers,
    )
    body = b"".join(response) if response.streaming else response.content
    response.close()
    return response.status_code, body.decode()


def complete(token: str, *, idempotency_key: str | None = None, **fields: object) -> str:
    status, body = ask(token, idempotency_key=idempotency_key, **fields)
    assert status == 200, body
    return body


def shape(captured: CaptureQueriesContext) -> list[str]:
    """Returns each query as its verb and its first table."""
    found = []
    for query in captured.captured_queries:
        match = VERB_AND_TABLE.match(query["sql"])
        assert match is not None
        verb, table = match.groups()
        found.append(verb if verb == "WITH" or table is None else f"{verb} {table}")
    return found


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_completion_costs_one_look_and_one_settlement(token: str, stream: bool) -> None:
    complete(token)  # writes the route's terms, once for all its requests
    executed: list[str] = []  # Django logs only its own cursors' statements, and no COMMIT

    def note(execute: Callable[..., Any], sql: str, *arguments: Any) -> Any:
        executed.append(sql)
        return execute(sql, *arguments)

    with (
        CaptureQueriesContext(connection) as looked,
        CaptureQueriesContext(connections["settlement"]) as settled,
        connections["settlement"].execute_wrapper(note),
    ):
        answer = complete(token, stream=stream)
    assert "remaining_balance" in answer
    assert shape(looked) == WHO
    assert SETTLE[connection.vendor] == (shape(settled) or [sql.split()[0] for sql in executed])
    assert mismatches() == []


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_an_idempotency_key_costs_one_statement_more_and_its_repetition_one_look(token: str, stream: bool) -> None:
    complete(token)
    with CaptureQueriesContext(connection) as looked:
        complete(token, idempotency_key="one", stream=stream)
    with CaptureQueriesContext(connection) as looked_again:
        assert ask(token, idempotency_key="one", stream=stream)[0] == 409
    idempotency.write_ends()
    assert shape(looked) == [*WHO, "INSERT billing_idempotentrequest"]
    # One SELECT reads the row and what the books know of it. The first table that it names is in a subquery.
    assert shape(looked_again) == [*shape(looked), "SELECT billing_checkpoint"]


def test_a_failure_with_an_idempotency_key_frees_it_by_one_statement_more(token: str) -> None:
    with CaptureQueriesContext(connection) as looked:
        assert ask(token, idempotency_key="one", model="sim/test/unpriced")[0] == 503
    changed = [each for each in shape(looked) if not each.startswith(("BEGIN", "COMMIT"))]
    assert changed == [*WHO, "INSERT billing_idempotentrequest", "DELETE billing_idempotentrequest"]


def test_a_balance_that_little_is_left_of_is_looked_at_once_more(token: str) -> None:
    """The fixture `token` seeds the catalogue."""
    scarce = new_key(new_account(credit="0.01"))[1]
    with CaptureQueriesContext(connection) as looked:
        complete(scarce)
    assert shape(looked) == [*WHO, "SELECT billing_wallet"]


def test_a_refusal_costs_one_look(token: str) -> None:
    with (
        CaptureQueriesContext(connection) as looked,
        CaptureQueriesContext(connections["settlement"]) as settled,
    ):
        response = Client().post(
            "/v1/chat/completions",
            {"model": "sim/test/unpriced", "messages": [{"role": "user", "content": "Hello"}]},
            content_type="application/json",
            headers={"Authorization": f"Bearer {token}"},
        )
    assert response.status_code == 503
    assert (shape(looked), shape(settled)) == (WHO, [])


def test_an_address_known_to_be_beyond_its_limit_costs_nothing(token: str, settings: Settings) -> None:
    settings.GATEWAY_IP_RATE = "1/h"

    def statuses(*, address: str) -> tuple[int, list[str]]:
        request = RequestFactory().post(
            "/v1/chat/completions",
            {"model": "sim/test/unpriced", "messages": [{"role": "user", "content": "Hello"}]},
            content_type="application/json",
            headers={"Authorization": f"Bearer {token}"},
            REMOTE_ADDR=address,
        )
        begin(request.META, ChatForm.path)
        with CaptureQueriesContext(connection) as looked:
            return ENDPOINTS[ChatForm.path](request.META).status, shape(looked)

    asked = [statuses(address="192.0.2.201") for _ in range(3)]
    assert asked == [(503, WHO), (429, WHO), (429, [])]
    assert statuses(address="192.0.2.202") == (503, WHO)
