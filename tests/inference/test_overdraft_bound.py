"""No more requests are in flight than the balance and the budgets are expected to pay for, but always one."""

import json
import os
import signal
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from decimal import Decimal
from typing import Any

import orjson
import pytest
import redis
import requests

from gateway.money import from_units
from tests.bills import balance, debits
from tests.catalogue import catalogue_for, model
from tests.chat import HELLO, PATH, ask, question
from tests.conftest import OpenAccount, StartGateway
from tests.envelope import message, refusal
from tests.inference.recovery import until_checkpointed
from tests.patience import eventually
from tests.rawhttp import connect, read_response
from tests.servers.customer import Customer, GatewaySession
from tests.servers.gateway import GatewayServer
from tests.servers.process import free_port
from tests.servers.redis import PrivateRedis
from tests.servers.scrape import Scrape
from tests.servers.simulator import Simulator

HELD_BACK = (429, "rate_limit_error", "rate_limit_exceeded", None)
LONG_AGO = "2026-01-01 00:00:00"
RESERVED_SECONDS = 30  # unless its worker renews it
FREE = {"currency": "EUR", "prompt_per_1m_tokens": 0, "completion_per_1m_tokens": 0}
DEAR = {"currency": "EUR", "prompt_per_1m_tokens": 1000, "completion_per_1m_tokens": 2000}


def catalogue(simulator: Simulator) -> dict[str, Any]:
    """Builds models that answer a word or fifty, at 0.001 EUR per input token and 0.002 per output token."""
    offers = [model(f"dear-{slug}", upstream_model=upstream, pricing=DEAR) for slug, upstream in UPSTREAMS.items()]
    both = [
        model("both", upstream_model="status:500"),
        model("both", provider="simkey", upstream_model="slow-first-byte:0.5", pricing=DEAR),
    ]
    return catalogue_for(simulator.url, *offers, *both, model("free", pricing=FREE))


UPSTREAMS = {"echo": "echo", "slow": "chunks:50:0.1"}


@pytest.fixture(scope="module")
def shared_redis() -> Iterator[PrivateRedis]:
    server = PrivateRedis().start()
    yield server
    server.close()


@pytest.fixture(scope="module")
def two_workers(start_shared_gateway: StartGateway, simulator: Simulator, shared_redis: PrivateRedis) -> GatewayServer:
    return start_shared_gateway(catalogue=catalogue(simulator), CACHE_URL=shared_redis.url, WEB_CONCURRENCY="2")


@pytest.fixture(scope="module")
def one_worker(failover_gateway: GatewayServer, simulator: Simulator) -> GatewayServer:
    content = catalogue(simulator)
    failover_gateway.offer(providers=content["providers"], models=content["models"])
    return failover_gateway


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.process) for name in ("two_workers", "one_worker")])
def bounded(request: pytest.FixtureRequest) -> GatewayServer:
    server: GatewayServer = request.getfixturevalue(request.param)
    return server


def at_once(customer: Customer, count: int, **fields: object) -> list[requests.Response]:
    """Sends `count` requests, each on a connection of its own."""

    def one(_number: int) -> requests.Response:
        with GatewaySession(customer.gateway.origin, customer.key) as session:
            return session.post(PATH, json=question("dear-echo", **fields))

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def test_without_credit_not_even_what_is_free_is_served(one_worker: GatewayServer, open_account: OpenAccount) -> None:
    customer = open_account(one_worker, credit=None)
    assert ask(customer, "free").status_code == 402
    assert debits(customer) == []


@pytest.mark.parametrize("fields", [{}, {"stream": True}], ids=["whole", "streamed"])
def test_sixty_at_once_on_a_balance_of_a_cent_overdraw_it_by_one(
    bounded: GatewayServer, open_account: OpenAccount, fields: dict[str, object]
) -> None:
    customer = open_account(bounded, credit="0.01")
    replies = at_once(customer, 60, **fields)
    found = Counter(reply.status_code for reply in replies)
    assert found[200] >= 1
    assert found.keys() <= {200, 402, 429}
    dearest = max(debits(customer))
    assert balance(customer) > -dearest
    for reply in replies:
        if reply.status_code == 429:
            assert refusal(reply) == HELD_BACK
            assert reply.headers["Retry-After"] == "1"
            assert "balance does not cover another request" in reply.json()["error"]["message"]
    left = balance(customer)  # read before the next request spends it
    assert ask(customer, "dear-echo").status_code == (402 if left <= 0 else 200)


def test_as_many_are_in_flight_as_the_balance_covers(bounded: GatewayServer, open_account: OpenAccount) -> None:
    """A prompt is estimated at 7 tokens, and the answer at ten at most: 0.027, and seven of them cost 0.189."""
    customer = open_account(bounded, credit="0.2")
    with ExitStack() as stack:
        sessions = [stack.enter_context(GatewaySession(bounded.origin, customer.key)) for _ in range(12)]
        asked = question("dear-slow", stream=True, max_tokens=10)
        replies = [stack.enter_context(session.post(PATH, json=asked, stream=True)) for session in sessions]
        served = [reply for reply in replies if reply.status_code == 200]
        assert [reply.status_code for reply in replies] == [200] * 7 + [429] * 5
        assert refusal(ask(customer, "dear-echo", max_tokens=10)) == HELD_BACK
        served[0].close()  # its client leaves
        assert eventually(lambda: ask(customer, "dear-echo", max_tokens=10).status_code == 200)


def test_who_has_credit_is_not_held_back(bounded: GatewayServer, open_account: OpenAccount) -> None:
    customer = open_account(bounded, credit="1000")
    assert {reply.status_code for reply in at_once(customer, 60)} == {200}


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_who_asks_one_after_the_other_is_not_held_back(
    bounded: GatewayServer, open_account: OpenAccount, streams: bool
) -> None:
    """Each request is expected to cost twice the balance, and the next is sent as soon as the answer has arrived."""
    customer = open_account(bounded, credit="1")
    body = orjson.dumps(question("dear-echo", stream=streams))
    asked = (
        f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {customer.key}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    ).encode() + body
    statuses: Counter[int] = Counter()
    for _ in range(15):
        with ExitStack() as stack:
            connections = [stack.enter_context(connect(bounded)) for _ in range(10)]
            for connection in connections:
                connection.sendall(asked)
                answer = connection.makefile("rb")
                reply = read_response(answer)
                statuses[reply.status_code] += 1
                while "Content-Length" not in reply.headers and b"[DONE]" not in (line := answer.readline()):
                    assert line
    assert statuses == {200: 150}


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_every_ending_gives_its_reservation_back(
    bounded: GatewayServer, open_account: OpenAccount, streams: bool
) -> None:
    customer = open_account(bounded, credit="0.000001")  # which pays for one request at a time
    for slug in ("nothing", "status-500", "bad-usage", "unpriced", "drop-at-once", "empty"):
        assert ask(customer, slug, stream=streams).status_code not in (402, 429), slug
    assert customer.http.post(PATH, data=b"{").status_code == 400
    assert ask(customer, "echo", stream=streams).status_code == 200


def test_counting_a_prompt_reserves_nothing(bounded: GatewayServer, open_account: OpenAccount) -> None:
    customer = open_account(bounded, credit="0.01")
    with GatewaySession(bounded.origin, customer.key) as session:
        reply = session.post(PATH, json=question("dear-slow", stream=True), stream=True)
        assert reply.status_code == 200
        counted = customer.http.post("/v1/messages/count_tokens", json={"model": "sim/test/echo", "messages": HELLO})
        assert counted.status_code == 200
        reply.close()


def test_requests_in_flight_of_a_killed_worker_do_not_hold_others_back_for_long(
    two_workers: GatewayServer, open_account: OpenAccount, shared_redis: PrivateRedis
) -> None:
    gateway, victims = two_workers, two_workers.worker_pids()
    customer = open_account(gateway, credit="0.01")
    with GatewaySession(gateway.origin, customer.key) as session:
        reply = session.post(PATH, json=question("dear-slow", stream=True), stream=True)
        assert reply.status_code == 200
        next(reply.iter_lines())
        for victim in victims:  # one of them has it
            os.kill(victim, signal.SIGKILL)
        reply.close()
    assert eventually(lambda: len(set(gateway.worker_pids()) - set(victims)) == 2)
    assert eventually(gateway.healthy)
    assert eventually(lambda: ask(customer, "dear-echo").status_code == 429)
    with closing(redis.Redis(port=shared_redis.port)) as store:
        reserved = f"in-flight:{uuid.UUID(customer.id).hex}"
        ((worker, reservation),) = store.hgetall(reserved).items()
        units, ends = map(int, reservation.split())
        (now, _) = store.time()
        assert now < ends <= now + RESERVED_SECONDS
        store.hset(reserved, worker, f"{units} {now}")  # as if that time had passed
    assert ask(customer, "dear-echo").status_code == 200


def spent_of_budget(customer: Customer) -> Decimal:
    rows = customer.gateway.query("SELECT in_total FROM billing_spending WHERE account_id = %s", [customer.id])
    ((spent,),) = rows
    return from_units(spent)


def set_budget(customer: Customer, amount: Decimal) -> None:
    rules = {"budget": {"amount": str(amount), "period": "total"}}
    customer.gateway.manage("set_policy", customer.name, json.dumps(rules), "--key", "test").ok()


def test_sixty_at_once_spend_a_budget_exactly_if_the_workers_share_a_store(
    two_workers: GatewayServer, open_account: OpenAccount
) -> None:
    customer = open_account(two_workers)
    assert ask(customer, "dear-echo").status_code == 200
    (cost,) = debits(customer)
    set_budget(customer, 11 * cost)
    found = Counter(reply.status_code for reply in at_once(customer, 60))
    while (reply := ask(customer, "dear-echo")).status_code != 402:
        found[reply.status_code] += 1
    assert refusal(reply) == (402, "invalid_request_error", "budget_exceeded", None)
    assert found[200] == 10
    assert found.keys() <= {200, 402, 429}
    assert spent_of_budget(customer) == 11 * cost


def test_what_a_killed_worker_has_delivered_counts_against_the_budget(
    two_workers: GatewayServer, open_account: OpenAccount
) -> None:
    customer, victims = open_account(two_workers), two_workers.worker_pids()
    set_budget(customer, Decimal("0.01"))
    until_checkpointed(two_workers, 0)  # no stream of another test is left, which would be taken for this one
    with GatewaySession(two_workers.origin, customer.key) as session:
        reply = session.post(PATH, json=question("dear-slow", stream=True), stream=True)
        until_checkpointed(two_workers, 1)
        for victim in victims:
            os.kill(victim, signal.SIGKILL)
        reply.close()
    assert eventually(lambda: len(set(two_workers.worker_pids()) - set(victims)) == 2)
    assert spent_of_budget(customer) == 0
    two_workers.query("UPDATE billing_checkpoint SET beat_at = %s", [LONG_AGO])
    two_workers.manage("maintain", "--once").ok()
    assert 0 < spent_of_budget(customer) == sum(debits(customer))
    assert refusal(ask(customer, "dear-echo")) == (402, "invalid_request_error", "budget_exceeded", None)


@pytest.mark.parametrize("left", [24, 1000], ids=["no-longer-renewed", "renewed"])
def test_a_wait_for_another_workers_requests_is_promised_only_if_its_end_is_known(
    two_workers: GatewayServer, open_account: OpenAccount, shared_redis: PrivateRedis, left: int
) -> None:
    """A reservation that is not renewed ends at a known time."""
    customer = open_account(two_workers, credit="0.01")
    with closing(redis.Redis(port=shared_redis.port)) as store:
        store.hset(f"in-flight:{uuid.UUID(customer.id).hex}", "elsewhere", f"{10**10} {store.time()[0] + left}")
        refused = ask(customer, "dear-echo")
        assert refusal(refused) == HELD_BACK
        seconds = int(refused.headers["Retry-After"])
        if left == 1000:
            assert seconds == 1
            assert message(refused).endswith(" Try again when one of them has ended.")
        else:
            assert 1 < seconds <= left
            assert message(refused).endswith(f" Try again in {seconds} seconds.")


def test_reservations_that_redis_loses_are_written_again_with_the_next_beat(
    start_gateway: StartGateway, open_account: OpenAccount, simulator: Simulator, shared_redis: PrivateRedis
) -> None:
    metrics = f"127.0.0.1:{free_port()}"
    gateway = start_gateway(catalogue=catalogue(simulator), CACHE_URL=shared_redis.url, METRICS_BIND=metrics)
    customer = open_account(gateway, credit="0.01")
    reserved = f"in-flight:{uuid.UUID(customer.id).hex}"
    asked = question("dear-slow", stream=True)
    with (
        GatewaySession(gateway.origin, customer.key) as session,
        session.post(PATH, json=asked, stream=True) as reply,
        closing(redis.Redis(port=shared_redis.port)) as store,
    ):
        assert reply.status_code == 200
        for _ in range(2):
            assert store.delete(reserved) == 1
            wait_for_a_beat(gateway)  # one beat may have begun before
            wait_for_a_beat(gateway)
            assert store.exists(reserved)


def wait_for_a_beat(gateway: GatewayServer) -> None:
    before = Scrape.of(gateway).total("gateway_beat_timestamp_seconds")
    assert eventually(lambda: Scrape.of(gateway).total("gateway_beat_timestamp_seconds") > before)


def test_a_balance_that_others_have_spent_meanwhile_is_read_anew(
    bounded: GatewayServer, open_account: OpenAccount
) -> None:
    """Keys are looked up while there is still a balance, and the bodies arrive one by one. Each request costs 0.006."""
    customer = open_account(bounded, credit="0.01")
    body = orjson.dumps(question("dear-echo"))
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {customer.key}\r\n"
        f"Content-Length: {len(body)}\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
    )
    with ExitStack() as stack:
        connections = [stack.enter_context(connect(bounded)) for _ in range(10)]
        answers = [stack.enter_context(connection.makefile("rb")) for connection in connections]
        for connection, answer in zip(connections, answers, strict=True):
            connection.sendall(head.encode())
            assert read_response(answer).status_code == 100
        statuses = []
        for connection, answer in zip(connections, answers, strict=True):
            connection.sendall(body)
            statuses.append(read_response(answer).status_code)
    assert statuses == [200] * 2 + [402] * 8


def test_who_moves_on_to_a_dearer_provider_reserves_what_that_one_costs(
    one_worker: GatewayServer, open_account: OpenAccount
) -> None:
    customer = open_account(one_worker, credit="0.01")
    found = Counter(reply.status_code for reply in at_once(customer, 12, model="auto/test/both"))
    assert found.keys() <= {200, 402, 429}
    assert balance(customer) > -max(debits(customer))


def test_what_is_free_is_not_held_back_however_slowly_it_is_sent(
    one_worker: GatewayServer, open_account: OpenAccount
) -> None:
    customer = open_account(one_worker, credit="0.01")
    body = orjson.dumps(question("free"))
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {customer.key}\r\n"
        f"Content-Length: {len(body)}\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
    )
    with GatewaySession(one_worker.origin, customer.key) as session, connect(one_worker) as raw:
        answer = raw.makefile("rb")
        beside = session.post(PATH, json=question("dear-slow", stream=True), stream=True)
        raw.sendall(head.encode())
        assert read_response(answer).status_code == 100
        lines = (line for line in beside.iter_lines() if line)
        for _ in range(15):  # ten arrive within the second for which a balance is fresh
            next(lines)
        raw.sendall(body)
        assert read_response(answer).status_code == 200
        beside.close()


def test_the_bound_can_be_switched_off(
    start_gateway: StartGateway, open_account: OpenAccount, simulator: Simulator
) -> None:
    gateway = start_gateway(catalogue=catalogue(simulator), GATEWAY_EXPECTED_ANSWER_TOKENS="0")
    customer = open_account(gateway, credit="0.01")
    with GatewaySession(gateway.origin, customer.key) as session:
        first = session.post(PATH, json=question("dear-slow", stream=True), stream=True)
        assert first.status_code == 200
        assert ask(customer, "dear-echo").status_code == 200
        first.close()
