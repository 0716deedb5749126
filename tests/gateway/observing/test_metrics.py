"""Scrapes of two workers at METRICS_BIND agree with the records (docs/operations.md#metrics)."""

import os
import signal
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
import requests

from gateway.edge.middleware import endpoints
from gateway.errors import OWN_CODES
from gateway.observing.metrics_server import FOLDER
from gateway.observing.request_events import OPERATIONS
from inference.api import ENDPOINTS
from tests.catalogue import catalogue_for, provider
from tests.chat import HELLO, ask
from tests.conftest import OpenAccount, StartGateway
from tests.locks import WAITING
from tests.patience import eventually
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer
from tests.servers.process import free_port
from tests.servers.redis import PrivateRedis
from tests.servers.scrape import Scrape
from tests.servers.simulator import Simulator

UNITS = 10**10
CHAT = "chat/completions"
# These are in the tests' catalogue; another one lacks its credential.
CALLABLE = ("sim", "simkey", "simus", "simanthropic")
STATUSES = ("none", "1xx", "2xx", "3xx", "4xx", "5xx")
BY_PROVIDER = {
    "gateway_upstream_unexpected_bytes_total",
    "gateway_upstream_broken_ends_total",
    "gateway_provider_refusals_total",
}
JUNK = 30  # made-up names of each kind
ROUNDS = 8  # of requests; even, because every other one streams
STARTS_WITHIN = 30.0  # seconds: workers, on a busy machine


@pytest.fixture(scope="module")
def server(start_shared_gateway: StartGateway, redis_server: PrivateRedis) -> GatewayServer:
    started = start_shared_gateway(METRICS_BIND=an_address(), WEB_CONCURRENCY="2", CACHE_URL=redis_server.url)
    assert eventually(lambda: workers(started) == 2)
    return started


@pytest.fixture
def customer(server: GatewayServer, open_account: OpenAccount) -> Customer:
    return open_account(server)


def an_address() -> str:
    return f"127.0.0.1:{free_port()}"


def workers(server: GatewayServer) -> float:
    try:
        return Scrape.of(server).total("gateway_workers")
    except requests.RequestException:
        return 0


def metrics_pid(server: GatewayServer) -> int:
    """Returns the process that serves metrics: a child of the master's, but of another thread than its workers."""
    tasks = Path(f"/proc/{server.master_pid}/task").iterdir()
    others = [task / "children" for task in tasks if task.name != str(server.master_pid)]
    (pid,) = (int(pid) for children in others for pid in children.read_text().split())
    return pid


def folder_of(server: GatewayServer) -> Path:
    variables = Path(f"/proc/{metrics_pid(server)}/environ").read_text().split("\0")
    (folder,) = (value for name, _, value in (each.partition("=") for each in variables) if name == FOLDER)
    return Path(folder)


def settled(server: GatewayServer) -> tuple[int, ...]:
    """Returns the sums over all records.

    They are their number, tokens (uncached, cache read, cache written, completion), cost in EUR and energy in 10^-10
    units.
    """
    columns = (
        "count(*)",
        "sum(uncached_prompt_tokens)",
        "sum(coalesce(cache_read_tokens, 0))",
        "sum(coalesce(cache_write_5m_tokens, 0) + coalesce(cache_write_1h_tokens, 0))",
        "sum(completion_tokens)",
        "sum(cost_eur)",
        "sum(energy_wh)",
    )
    ((row),) = server.query(f"SELECT {', '.join(columns)} FROM billing_generation")
    return tuple(int(value) for value in row)


def scraped(scrape: Scrape) -> tuple[int, ...]:
    """Returns the same sums from a scrape."""
    kinds = scrape.by("gateway_tokens_total", "kind")
    return (
        int(scrape.total("gateway_settlement_duration_seconds_count")),
        *(int(kinds.get(kind, 0)) for kind in ("uncached_prompt", "cache_read", "cache_write", "completion")),
        round(scrape.total("gateway_cost_eur_total") * UNITS),
        round(scrape.total("gateway_energy_wh_total") * UNITS),
    )


def wait_for_beats(server: GatewayServer) -> None:
    """Waits until every worker has written what it has counted so far."""
    now = time.time()
    assert eventually(lambda: Scrape.of(server).total("gateway_beat_timestamp_seconds") > now)


def test_two_workers_agree_with_the_ledger(server: GatewayServer, customer: Customer) -> None:
    wait_for_beats(server)  # then it includes what other tests have left
    before = Scrape.of(server)

    def use(number: int) -> None:
        assert ask(customer, "echo", max_tokens=16).status_code == 200
        assert ask(customer, "echo", stream=True).status_code == 200
        assert ask(customer, "cached", stream=number % 2 == 0).status_code == 200
        assert ask(customer, "status-500").status_code == 503
        assert ask(customer, "no/such/model").status_code == 404
        assert ask(customer, "echo", temperature="hot").status_code == 400
        embedding = {"model": "sim/test/embedding", "input": "hello"}
        assert customer.http.post("/v1/embeddings", json=embedding).status_code == 200

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(use, range(ROUNDS)))

    def grew(name: str, **labels: str) -> float:
        return after.total(name, **labels) - before.total(name, **labels)

    def has_all(scrape: Scrape) -> bool:
        """Tells whether a scrape has everything: each worker writes with its own beat, refusals perhaps last."""
        requests_total = scrape.total("gateway_requests_total") - before.total("gateway_requests_total")
        return requests_total == 7 * ROUNDS and scraped(scrape) == settled(server)

    assert eventually(lambda: has_all(Scrape.of(server))), (scraped(Scrape.of(server)), settled(server))
    wait_for_beats(server)  # a scrape may fall between two workers' writes
    after = Scrape.of(server)
    assert grew("gateway_requests_total", endpoint=CHAT, outcome="served") == 3 * ROUNDS
    assert grew("gateway_requests_total", endpoint="embeddings", outcome="served") == ROUNDS
    assert grew("gateway_requests_total", endpoint=CHAT, outcome="failed", provider="sim") == ROUNDS
    assert grew("gateway_requests_total", endpoint=CHAT, outcome="refused", route="other") == 2 * ROUNDS
    assert grew("gateway_errors_total", code="not_found") == ROUNDS
    assert grew("gateway_errors_total", code="invalid_request_error") == ROUNDS
    assert grew("gen_ai_server_request_duration_seconds_count", error_type="") == 4 * ROUNDS
    assert grew("gen_ai_server_request_duration_seconds_count", error_type="failed") == ROUNDS
    assert grew("gen_ai_server_time_to_first_token_seconds_count") == 1.5 * ROUNDS
    assert grew("gen_ai_client_token_usage_count", gen_ai_token_type="output") == 4 * ROUNDS
    assert grew("gen_ai_client_token_usage_count", gen_ai_operation_name="embeddings") == 2 * ROUNDS
    usage = {kind: grew("gen_ai_client_token_usage_sum", gen_ai_token_type=kind) for kind in ("input", "output")}
    assert sum(usage.values()) == grew("gateway_tokens_total")
    assert grew("gateway_upstream_attempts_total", status="2xx") == 4 * ROUNDS
    assert grew("gateway_upstream_attempts_total", status="5xx") == ROUNDS
    for phase in ("connect", "head"):
        assert grew("gateway_upstream_phase_duration_seconds_count", phase=phase) == 5 * ROUNDS
    is_postgres = server.database_url.startswith("postgres")
    assert grew("gateway_settlement_wallet_wait_seconds_count") == (4 * ROUNDS if is_postgres else 0)
    upstream = grew("gateway_upstream_phase_duration_seconds_sum")
    assert 0 < upstream < grew("gen_ai_server_request_duration_seconds_sum")
    assert eventually(lambda: Scrape.of(server).total("gateway_open_upstream_calls") == 0)
    assert after.total("gateway_workers") == 2
    assert after.total("gateway_redis_away") == 0


def test_what_clients_make_up_adds_no_series(server: GatewayServer, customer: Customer) -> None:
    def send(model: str, path: str = "/v1/chat/completions") -> None:
        reply = customer.http.post(path, json={"model": model, "messages": HELLO})
        assert reply.status_code in (400, 404)

    def counted(since: Scrape) -> float:
        return Scrape.of(server).total("gateway_requests_total") - since.total("gateway_requests_total")

    wait_for_beats(server)  # then it includes what other tests have left
    start = Scrape.of(server)
    for model in ("sim/test/nothing", "alias/nothing", "nothing"):
        send(model)
    send("", "/v1/nothing")
    assert eventually(lambda: counted(start) == 4)
    before = Scrape.of(server)
    junk = [f"{shape}{number}" for number in range(JUNK) for shape in ("sim/test/junk-", "alias/junk-", "junk/junk/")]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(send, [*junk, "junk"]))
        list(pool.map(lambda number: send("", f"/v1/junk-{number}"), range(JUNK)))
    assert eventually(lambda: counted(before) == 4 * JUNK + 1)
    new = Scrape.of(server).series - before.series
    assert {name for name, _ in new if not name.startswith("gateway_database_")} == set()  # a pool may open meanwhile


def test_series_begin_with_zero_before_their_first_event(
    start_gateway: StartGateway, open_account: OpenAccount, simulator: Simulator
) -> None:
    """`increase` of a series that begins with its first event would miss that event."""
    content = catalogue_for(simulator.url)
    server = start_gateway(catalogue=content, METRICS_BIND=an_address())
    assert eventually(lambda: workers(server) == 1)
    wait_for_beats(server)
    scrape = Scrape.of(server)
    codes = {*OWN_CODES, "other"}
    begun = {
        *(("gateway_errors_total", code, endpoint) for endpoint in ENDPOINTS for code in codes),
        *(("gateway_errors_total", "internal_server_error", endpoint) for endpoint in endpoints()),
        ("gateway_errors_total", "internal_server_error", "other"),
        *(("gateway_upstream_attempts_total", slug, status) for slug in CALLABLE for status in STATUSES),
        *((name, slug) for slug in CALLABLE for name in BY_PROVIDER),
    }
    assert counters(scrape, {"gateway_errors_total", "gateway_upstream_attempts_total", *BY_PROVIDER}) == begun
    assert scrape.total("gateway_errors_total") == scrape.total("gateway_upstream_attempts_total") == 0
    content["providers"].append(provider("newcomer", simulator.url))
    server.seed(content)
    assert eventually(
        lambda: counters(Scrape.of(server), BY_PROVIDER) - begun == {(n, "newcomer") for n in BY_PROVIDER}
    )
    assert ask(open_account(server), "status-500").status_code == 503  # and events are counted in them
    assert eventually(lambda: Scrape.of(server).total("gateway_upstream_attempts_total", status="5xx") == 1)
    new = counters(Scrape.of(server), {"gateway_errors_total", "gateway_upstream_attempts_total"}) - begun
    assert {labels[0] for _, *labels in new} == {"newcomer"}


def counters(scrape: Scrape, names: Collection[str]) -> set[tuple[str, ...]]:
    """Returns the names of counters with the values of their labels, in the order of the labels' names."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items())))
        for sample in scrape.samples
        if sample.name in names
    }


def test_open_streams_are_counted_while_they_are_open(server: GatewayServer, customer: Customer) -> None:
    reply = customer.http.post(
        "/v1/chat/completions", json={"model": "sim/test/stall", "messages": HELLO, "stream": True}, stream=True
    )
    with reply:
        assert eventually(lambda: Scrape.of(server).total("gateway_open_streams") == 1)
        assert Scrape.of(server).total("gateway_open_upstream_calls") == 1
    assert eventually(lambda: Scrape.of(server).total("gateway_requests_total", outcome="client_left") == 1)
    assert eventually(lambda: Scrape.of(server).total("gateway_open_streams") == 0)


def test_the_wait_for_a_wallet_is_measured_apart_from_the_rest_of_a_settlement(
    server: GatewayServer, customer: Customer
) -> None:
    before = Scrape.of(server)

    def grew(name: str) -> float:
        return Scrape.of(server).total(name) - before.total(name)

    with ThreadPoolExecutor(1) as pool, psycopg.connect(server.database_url) as other:
        other.execute("SELECT balance FROM billing_wallet WHERE account_id = %s FOR UPDATE", [customer.id])
        asked = pool.submit(ask, customer, "echo", max_tokens=16)
        assert eventually(lambda: server.query(WAITING) != [])
        since = time.monotonic()
        assert grew("gateway_settlement_duration_seconds_count") == 0
        held = time.monotonic() - since
        other.rollback()
        assert asked.result().status_code == 200
    assert eventually(lambda: grew("gateway_settlement_wallet_wait_seconds_count") == 1)
    waited = grew("gateway_settlement_wallet_wait_seconds_sum")
    assert held < waited < grew("gateway_settlement_duration_seconds_sum")


def test_every_endpoint_but_the_counts_has_an_operation() -> None:
    assert {path for path in ENDPOINTS if path not in OPERATIONS} == {"messages/count_tokens", "responses/input_tokens"}
    assert OPERATIONS.keys() <= ENDPOINTS.keys()


def test_the_public_port_tells_nothing(server: GatewayServer, customer: Customer) -> None:
    for http in (customer.http, requests):
        assert http.get(f"{server.origin}/metrics", timeout=10).status_code == 404


def test_counts_outlive_workers_and_what_serves_them_and_nothing_outlives_the_master(
    start_gateway: StartGateway, open_account: OpenAccount
) -> None:
    nobody = f"redis://127.0.0.1:{free_port()}"
    server = start_gateway(METRICS_BIND=an_address(), CACHE_URL=nobody)
    customer = open_account(server)
    for _ in range(3):
        assert ask(customer, "echo").status_code == 200
    assert eventually(lambda: workers(server) == 1, within=STARTS_WITHIN)

    def served() -> float:
        return Scrape.of(server).total("gateway_requests_total", endpoint=CHAT)

    assert eventually(lambda: served() == 3)
    assert Scrape.of(server).total("gateway_redis_away") == 1
    killed = server.kill_worker()
    assert eventually(lambda: killed not in server.worker_pids() and workers(server) == 1, within=STARTS_WITHIN)
    before = set(server.worker_pids())
    os.kill(server.master_pid, signal.SIGHUP)
    assert eventually(lambda: before.isdisjoint(server.worker_pids()) and workers(server) == 1, within=STARTS_WITHIN)
    old = metrics_pid(server)
    os.kill(old, signal.SIGTERM)  # service managers signal all processes: this one stays for the drain
    assert served() == 3
    assert metrics_pid(server) == old
    os.kill(old, signal.SIGKILL)
    assert eventually(lambda: workers(server) == 1, within=STARTS_WITHIN)
    assert metrics_pid(server) != old
    assert ask(customer, "echo").status_code == 200
    assert eventually(lambda: served() == 4)
    folder = folder_of(server)
    assert folder.is_dir()
    server.stop(signal.SIGKILL)
    assert eventually(lambda: not folder.exists() and workers(server) == 0)
