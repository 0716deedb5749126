"""Requests that were refused or failed get a row each, or a few in a flood, and exact counts by day."""

import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import copy
from datetime import timedelta
from typing import Any, NoReturn

import pytest
import requests
from django.db import IntegrityError, OperationalError, connection
from django.utils import timezone

from billing.models import NOBODY, FailureDay, RequestFailure
from billing.usage import request_failures
from billing.usage.request_failures import MOST_IN_A_BEAT, FailureLog, drop_before
from gateway.errors import ApiError, InsufficientCredits, MissingAuthorization, NotFound
from gateway.observing.request_events import RequestEvent
from tests.chat import HELLO
from tests.conftest import OpenAccount, StartGateway
from tests.patience import eventually
from tests.rawhttp import exchange
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer

COLUMNS = (
    "account_id key_id endpoint asked provider model region status outcome code message upstream_status "
    "duration_ms has_record repeated"
)


def row_of(server: GatewayServer, request_id: str) -> dict[str, Any]:
    """Returns the row, once the worker's beat has written it."""
    found: list[tuple[Any, ...]] = []
    wanted = uuid.UUID(request_id.removeprefix("req-"))

    def is_there() -> bool:
        sql = f"SELECT {COLUMNS.replace(' ', ', ')} FROM billing_requestfailure WHERE id = %s"
        found.extend(server.query(sql, [wanted.hex]))
        return bool(found)

    assert eventually(is_there), request_id
    return dict(zip(COLUMNS.split(), found[0], strict=True))


def chat(customer: Customer, model: str, **fields: Any) -> requests.Response:
    body = {"model": model, "messages": HELLO, **fields}
    return customer.http.post("/v1/chat/completions", json=body)


def test_a_refusal_leaves_a_row_that_says_what_was_asked_and_answered(account: Customer) -> None:
    reply = chat(account, "sim/test/no-such-model")
    row = row_of(account.gateway, reply.headers["X-Request-Id"])
    assert str(row["account_id"]).replace("-", "") == account.id.replace("-", "")
    assert row["key_id"]
    assert (row["endpoint"], row["asked"]) == ("chat/completions", "sim/test/no-such-model")
    assert (row["status"], row["outcome"], row["code"]) == (404, "refused", "not_found")
    assert row["message"] == reply.json()["error"]["message"]
    assert (row["provider"], row["upstream_status"], row["repeated"]) == ("", None, 0)
    assert not row["has_record"]
    assert row["duration_ms"] >= 0


def test_a_failed_provider_is_named_with_its_status(account: Customer) -> None:
    reply = chat(account, "sim/test/status-500")
    assert reply.status_code == 503
    row = row_of(account.gateway, reply.headers["X-Request-Id"])
    assert (row["provider"], row["model"], row["region"]) == ("sim", "test/status-500", "FRPAR")
    assert (row["outcome"], row["code"], row["upstream_status"]) == ("failed", "provider_error", 500)


def test_a_broken_stream_has_a_failure_in_addition_to_its_record(account: Customer) -> None:
    reply = chat(account, "sim/test/drop", stream=True)
    assert reply.status_code == 200
    row = row_of(account.gateway, reply.headers["X-Request-Id"])
    assert (row["status"], row["outcome"], row["code"]) == (200, "broken", "provider_error")
    assert row["has_record"]
    # It is one id, written in two ways.
    assert reply.headers["X-Generation-Id"] == reply.headers["X-Request-Id"].replace("req-", "gen-")
    records = account.http.get("/v1/generations").json()["data"]
    assert [record["generation_id"] for record in records] == [reply.headers["X-Generation-Id"]]


def test_every_request_id_of_an_error_can_be_found(account: Customer) -> None:
    server = account.gateway
    chat(account, "sim/test/echo")
    refused = {
        "no key": requests.get(f"{server.base_url}/models", timeout=9),
        "unknown path": account.http.get("/v1/nothing"),
        "a path beside the API": account.http.post("/chat/completions", json={}),
        "no JSON": account.http.post("/v1/chat/completions", data=b"{"),
        "broken HTTP": exchange(server, "NONSENSE\r\n\r\n"),
    }
    rows = {name: row_of(server, reply.headers["X-Request-Id"]) for name, reply in refused.items()}
    assert {name: row["status"] for name, row in rows.items()} == {
        "no key": 401,
        "unknown path": 404,
        "a path beside the API": 404,
        "no JSON": 400,
        "broken HTTP": 400,
    }
    assert [name for name, row in rows.items() if row["account_id"] is not None] == ["no JSON"]
    assert len(account.http.get("/v1/generations").json()["data"]) == 1


def test_what_a_worker_noted_last_is_written_when_it_stops(
    start_gateway: StartGateway, open_account: OpenAccount
) -> None:
    server = start_gateway()
    customer = open_account(server)
    replies = [chat(customer, "sim/test/no-such-model") for _ in range(3)]
    server.stop()
    for reply in replies:
        assert row_of(server, reply.headers["X-Request-Id"])["status"] == 404


def test_an_expired_key_is_known_by_its_account(account: Customer) -> None:
    account.gateway.query(
        "UPDATE accounts_apikey SET expires_at = '2026-01-01 00:00:00' WHERE account_id = %s",
        [uuid.UUID(account.id).hex],
    )
    for reply in (chat(account, "sim/test/echo"), account.http.get("/v1/models")):
        row = row_of(account.gateway, reply.headers["X-Request-Id"])
        assert (row["status"], row["code"]) == (401, "api_key_expired")
        assert row["account_id"] is not None


def failed(account_id: uuid.UUID | None = None, error: ApiError | None = None, **facts: Any) -> RequestEvent:
    """Builds the event of a request that ended with an error."""
    event = RequestEvent("POST", "chat/completions", account_id=account_id, **facts)
    event.answered((error or MissingAuthorization()).status, error or MissingAuthorization())
    event.complete()
    return event


def test_a_message_keeps_the_address_of_the_gateways_own_page(db: None) -> None:
    log = FailureLog()
    log.note(failed(None, InsufficientCredits()))
    log.note(failed(None, NotFound("See http://10.0.0.7/credit.")))
    log.flush()
    assert [row.message for row in RequestFailure.objects.order_by("pk")] == [str(InsufficientCredits()), "See […]"]


def test_secrets_and_control_characters_are_not_kept_and_texts_are_cut(db: None) -> None:
    secret = "sk-gw-" + "aB3" * 14 + "x"
    log = FailureLog()
    long = "word " * 1000
    log.note(failed(None, NotFound(f"Model '{secret}\0\ud800\n' is not offered. {long}"), model=f"{secret}\x1b\0"))
    log.note(failed(None, NotFound("x"), model="m" * 599 + secret))
    log.flush()
    rows = list(RequestFailure.objects.all())
    for row in rows:
        assert secret[:20] not in row.asked + row.message
        assert row.asked.isprintable()
        assert row.message.isprintable()
        assert len(row.asked) <= 300
        assert len(row.message) <= 600
    assert {row.message for row in rows} >= {"x"}


def test_a_flood_leaves_few_rows_and_exact_counts(db: None) -> None:
    log, flooded, other = FailureLog(), uuid.uuid4(), uuid.uuid4()
    for _ in range(5000):
        log.note(failed(flooded, InsufficientCredits(), model="sim/test/echo"))
    log.note(failed(other, InsufficientCredits()))
    log.note(failed(flooded, NotFound()))
    log.flush()
    rows = RequestFailure.objects.filter(account_id=flooded, code="insufficient_credits").order_by("created_at", "id")
    assert len(rows) == MOST_IN_A_BEAT
    assert [row.repeated for row in rows] == [0] * (MOST_IN_A_BEAT - 1) + [5000 - MOST_IN_A_BEAT]
    assert RequestFailure.objects.filter(account_id=other).count() == 1
    assert RequestFailure.objects.filter(account_id=flooded, code="not_found").count() == 1
    for _ in range(300):
        log.note(failed(flooded, InsufficientCredits(), model="sim/test/echo"))
    log.flush()
    assert len(rows.all()) == MOST_IN_A_BEAT + 1  # one per beat while it lasts
    assert rows.order_by("created_at", "id").last().repeated == 299  # type: ignore[union-attr]
    log.flush()
    log.note(failed(flooded, InsufficientCredits(), model="sim/test/echo"))
    log.note(failed(flooded, InsufficientCredits(), model="sim/test/echo"))
    log.flush()
    assert len(rows.all()) == MOST_IN_A_BEAT + 3  # it is over
    day = FailureDay.objects.get(account_id=flooded, status=402)
    assert (day.requests, day.outcome, day.key_id) == (5302, "refused", NOBODY)


FLOOD = 300


def test_a_flood_of_refusals_delays_no_request_and_is_counted_completely(
    account: Customer, open_account: OpenAccount
) -> None:
    """There are many clients without credit, and one with; only the worker's beat waits for counts."""
    server, poor = account.gateway, open_account(account.gateway, credit=None)
    began = time.monotonic()
    with ThreadPoolExecutor(8) as clients:
        refusals = [clients.submit(chat, poor, "sim/test/echo") for _ in range(FLOOD)]
        served = [chat(account, "sim/test/echo").status_code for _ in range(5)]
        assert {refusal.result().status_code for refusal in refusals} == {402}
    seconds = time.monotonic() - began
    assert served == [200] * 5
    poor_id = uuid.UUID(poor.id).hex

    def counted() -> Any:
        sql = "SELECT coalesce(sum(requests), 0) FROM billing_failureday WHERE account_id = %s"
        return server.query(sql, [poor_id])[0][0]

    assert eventually(lambda: counted() == FLOOD)
    ((rows, repeated),) = server.query(
        "SELECT count(*), sum(repeated) FROM billing_requestfailure WHERE account_id = %s", [poor_id]
    )
    assert rows + repeated == FLOOD
    assert rows <= MOST_IN_A_BEAT * (seconds + 2)


@contextmanager
def away() -> Iterator[None]:
    """Makes every statement fail, as if the database were lost."""

    def refuse(*_: object) -> NoReturn:
        raise OperationalError("the database is away")

    with connection.execute_wrapper(refuse):
        yield


def test_what_cannot_be_written_waits_and_is_bounded_and_counted_once(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_failures, "MOST_WAITING", 20)
    log = FailureLog()
    with away():
        for _ in range(5):
            for _ in range(15):
                account_id = uuid.uuid4()
                for _ in range(3):
                    log.note(failed(account_id))
            with pytest.raises(OperationalError):
                log.flush()
    log.flush()
    assert RequestFailure.objects.count() == 40  # the rows of the first try, and all that may wait after them
    assert sum(FailureDay.objects.values_list("requests", flat=True)) == 5 * 15 * 3


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_commit_whose_answer_is_lost_counts_once(db: None, is_committed: bool) -> None:
    """A second log stands for the transaction that was committed although its answer was lost."""
    log, event = FailureLog(), failed(uuid.uuid4())
    log.note(event)
    with away(), pytest.raises(OperationalError):
        log.flush()
    if is_committed:
        committed = FailureLog()
        committed.note(event)
        committed.flush()
    log.flush()
    assert RequestFailure.objects.count() == 1
    assert FailureDay.objects.get().requests == 1


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_failure_with_the_id_of_another_is_kept_with_all_that_is_written_beside_it(db: None, place: int) -> None:
    """A request that took over an Idempotency-Key has the id of the first, whose worker may be alive after all."""
    first, second = failed(uuid.uuid4()), failed(uuid.uuid4())
    second.id = first.id
    others = [failed(uuid.uuid4()) for _ in range(2)]
    frozen, log = FailureLog(), FailureLog()
    log.note(first)
    log.flush()
    for event in (*others[:place], second, *others[place:]):
        frozen.note(event)
    frozen.flush()
    accounts = {event.account_id for event in (first, second, *others)}
    assert set(RequestFailure.objects.values_list("account_id", flat=True)) == accounts
    assert RequestFailure.objects.get(pk=first.id).account_id == first.account_id
    assert dict(FailureDay.objects.values_list("account_id", "requests")) == dict.fromkeys(accounts, 1)


def test_what_the_database_refuses_is_let_go_with_an_error(db: None) -> None:
    log, impossible = FailureLog(), copy(failed())  # the process's own log has noted the other
    impossible.status = -1
    log.note(impossible)
    with pytest.raises(IntegrityError):
        log.flush()
    log.note(failed())
    log.flush()
    assert FailureDay.objects.get().requests == 1


def test_old_rows_go_in_batches_and_counts_stay(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_failures, "DROPPED_AT_ONCE", 2)
    log = FailureLog()
    for _ in range(6):
        log.note(failed())
    log.flush()
    ids = list(RequestFailure.objects.values_list("pk", flat=True))
    old = timezone.now() - timedelta(days=31)
    RequestFailure.objects.filter(pk__in=ids[:5]).update(created_at=old)
    drop: Callable[[], bool] = request_failures.drop_some
    assert [drop(), drop(), drop(), drop()] == [True, True, False, False]
    assert list(RequestFailure.objects.values_list("pk", flat=True)) == ids[5:]
    assert drop_before(timezone.now()) == 1
    assert FailureDay.objects.get().requests == 6
