"""A request with an `Idempotency-Key` is served once, whatever happens to its answer (docs/api.md#idempotency)."""

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from tests import bills
from tests.chat import HELLO, PATH, question
from tests.conftest import OpenAccount, StartGateway
from tests.envelope import faulty_field, message, refusal
from tests.inference.recovery import HELD, SHORT_WAITS, catalogue, let_go, locked, until_checkpointed, waiting
from tests.patience import eventually
from tests.rawhttp import connect, exchange
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer
from tests.servers.lossy_proxy import LossyProxy
from tests.servers.simulator import Simulator

pytestmark = pytest.mark.also_fastpath_off

LONG_AGO = "2026-01-01 00:00:00"
IN_PROGRESS = (409, "invalid_request_error", "idempotency_in_progress", None)
REPLAYED = (409, "invalid_request_error", "idempotency_replayed", None)
REUSED = (409, "invalid_request_error", "idempotency_key_reused", None)
MESSAGES = "/v1/messages"
ENDPOINTS: dict[str, dict[str, Any]] = {
    PATH: question("echo"),
    "/v1/completions": {"model": "sim/test/echo", "prompt": "hello there"},
    "/v1/embeddings": {"model": "sim/test/embedding", "input": "hello there"},
    "/v1/responses": {"model": "sim/test/echo", "input": "hello there"},
    MESSAGES: {"model": "sim/test/echo", "messages": HELLO, "max_tokens": 16},
}


@pytest.fixture(scope="module")
def server(start_shared_gateway: StartGateway, simulator: Simulator) -> GatewayServer:
    """Starts a gateway of two workers, so that repeated requests reach another one."""
    return start_shared_gateway(catalogue=catalogue(simulator), WEB_CONCURRENCY="2", **SHORT_WAITS)


@pytest.fixture
def customer(server: GatewayServer, open_account: OpenAccount) -> Customer:
    return open_account(server)


def send(customer: Customer, body: dict[str, Any], name: str = "one", path: str = PATH) -> requests.Response:
    return customer.http.post(path, json=body, headers={"Idempotency-Key": name})


def rows(customer: Customer) -> list[tuple[Any, ...]]:
    """Returns id and `is_billed` of each use of an Idempotency-Key by this account, oldest first."""
    return customer.gateway.query(
        "SELECT i.id, i.is_billed FROM billing_idempotentrequest i JOIN accounts_apikey k ON k.id = i.key_id "
        "WHERE k.account_id = %s ORDER BY i.created_at",
        [bills.hex_of(customer.id)],
    )


def as_if_vanished(customer: Customer) -> None:
    """Makes all uses old, as if nothing had renewed them."""
    customer.gateway.query("UPDATE billing_idempotentrequest SET beat_at = %s", [LONG_AGO])


def held(*, stream: bool = False) -> dict[str, Any]:
    return question("held", stream=stream, max_tokens=16)


@contextmanager
def running(customer: Customer, simulator: Simulator, *, stream: bool = False) -> "Iterator[dict[str, Any]]":
    """Runs a request that is held upstream within the block, and lets it end after it. Yields its body."""
    body = held(stream=stream)
    calls_before = simulator.stats(HELD)["calls"]  # calls of workers that were killed may still be `open`
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(send, customer, body)
        try:
            assert eventually(lambda: simulator.stats(HELD)["calls"] > calls_before)
            yield body
        finally:
            let_go(simulator)
        assert first.result().status_code == 200


@pytest.mark.also_sqlite
@pytest.mark.parametrize("path", ENDPOINTS, ids=lambda path: path.removeprefix("/v1/"))
def test_a_repetition_is_refused_and_names_the_first(customer: Customer, path: str) -> None:
    first = send(customer, ENDPOINTS[path], path=path)
    again = send(customer, ENDPOINTS[path], path=path)
    assert first.status_code == 200
    assert (again.status_code, again.json()["error"]["code"]) == (409, "idempotency_replayed")
    assert again.headers["X-Generation-Id"] == first.headers["X-Generation-Id"]
    assert first.headers["X-Generation-Id"] in message(again)
    assert again.headers["x-should-retry"] == "false"
    assert len(bills.debits(customer)) == 1


def test_a_stream_counts_like_a_whole_answer(customer: Customer) -> None:
    body = question("echo", stream=True)
    first = send(customer, body)
    assert (first.status_code, refusal(send(customer, body))) == (200, REPLAYED)
    assert len(bills.debits(customer)) == 1


def test_each_key_endpoint_and_api_key_has_its_own(customer: Customer) -> None:
    sent = [send(customer, ENDPOINTS[path], path=path) for path in ENDPOINTS]
    sent.append(send(customer, ENDPOINTS[PATH], "two"))
    customer.http.headers["Authorization"] = f"Bearer {customer.another_key('another')}"
    sent.append(send(customer, ENDPOINTS[PATH]))
    assert [reply.status_code for reply in sent] == [200] * len(sent)
    assert len(bills.debits(customer)) == len(sent)


def test_requests_without_a_key_leave_no_row(customer: Customer) -> None:
    assert [customer.http.post(PATH, json=question("echo")).status_code for _ in range(2)] == [200, 200]
    assert rows(customer) == []


def test_a_request_that_only_counts_ignores_the_key(customer: Customer) -> None:
    path, body = f"{MESSAGES}/count_tokens", {"model": "sim/test/echo", "messages": HELLO}
    assert [send(customer, body, path=path).status_code for _ in range(2)] == [200, 200]
    assert rows(customer) == []


@pytest.mark.parametrize("value", [b"", b"a" * 256, b"tab\tin it", b"\xfcber"], ids=repr)
def test_a_bad_key_is_refused_by_name(customer: Customer, value: bytes) -> None:
    reply = customer.http.post(PATH, json=question("echo"), headers={"Idempotency-Key": value})
    assert faulty_field(reply) == "Idempotency-Key"
    assert bills.untouched(customer)


@pytest.mark.parametrize("value", [b"\x7f", b"\x01", b"a\0b", b"a\rb"], ids=repr)
def test_a_key_that_http_does_not_allow_is_a_malformed_request(customer: Customer, value: bytes) -> None:
    head = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {customer.key}\r\nContent-Length: 0\r\n"
    reply = exchange(customer.gateway, head.encode() + b"Idempotency-Key: " + value + b"\r\n\r\n")
    assert refusal(reply) == (400, "invalid_request_error", "invalid_request_error", None)
    assert message(reply) == "The HTTP request is malformed."
    assert reply.headers["Connection"] == "close"
    assert bills.untouched(customer)


@pytest.mark.parametrize("value", ["a", "~" * 255, "words with spaces"])
def test_printable_keys_are_taken(customer: Customer, value: str) -> None:
    assert send(customer, question("echo"), value).status_code == 200


@pytest.mark.also_sqlite
def test_another_body_is_refused_during_and_after_the_first(customer: Customer, simulator: Simulator) -> None:
    other = question("echo")
    with running(customer, simulator):
        assert refusal(send(customer, other)) == REUSED
    assert refusal(send(customer, other)) == REUSED
    assert len(bills.debits(customer)) == 1


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_while_the_first_runs_a_repetition_waits(customer: Customer, simulator: Simulator, stream: bool) -> None:
    with running(customer, simulator, stream=stream) as body:
        again = send(customer, body)
        assert refusal(again) == IN_PROGRESS
        assert again.headers["Retry-After"] == "1"
        assert "x-should-retry" not in again.headers
    assert refusal(send(customer, body)) == REPLAYED
    assert len(bills.debits(customer)) == 1


@pytest.mark.also_sqlite
def test_of_many_at_the_same_moment_one_is_served(customer: Customer) -> None:
    many = 12
    together = threading.Barrier(many)

    def one() -> requests.Response:
        with requests.Session() as session:
            together.wait()
            headers = {"Authorization": f"Bearer {customer.key}", "Idempotency-Key": "one"}
            return session.post(customer.gateway.origin + PATH, json=question("echo"), headers=headers, timeout=60)

    with ThreadPoolExecutor(many) as pool:
        replies = [future.result() for future in [pool.submit(one) for _ in range(many)]]
    assert sorted(reply.status_code for reply in replies) == [200] + [409] * (many - 1)
    assert {refusal(reply) for reply in replies if reply.status_code == 409} <= {IN_PROGRESS, REPLAYED}
    assert len(bills.debits(customer)) == 1


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("slug", ["html", "drop-at-once", "unknown", "unpriced", "negative-usage"])
def test_a_key_is_free_after_a_failure_without_a_bill(customer: Customer, slug: str, stream: bool) -> None:
    body = question(slug, stream=stream)
    first, second = send(customer, body), send(customer, body)
    assert first.status_code == second.status_code
    assert 409 not in {first.status_code, second.status_code}
    assert rows(customer) == []
    assert send(customer, question("echo")).status_code == 200
    assert bills.debits(customer) != []


def test_a_key_is_free_after_a_balance_that_was_too_low(server: GatewayServer, open_account: OpenAccount) -> None:
    customer = open_account(server, credit=None)
    assert send(customer, question("echo")).status_code == 402
    server.manage("grant_credit", customer.name, "10", "--reference", "first").ok()
    assert send(customer, question("echo")).status_code == 200
    assert len(bills.debits(customer)) == 1


def test_a_suspended_account_is_refused_before_its_key_is_claimed(customer: Customer) -> None:
    customer.gateway.manage("suspend_account", customer.name, "--reason", "unpaid").ok()
    assert refusal(send(customer, question("echo"))) == (403, "permission_error", "account_suspended", None)
    assert rows(customer) == []
    customer.gateway.manage("suspend_account", customer.name, "--lift").ok()
    assert send(customer, question("echo")).status_code == 200
    assert len(bills.debits(customer)) == 1


def test_a_suspended_account_does_not_learn_of_a_replay(customer: Customer) -> None:
    assert send(customer, question("echo")).status_code == 200
    customer.gateway.manage("suspend_account", customer.name, "--reason", "unpaid").ok()
    assert refusal(send(customer, question("echo"))) == (403, "permission_error", "account_suspended", None)
    customer.gateway.manage("suspend_account", customer.name, "--lift").ok()
    assert refusal(send(customer, question("echo"))) == REPLAYED


def test_a_deleted_key_claims_nothing(customer: Customer) -> None:
    customer.another_key("other")
    customer.gateway.manage("delete_key", customer.name, "--name", "test").ok()
    assert send(customer, question("echo")).status_code == 401
    assert rows(customer) == []
    assert bills.untouched(customer)


def test_a_balance_that_the_first_used_up_does_not_hide_the_replay(
    server: GatewayServer, open_account: OpenAccount
) -> None:
    customer = open_account(server, credit="0.000001")
    assert send(customer, question("echo")).status_code == 200
    assert bills.balance(customer) < 0
    assert refusal(send(customer, question("echo"))) == REPLAYED


def test_a_broken_stream_that_is_billed_is_replayed(customer: Customer) -> None:
    body = question("drop", stream=True)
    first = send(customer, body)
    assert (first.status_code, refusal(send(customer, body))) == (200, REPLAYED)
    assert len(bills.debits(customer)) == 1


def test_a_client_that_leaves_a_stream_is_billed_and_its_repetition_replayed(customer: Customer) -> None:
    body = question("slow-chunks", stream=True)
    key = {"Idempotency-Key": "one"}
    with customer.http.post(PATH, json=body, headers=key, stream=True) as left:
        next(left.iter_content(chunk_size=None))
        assert refusal(send(customer, body)) == IN_PROGRESS
    assert eventually(lambda: len(bills.debits(customer)) == 1)
    again = send(customer, body)
    assert refusal(again) == REPLAYED
    assert again.headers["X-Generation-Id"] == left.headers["X-Generation-Id"]


@pytest.mark.also_sqlite
def test_a_key_is_free_after_a_day(customer: Customer) -> None:
    assert send(customer, question("echo")).status_code == 200
    assert eventually(lambda: [bool(billed) for _, billed in rows(customer)] == [True])
    customer.gateway.query("UPDATE billing_idempotentrequest SET created_at = %s", [LONG_AGO])
    assert send(customer, question("echo")).status_code == 200
    assert len(bills.debits(customer)) == 2
    customer.gateway.query("UPDATE billing_idempotentrequest SET created_at = %s", [LONG_AGO])
    customer.gateway.manage("maintain", "--once").ok()
    assert rows(customer) == []


# The worker dies, or cannot reach the database.


def kill_workers(server: GatewayServer) -> None:
    """Kills the workers, and returns once others serve in their place."""
    killed = set(server.worker_pids())
    for worker in killed:
        os.kill(worker, signal.SIGKILL)
    assert eventually(lambda: len(set(server.worker_pids()) - killed) == len(killed) and server.healthy())


def unanswered(customer: Customer, body: dict[str, Any]) -> threading.Thread:
    """Sends a request whose answer never comes."""

    def ask() -> None:
        with connect(customer.gateway) as raw, raw.makefile("rb") as answers:
            content = requests.Request("POST", "http://gateway", json=body).prepare().body
            assert isinstance(content, bytes)
            head = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {customer.key}\r\n"
            raw.sendall(f"{head}Idempotency-Key: one\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content)
            answers.read()

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    return thread


@pytest.mark.also_sqlite
def test_a_request_that_vanished_with_its_worker_runs_again_under_its_id(
    server: GatewayServer, customer: Customer, simulator: Simulator
) -> None:
    body = held()
    asked = unanswered(customer, body)
    assert eventually(lambda: len(rows(customer)) == 1 and simulator.stats(HELD)["open"] > 0)
    kill_workers(server)
    asked.join()
    assert refusal(send(customer, body)) == IN_PROGRESS
    ((first, _),) = rows(customer)
    as_if_vanished(customer)
    with running(customer, simulator):
        assert refusal(send(customer, body)) == IN_PROGRESS
        assert refusal(send(customer, question("echo"))) == REUSED
        assert [id_ for id_, _ in rows(customer)] == [first]
    again = send(customer, body)
    assert refusal(again) == REPLAYED
    assert again.headers["X-Generation-Id"].removeprefix("gen-") == str(first).replace("-", "")
    assert len(bills.debits(customer)) == 1


def test_a_request_that_vanished_makes_room_for_another_body(
    server: GatewayServer, customer: Customer, simulator: Simulator
) -> None:
    asked = unanswered(customer, held())
    assert eventually(lambda: len(rows(customer)) == 1 and simulator.stats(HELD)["open"] > 0)
    kill_workers(server)
    asked.join()
    as_if_vanished(customer)
    ((first, _),) = rows(customer)
    assert send(customer, question("echo")).status_code == 200
    assert first not in {id_ for id_, _ in rows(customer)}


def test_a_stream_that_a_sweep_bills_is_replayed(
    server: GatewayServer, customer: Customer, simulator: Simulator
) -> None:
    body = held(stream=True)
    asked = unanswered(customer, body)
    until_checkpointed(server, 1)
    kill_workers(server)
    asked.join()
    as_if_vanished(customer)
    assert refusal(send(customer, body)) == IN_PROGRESS  # its checkpoint is there
    server.query("UPDATE billing_checkpoint SET beat_at = %s", [LONG_AGO])
    server.manage("maintain", "--once").ok()
    assert refusal(send(customer, body)) == REPLAYED
    assert len(bills.debits(customer)) == 1


def test_a_running_request_is_renewed(customer: Customer, simulator: Simulator) -> None:
    with running(customer, simulator) as body:
        as_if_vanished(customer)
        renewed = "SELECT count(*) FROM billing_idempotentrequest WHERE beat_at > '2026-01-02 00:00:00'"
        assert eventually(lambda: customer.gateway.query(renewed) == [(1,)])
        assert refusal(send(customer, body)) == IN_PROGRESS


@pytest.mark.only_postgres
def test_an_answer_whose_settlement_waits_in_the_spool_is_replayed(server: GatewayServer, customer: Customer) -> None:
    """On SQLite, nothing can be claimed either as long as nothing can be settled."""
    body = question("echo", max_tokens=16)
    with locked(server, customer):
        first = send(customer, body)
        assert first.status_code == 200
        assert "remaining_balance" not in first.json()["usage"]
        again = send(customer, body)
        assert refusal(again) == REPLAYED
        assert again.headers["X-Generation-Id"] == first.headers["X-Generation-Id"]
    assert eventually(lambda: len(bills.debits(customer)) == 1)
    assert refusal(send(customer, body)) == REPLAYED


@pytest.mark.only_postgres
def test_a_settlement_that_arrives_from_another_spool_and_the_repetition_are_billed_once(
    server: GatewayServer, customer: Customer, tmp_path: Path
) -> None:
    body = question("echo", max_tokens=16)
    with locked(server, customer):
        first = send(customer, body)
        elsewhere = tmp_path / f"{first.headers['X-Generation-Id'].removeprefix('gen-')}.outcome"
        assert eventually(lambda: is_moved(server.spool / elsewhere.name, elsewhere))
    assert eventually(lambda: [bool(billed) for _, billed in rows(customer)] == [True])
    as_if_vanished(customer)
    server.query("UPDATE billing_idempotentrequest SET is_billed = false")
    again = send(customer, body)
    assert (again.status_code, again.headers["X-Generation-Id"]) == (200, first.headers["X-Generation-Id"])
    elsewhere.rename(server.spool / elsewhere.name)
    assert eventually(lambda: waiting(server) == [])
    assert len(bills.debits(customer)) == len(bills.records(customer)) == 1


def is_moved(path: Path, to: Path) -> bool:
    """Moves a file of the spool away, unless a worker has claimed it."""
    try:
        path.rename(to)
    except FileNotFoundError:
        return False
    return True


# An SDK retries after an answer that was lost.


@pytest.fixture
def lossy(server: GatewayServer) -> Iterator[LossyProxy]:
    """Stands between the SDK and the gateway. An answer has its usage once it is settled."""
    with LossyProxy(server.port, end=b'"remaining_balance"') as proxy:
        yield proxy


def ask_by_sdk(
    customer: Customer, lossy: LossyProxy, *, stream: bool, name: str | None, by_client: bool = False
) -> str:
    """Asks with openai-python, loses the first answer, and returns what the SDK's retry gets."""
    client = customer.openai(base_url=f"http://127.0.0.1:{lossy.port}/v1", max_retries=2)
    if by_client:
        client._idempotency_header = "Idempotency-Key"
    lossy.lose_answer_to(b"hello there")
    asked: dict[str, Any] = {"model": "sim/test/echo", "messages": HELLO, "stream": stream}
    answer = client.chat.completions.create(**asked, extra_headers={} if name is None else {"Idempotency-Key": name})
    if not stream:
        return answer.choices[0].message.content or ""
    return "".join(choice.delta.content or "" for chunk in answer for choice in chunk.choices)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_without_a_key_the_retry_after_a_lost_answer_is_billed_again(
    customer: Customer, lossy: LossyProxy, stream: bool
) -> None:
    assert ask_by_sdk(customer, lossy, stream=stream, name=None)
    assert (lossy.lost, len(bills.debits(customer))) == (1, 2)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("by_client", [False, True], ids=["of-the-call", "of-the-client"])
def test_with_a_key_the_retry_after_a_lost_answer_is_not_billed(
    customer: Customer, lossy: LossyProxy, stream: bool, by_client: bool
) -> None:
    import openai  # noqa: PLC0415  # it takes a second

    with pytest.raises(openai.ConflictError) as raised:
        ask_by_sdk(customer, lossy, stream=stream, name=None if by_client else "one", by_client=by_client)
    assert (lossy.lost, raised.value.code) == (1, "idempotency_replayed")
    (record,) = bills.records(customer)
    assert bills.debits(customer) == [record.cost]
    assert bills.record_of(customer.gateway, raised.value.response.headers["x-generation-id"]) == record
