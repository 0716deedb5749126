"""If the database dies or stops answering in the middle, each answer is billed once or not at all."""

import contextlib
import functools
import json
import os
import re
import signal
import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
import requests

from tests import bills, plugin
from tests.chat import HELLO, ask
from tests.conftest import PROVIDER_KEYS, OpenAccount
from tests.inference.recovery import (
    HELD,
    REPLAYED_WITHIN,
    SHORT_WAITS,
    assert_replayed_once,
    catalogue,
    let_go,
    until_checkpointed,
    waiting,
)
from tests.inference.stream_clients import StreamClients
from tests.patience import eventually
from tests.rawhttp import connect
from tests.servers.databases import MigratedDatabases
from tests.servers.gateway import GatewayServer
from tests.servers.lossy_proxy import LossyProxy
from tests.servers.postgres import PrivatePostgres
from tests.servers.simulator import Simulator

# The database dies.

WAITING_FOR_A_ROW = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


@pytest.fixture(scope="module")
def postgres() -> Iterator[PrivatePostgres]:
    """Starts a PostgreSQL that tests may damage."""
    # In a crash it loses everything that no commit has waited for.
    own = PrivatePostgres(synchronous_commit="on", wal_writer_delay="10s")
    with contextlib.closing(own):
        yield own.start()


@pytest.fixture(scope="module")
def fragile_databases(postgres: PrivatePostgres) -> MigratedDatabases:
    return MigratedDatabases(postgres)


@pytest.fixture(scope="module")
def fragile(
    fragile_databases: MigratedDatabases, simulator: Simulator, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayServer]:
    """Starts a gateway on that PostgreSQL."""
    folder = tmp_path_factory.mktemp("fragile")
    env = PROVIDER_KEYS | SHORT_WAITS
    started = GatewayServer(fragile_databases, folder, catalogue=catalogue(simulator), env=env)
    with contextlib.closing(started):
        yield started.start()
        started.stop()
        started.manage("verify_ledger").ok()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT], ids=["shut down", "crashed"])
def test_answers_outlive_the_database(
    postgres: PrivatePostgres,
    fragile: GatewayServer,
    open_account: OpenAccount,
    clients: StreamClients,
    simulator: Simulator,
    number: signal.Signals,
) -> None:
    customer = open_account(fragile)
    with ThreadPoolExecutor(1) as pool:
        (streamed,) = clients.open(customer, "held")
        asked = pool.submit(ask, customer, "held", max_tokens=16)
        assert eventually(lambda: simulator.stats(HELD)["open"] == 2)
        postgres.stop(number)
        let_go(simulator)
        stream, whole = streamed.result(), asked.result()
    assert stream.done
    assert whole.status_code == 200
    assert len(waiting(fragile)) == 2
    postgres.start()
    answers = {stream.id: stream.usage, whole.headers["X-Generation-Id"]: whole.json()["usage"]}
    assert_replayed_once(fragile, customer, answers)
    assert eventually(lambda: ask(customer, "echo").status_code == 200)


def test_what_a_crowded_wallet_paid_outlives_a_crash(
    postgres: PrivatePostgres, fragile: GatewayServer, open_account: OpenAccount
) -> None:
    """The wallet is unlocked before its commits are on the disk, but answers wait for the disk all the same."""
    customer = open_account(fragile)
    with ThreadPoolExecutor(4) as pool:
        with psycopg.connect(fragile.database_url) as other:
            other.execute("SELECT FROM billing_wallet WHERE account_id = %s FOR UPDATE", [customer.id])
            first = [pool.submit(ask, customer, "echo") for _ in range(4)]
            assert eventually(lambda: fragile.query(WAITING_FOR_A_ROW)[0][0] > 0)
        answers = [asked.result() for asked in first] + [ask(customer, "echo") for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200] * 8
    postgres.restart(signal.SIGQUIT)
    settled = "SELECT count(*) FROM billing_generation g JOIN billing_ledgerentry ON generation_id = g.id"
    assert fragile.query(f"{settled} WHERE g.account_id = %s", [customer.id]) == [(8,)]


def probed(server: GatewayServer, path: str) -> tuple[int, dict[str, Any]]:
    reply = requests.get(f"{server.origin}/{path}", timeout=5)
    return reply.status_code, reply.json()


def test_a_database_that_is_away_does_not_flood_the_log(
    postgres: PrivatePostgres,
    fragile: GatewayServer,
    open_account: OpenAccount,
    clients: StreamClients,
    simulator: Simulator,
) -> None:
    """Jobs of the beat fail each second, and each logs only when that begins and when it ends."""
    customer = open_account(fragile)
    (streamed,) = clients.open(customer, "held")
    ready = (200, {"status": "ready"})
    assert eventually(lambda: probed(fragile, "readyz") == ready)  # after the previous test's outage
    before = len(fragile.log)

    def jobs(of: str) -> list[str]:
        return sorted(re.findall(of, fragile.log[before:]))

    postgres.stop()
    let_go(simulator)
    assert streamed.result().done
    assert {ask(customer, "echo").status_code for _ in range(20)} == {500}
    assert eventually(lambda: bool(jobs(r"(the job \S+ fails): ")))
    assert eventually(lambda: probed(fragile, "readyz")[0] == 503, within=REPLAYED_WITHIN)
    _, body = probed(fragile, "readyz")
    assert body["status"] == "not ready"
    assert re.fullmatch(r"The database has not answered for \d+ seconds\.", *body["reasons"])
    assert probed(fragile, "livez") == (200, {"status": "ok"})
    postgres.start()
    assert eventually(lambda: probed(fragile, "readyz")[0] == 200, within=REPLAYED_WITHIN)
    assert eventually(lambda: waiting(fragile) == [], within=REPLAYED_WITHIN)
    assert ask(customer, "echo").status_code == 200
    assert eventually(
        lambda: set(jobs(r"(the job \S+ fails): OperationalError: ")) <= set(jobs(r"over after \d+ s: (the job .*)"))
    )
    written, failed = fragile.log[before:], jobs(r"(the job \S+ fails): ")
    assert len(failed) == len(set(failed))
    assert written.count("failing while authenticating the key: OperationalError: ") == 1
    assert "s: failing while authenticating the key" in written
    assert "Traceback" not in written
    assert len([line for line in written.splitlines() if " gateway.access " not in line]) < 30, written


def test_a_database_that_goes_silent_is_not_waited_for_and_may_have_committed_after_all(
    postgres: PrivatePostgres,
    fragile: GatewayServer,
    open_account: OpenAccount,
    clients: StreamClients,
    simulator: Simulator,
) -> None:
    customer = open_account(fragile)
    ask(customer, "echo")
    (streamed,) = clients.open(customer, "held")
    with postgres.frozen():
        let_go(simulator)
        stream = streamed.result()
    assert stream.done
    assert stream.usage is not None
    assert "remaining_balance" not in stream.usage
    assert eventually(lambda: len(bills.debits(customer)) == 2 and waiting(fragile) == [], within=REPLAYED_WITHIN)
    assert bills.record_of(fragile, stream.id).cost == bills.exact(stream.usage["cost"])
    assert bills.balance(customer) == Decimal(100) - sum(bills.debits(customer))


ENDPOINTS: dict[str, dict[str, Any]] = {
    "chat/completions": {"messages": HELLO, "max_tokens": 16},
    "completions": {"prompt": "hi", "max_tokens": 16},
    "embeddings": {"input": "hi"},
    "responses": {"input": "hi", "max_output_tokens": 16},
    "messages": {"messages": HELLO, "max_tokens": 16},
}


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_whoever_leaves_while_the_database_is_silent_is_neither_called_for_nor_billed(
    postgres: PrivatePostgres, fragile: GatewayServer, open_account: OpenAccount, simulator: Simulator, streams: bool
) -> None:
    customer = open_account(fragile)
    assert ask(customer, "echo").status_code == 200
    billed, calls = bills.debits(customer), simulator.stats()["calls"]

    def has_been_read(raw: socket.socket) -> bool:
        """Tells whether the gateway has read all that was sent, according to Linux."""
        ours, theirs = (f":{end[1]:04X}" for end in (raw.getsockname(), raw.getpeername()))
        rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
        queues = [row[4] for row in rows if row[1].endswith(theirs) and row[2].endswith(ours)]
        return [queue.rpartition(":")[2] for queue in queues] == ["00000000"]

    with postgres.frozen():
        for resets in (False, True):
            for endpoint, fields in ENDPOINTS.items():
                model = "sim/test/embedding" if endpoint == "embeddings" else "sim/test/echo"
                streaming = {"stream": True} if streams and endpoint != "embeddings" else {}
                body = json.dumps({"model": model, **fields, **streaming}).encode()
                head = f"POST /v1/{endpoint} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {customer.key}\r\n"
                with connect(fragile) as raw:
                    raw.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
                    assert eventually(functools.partial(has_been_read, raw))
                    if resets:
                        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def left() -> int:
        return len([line for line in fragile.log.splitlines() if "outcome=client_left" in line and customer.id in line])

    assert eventually(lambda: left() == 2 * len(ENDPOINTS), within=REPLAYED_WITHIN)
    assert (bills.debits(customer), simulator.stats()["calls"]) == (billed, calls)


@pytest.fixture
def hasty(fragile_databases: MigratedDatabases, simulator: Simulator, tmp_path: Path) -> Iterator[GatewayServer]:
    """Starts a gateway whose drain is shorter than its patience with a silent database."""
    env = PROVIDER_KEYS | SHORT_WAITS | {"GATEWAY_DRAIN_TIMEOUT": "2"}
    with contextlib.closing(GatewayServer(fragile_databases, tmp_path, catalogue=catalogue(simulator), env=env)) as own:
        yield own.start()


def test_an_idle_client_is_let_go_by_a_drain_though_the_beat_hangs_in_the_database(
    postgres: PrivatePostgres, hasty: GatewayServer, open_account: OpenAccount
) -> None:
    assert ask(open_account(hasty), "echo").status_code == 200
    with postgres.frozen():
        assert hasty.stop(timeout=30) == 0
    assert "graceful timeout" not in hasty.log


# The connections go silent.


@pytest.fixture
def firewall() -> Iterator[LossyProxy]:
    """Runs a proxy in front of the run's PostgreSQL."""
    with LossyProxy(int(os.environ[plugin.POSTGRES_PORT])) as proxy:
        yield proxy


@pytest.fixture
def firewalled(
    firewall: LossyProxy, migrated_databases: MigratedDatabases, simulator: Simulator, tmp_path: Path
) -> Iterator[GatewayServer]:
    """Starts a gateway that reaches its database through the proxy."""
    env = PROVIDER_KEYS | SHORT_WAITS
    server = GatewayServer(migrated_databases, tmp_path, catalogue=catalogue(simulator), env=env)
    through = server.database_url.replace(f":{os.environ[plugin.POSTGRES_PORT]}/", f":{firewall.port}/")
    server.env = server.env | {"DATABASE_URL": through}
    with contextlib.closing(server):
        yield server.start()


def without_echo(served: dict[str, Any]) -> dict[str, Any]:
    echo = {"provider": "sim", "id": "test/echo"}
    models = [entry | {"state": "disabled"} if echo.items() <= entry.items() else entry for entry in served["models"]]
    return served | {"models": models}


def test_the_control_plane_asks_a_silent_connection_no_more(
    firewall: LossyProxy, firewalled: GatewayServer, open_account: OpenAccount
) -> None:
    customer = open_account(firewalled)
    for _ in ("before", "after"):
        assert customer.http.get("/v1/generations").status_code == 200
        firewall.forget_connections()


def test_connections_that_go_silent_are_found_and_replaced(
    firewall: LossyProxy,
    firewalled: GatewayServer,
    open_account: OpenAccount,
    clients: StreamClients,
    simulator: Simulator,
) -> None:
    customer = open_account(firewalled)
    (stream,) = clients.open(customer, "held")
    until_checkpointed(firewalled, 1)
    firewall.forget_connections()
    with ThreadPoolExecutor(4) as pool:
        assert [reply.status_code for reply in pool.map(lambda _: ask(customer, "echo"), range(4))] == [200] * 4
    firewalled.seed(without_echo(catalogue(simulator)))
    # The refresh may wait on a silent connection until `tcp_user_timeout` ends it.
    assert eventually(lambda: ask(customer, "echo").status_code == 404, within=REPLAYED_WITHIN)
    let_go(simulator)
    streamed = stream.result()
    assert (streamed.codes, streamed.done) == ([], True)
    assert eventually(lambda: waiting(firewalled) == [], within=REPLAYED_WITHIN)
    assert bills.record_of(firewalled, streamed.id).ending == "finished"
    assert len(bills.debits(customer)) == len(bills.records(customer)) > 4
