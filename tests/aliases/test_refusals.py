"""Requests that are refused before their alias is looked up count on the alias that they named."""

import uuid
from typing import Any

import pytest

from accounts.models import Account
from aliases import changes
from aliases.models import Alias
from aliases.targets import Target
from billing.models import NOBODY, FailureDay, RequestFailure
from billing.usage import request_failures
from billing.usage.request_failures import FailureLog
from gateway.errors import AliasNotFound, ApiError, InsufficientCredits, InvalidRequest
from gateway.observing.request_events import RequestEvent
from tests.chat import HELLO
from tests.conftest import OpenAccount
from tests.factories import new_account
from tests.patience import eventually
from tests.servers.customer import Customer

TARGET = Target("sim", "test/echo", "FRPAR")


def test_refusals_of_a_gateway_count_on_the_alias(account: Customer, open_account: OpenAccount) -> None:
    server, poor = account.gateway, open_account(account.gateway, credit=None)
    for customer, fields, status in ((account, {"max_tokens": 0}, 400), (poor, {}, 402)):
        alias = customer.http.post("/v1/aliases", json={"name": "fast", "target": "sim/test/echo/FRPAR"}).json()
        body = {"model": "alias/fast", "messages": HELLO, **fields}
        reply = customer.http.post("/v1/chat/completions", json=body)
        assert reply.status_code == status
        counted = "SELECT sum(requests) FROM billing_failureday WHERE alias_id = %s AND status = %s"
        alias_id = uuid.UUID(alias["id"]).hex
        assert eventually(lambda: server.query(counted, [alias_id, status])[0][0] == 1)  # noqa: B023  # called at once
        row = "SELECT asked FROM billing_requestfailure WHERE alias_id = %s"
        assert [asked for (asked,) in server.query(row, [alias_id])] == ["alias/fast"]


@pytest.fixture
def owner(db: None) -> Account:
    return new_account("Acme")


@pytest.fixture
def alias(owner: Account) -> Alias:
    return changes.create(owner.pk, "fast", TARGET)


def noted(log: FailureLog, account: Account, model: str, error: ApiError | None = None, **facts: Any) -> None:
    """Puts a failed request into the log."""
    event = RequestEvent("POST", "chat/completions", account_id=account.pk, model=model, **facts)
    event.answered((error or InvalidRequest("x")).status, error or InvalidRequest("x"))
    event.complete()
    log.note(event)


def counts() -> dict[uuid.UUID, int]:
    return dict(FailureDay.objects.values_list("alias_id", "requests"))


def test_a_flood_is_counted_on_its_alias_to_the_last(owner: Account, alias: Alias) -> None:
    log = FailureLog()
    for _ in range(100):
        noted(log, owner, "alias/fast", InsufficientCredits())
    log.flush()
    assert counts() == {alias.pk: 100}
    assert {*RequestFailure.objects.values_list("alias_id", flat=True)} == {alias.pk}


def test_an_alias_counts_what_its_own_account_asked_for(owner: Account, alias: Alias) -> None:
    log, other = FailureLog(), new_account("Beta")
    noted(log, other, "alias/fast")
    noted(log, owner, "alias/slow")
    noted(log, owner, "sim/test/echo")
    noted(log, owner, "alias/\0\ud800")
    log.flush()
    assert {*counts()} == {NOBODY}


def test_what_asked_for_an_alias_before_it_was_there_is_not_its_failure(owner: Account) -> None:
    log = FailureLog()
    noted(log, owner, "alias/fast", AliasNotFound("x"))
    changes.create(owner.pk, "fast", TARGET)
    log.flush()
    assert counts() == {NOBODY: 1}


def test_an_alias_that_was_looked_up_keeps_its_id(owner: Account, alias: Alias) -> None:
    """Another alias has its name by now."""
    log = FailureLog()
    noted(log, owner, "alias/fast", alias_id=alias.pk, route="sim/test/echo/FRPAR")
    changes.change(owner.pk, "fast", name="slow")
    changes.create(owner.pk, "fast", TARGET)
    log.flush()
    assert counts() == {alias.pk: 1}


def test_names_that_wait_are_bounded_and_every_request_is_counted(
    owner: Account, alias: Alias, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_failures, "MOST_WAITING", 20)
    log = FailureLog()
    for number in range(500):
        noted(log, owner, f"alias/any-{number}")
    noted(log, owner, "alias/fast")
    log.flush()
    assert counts() == {NOBODY: 501}
    noted(log, owner, "alias/fast")
    log.flush()
    assert counts() == {NOBODY: 501, alias.pk: 1}
