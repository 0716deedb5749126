"""What is left when a worker, the database or both die in the middle: each answer is billed once, or not at all."""

import contextlib
import os
import signal
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
import requests

from tests import bills, plugin
from tests.catalogue import catalogue_for, model
from tests.chat import ask
from tests.conftest import PROVIDER_KEYS, OpenAccount, StartGateway
from tests.envelope import refusal
from tests.inference.listeners import Heard, Listeners, listeners
from tests.patience import eventually
from tests.servers.customer import Customer
from tests.servers.databases import MigratedDatabases
from tests.servers.gateway import GatewayServer
from tests.servers.lossy_proxy import LossyProxy
from tests.servers.postgres import PrivatePostgres
from tests.servers.simulator import Simulator

LONG = "chunks:300:0.1"
BRIEF = "chunks:15:0.1"
LONG_AGO = "2026-01-01 00:00:00"
CHECKPOINTED_WITHIN = 15.0  # seconds: the first row comes with the first beat after five
REPLAYED_WITHIN = 30.0


def catalogue(simulator: Simulator) -> dict[str, Any]:
    return catalogue_for(
        simulator.url,
        model("long", upstream_model=LONG),
        model("counted", upstream_model=f"{LONG}+usage-every-chunk"),
        model("brief", upstream_model=BRIEF),
    )


@pytest.fixture(scope="module")
def server(start_shared_gateway: StartGateway, simulator: Simulator) -> GatewayServer:
    """One for the tests whose gateway recovers."""
    return start_shared_gateway(catalogue=catalogue(simulator))


@pytest.fixture
def customer(server: GatewayServer, open_account: OpenAccount) -> Customer:
    return open_account(server)


@pytest.fixture
def clients() -> Iterator[Listeners]:
    with listeners() as opened:
        yield opened


def checkpoints(server: GatewayServer) -> int:
    ((count,),) = server.query("SELECT count(*) FROM billing_checkpoint")
    return count


def until_checkpointed(server: GatewayServer, streams: int) -> None:
    assert eventually(lambda: checkpoints(server) == streams, within=CHECKPOINTED_WITHIN)


def as_if_long_ago(server: GatewayServer) -> None:
    """Nobody has renewed the checkpoints since."""
    server.query("UPDATE billing_checkpoint SET beat_at = %s", [LONG_AGO])


@contextlib.contextmanager
def frozen_for_long(server: GatewayServer) -> Iterator[None]:
    """The only worker stands still, but not in the middle of a transaction: that would lock all of SQLite's file."""
    (worker,) = server.worker_pids()
    try:
        freeze(worker)
        while is_in_a_transaction(server):
            os.kill(worker, signal.SIGCONT)
            as_if_long_ago(server)  # as soon as the transaction has ended
            freeze(worker)
        as_if_long_ago(server)
        yield
    finally:
        os.kill(worker, signal.SIGCONT)


def freeze(worker: int) -> None:
    """Returns when it stands still."""
    os.kill(worker, signal.SIGSTOP)
    assert eventually(lambda: Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[0] == "T")


def is_in_a_transaction(server: GatewayServer) -> bool:
    """Whether somebody has SQLite's file locked. PostgreSQL's rows are locked one by one: `maintain` waits for none."""
    if not server.database_url.startswith("sqlite"):
        return False
    path = server.database_url.removeprefix("sqlite:///")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as lite:
        try:
            lite.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
        return False


def settled_by_maintain(server: GatewayServer, *, orphaned: int) -> None:
    told = server.manage("maintain", "--once").ok()
    assert f"settled 0 spooled and {orphaned} orphaned generations" in told


@contextlib.contextmanager
def locked(server: GatewayServer, customer: Customer) -> Iterator[None]:
    """Nobody can settle for this customer: its wallet is locked, on SQLite the whole file."""
    if server.database_url.startswith("sqlite"):
        path = server.database_url.removeprefix("sqlite:///")
        with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=10)) as lite:
            lite.execute("BEGIN IMMEDIATE")
            yield
            lite.execute("ROLLBACK")
        return
    with psycopg.connect(server.database_url) as holder:
        holder.execute("SELECT FROM billing_wallet WHERE account_id = %s FOR UPDATE", [customer.id])
        yield
        holder.rollback()


def streamed_and_whole(customer: Customer, clients: Listeners) -> tuple[Heard, requests.Response]:
    """Two answers at once."""
    with ThreadPoolExecutor(1) as pool:
        (streamed,) = clients.open(customer, "brief")
        asked = pool.submit(ask, customer, "echo", max_tokens=16)
        return streamed.result(), asked.result()


def waiting(server: GatewayServer) -> list[Path]:
    """Outcomes in the spool."""
    return [path for path in server.spool.glob("*") if path.suffix != ".poison"] if server.spool.is_dir() else []


# a worker dies


def test_what_a_killed_worker_had_delivered_is_settled_as_interrupted(
    server: GatewayServer, customer: Customer, clients: Listeners
) -> None:
    streams = clients.open(customer, "long", "counted", "stall")
    until_checkpointed(server, len(streams))
    (young,) = clients.open(customer, "long")
    victim = server.kill_worker()
    received = {said.id: said for said in (stream.result() for stream in streams)}
    assert young.result().text
    assert bills.records(customer) == []
    as_if_long_ago(server)
    settled_by_maintain(server, orphaned=len(streams))
    settled_by_maintain(server, orphaned=0)
    assert checkpoints(server) == 0
    assert len(bills.records(customer)) == len(bills.debits(customer)) == len(streams)
    for id_, said in received.items():
        record = bills.record_of(server, id_)
        assert (record.ending, record.interrupted) == ("worker_stopped", True)
        assert not said.done
        assert 0 < record.completion_tokens <= said.most_tokens
    assert server.query("SELECT 1 FROM billing_generation WHERE id = %s", [young.result().id[4:]]) == []
    assert eventually(lambda: server.healthy() and victim not in server.worker_pids())


@pytest.mark.postgres_is_enough
def test_a_frozen_worker_finds_that_its_streams_were_settled_and_ends_them(
    server: GatewayServer, customer: Customer, clients: Listeners, simulator: Simulator
) -> None:
    streams = clients.open(customer, "long", "stall")
    until_checkpointed(server, len(streams))
    with frozen_for_long(server):
        settled_by_maintain(server, orphaned=len(streams))
        settled = bills.records(customer)
    for stream in streams:
        said = stream.result()
        assert (said.codes, said.done) == (["service_unavailable"], False)
        assert "is stopping" not in said.messages[0]
        assert bills.record_of(server, said.id).completion_tokens <= said.most_tokens
    assert bills.records(customer) == settled
    assert len(bills.debits(customer)) == len(streams)
    assert simulator.stats(LONG)["open"] == 0
    assert ask(customer, "echo").status_code == 200


# the database does not settle


@pytest.mark.postgres_is_enough
def test_while_nobody_can_settle_answers_are_given_without_a_balance(
    server: GatewayServer, customer: Customer, clients: Listeners
) -> None:
    with locked(server, customer):
        said, whole = streamed_and_whole(customer, clients)
        assert len(waiting(server)) == 2
    assert said.done
    answers = {said.id: said.usage, whole.headers["X-Generation-Id"]: whole.json()["usage"]}
    assert_replayed_once(server, customer, answers)


def assert_replayed_once(server: GatewayServer, customer: Customer, answers: dict[str, Any]) -> None:
    """Each answer said its cost and no balance, and is in the ledger with just that, in the end."""
    assert all("remaining_balance" not in usage for usage in answers.values())
    assert eventually(lambda: len(bills.records(customer)) == len(answers), within=REPLAYED_WITHIN)
    assert eventually(lambda: waiting(server) == [])
    for id_, usage in answers.items():
        record = bills.record_of(server, id_)
        assert record.cost == bills.exact(usage["cost"])
        assert record.ending == "finished"
    assert sorted(bills.debits(customer)) == sorted(bills.exact(usage["cost"]) for usage in answers.values())


@pytest.mark.postgres_is_enough
def test_with_neither_database_nor_spool_nothing_is_billed_and_nobody_is_told_otherwise(
    start_gateway: StartGateway, open_account: OpenAccount, clients: Listeners, simulator: Simulator, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    broken = start_gateway(catalogue=catalogue(simulator), GATEWAY_SPOOL_DIR=str(tmp_path / "file" / "spool"))
    customer = open_account(broken)
    with locked(broken, customer):
        said, whole = streamed_and_whole(customer, clients)
    assert refusal(whole) == (500, "internal_server_error", "internal_server_error", None)
    assert (said.codes, said.done) == (["internal_server_error"], False)
    assert bills.untouched(customer)
    assert ask(customer, "echo").status_code == 200


def test_a_poison_file_is_set_aside_and_reported(server: GatewayServer) -> None:
    server.spool.mkdir(exist_ok=True)
    poison = server.spool / f"{'0' * 32}.outcome"
    poison.write_bytes(b"what a full disk left")
    assert eventually(lambda: poison.with_suffix(".poison").exists())
    assert not poison.exists()
    told = server.manage("maintain", "--once")
    assert (told.code, "1 spooled outcomes and 0 checkpoints cannot be settled" in told.stderr) == (0, True)
    poison.with_suffix(".poison").unlink()


# the worker is told to stop


@contextlib.contextmanager
def stopping(server: GatewayServer) -> Iterator[None]:
    """Told to stop at the beginning, and gone at the end."""
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(server.stop)
        yield
        assert ended.result() == 0


@pytest.mark.postgres_is_enough
def test_a_drain_that_cannot_settle_spools(
    start_gateway: StartGateway, open_account: OpenAccount, clients: Listeners, simulator: Simulator
) -> None:
    server = start_gateway(catalogue=catalogue(simulator))
    customer = open_account(server)
    with locked(server, customer):
        streams = clients.open(customer, "long", "stall")
        with stopping(server):
            received = [stream.result() for stream in streams]
        assert len(waiting(server)) == len(streams)
    server.start()
    assert eventually(lambda: len(bills.debits(customer)) == len(streams), within=REPLAYED_WITHIN)
    for said in received:
        record = bills.record_of(server, said.id)
        assert (record.ending, record.completion_tokens <= said.most_tokens) == ("worker_stopped", True)


@pytest.mark.postgres_is_enough
def test_a_long_drain_keeps_the_checkpoints_of_open_streams_fresh(
    start_gateway: StartGateway, open_account: OpenAccount, clients: Listeners, simulator: Simulator
) -> None:
    server = start_gateway(catalogue=catalogue(simulator), GATEWAY_DRAIN_TIMEOUT="9")
    streams = clients.open(open_account(server), "long", "stall")
    until_checkpointed(server, len(streams))
    with stopping(server):
        as_if_long_ago(server)
        renewed = "SELECT count(*) FROM billing_checkpoint WHERE beat_at > %s"
        assert eventually(lambda: server.query(renewed, ["2026-01-02 00:00:00"]) == [(len(streams),)])
        assert [stream.result().codes for stream in streams] == [["service_unavailable"]] * len(streams)
    assert checkpoints(server) == 0


# PostgreSQL itself dies


@pytest.fixture(scope="module")
def postgres() -> Iterator[PrivatePostgres]:
    """One to hurt."""
    if plugin.databases().kind != "postgres":
        pytest.skip("SQLite is no server")
    own = PrivatePostgres(synchronous_commit="on")
    with contextlib.closing(own):
        yield own.start()


@pytest.fixture(scope="module")
def fragile_databases(postgres: PrivatePostgres) -> MigratedDatabases:
    return MigratedDatabases(postgres)


@pytest.fixture(scope="module")
def fragile(
    fragile_databases: MigratedDatabases, simulator: Simulator, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayServer]:
    """A gateway on it."""
    folder = tmp_path_factory.mktemp("fragile")
    started = GatewayServer(fragile_databases, folder, catalogue=catalogue(simulator), env=PROVIDER_KEYS)
    with contextlib.closing(started):
        yield started.start()
        started.stop()
        started.manage("verify_ledger").ok()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT], ids=["shut down", "crashed"])
def test_answers_outlive_the_database(
    postgres: PrivatePostgres,
    fragile: GatewayServer,
    open_account: OpenAccount,
    clients: Listeners,
    simulator: Simulator,
    number: signal.Signals,
) -> None:
    customer = open_account(fragile)
    with ThreadPoolExecutor(1) as pool:
        (streamed,) = clients.open(customer, "brief")
        asked = pool.submit(ask, customer, "brief", max_tokens=16)
        assert eventually(lambda: simulator.stats(BRIEF)["open"] == 2)
        postgres.stop(number)
        said, whole = streamed.result(), asked.result()
    assert said.done
    assert whole.status_code == 200
    assert len(waiting(fragile)) == 2
    postgres.start()
    answers = {said.id: said.usage, whole.headers["X-Generation-Id"]: whole.json()["usage"]}
    assert_replayed_once(fragile, customer, answers)
    assert eventually(lambda: ask(customer, "echo").status_code == 200)


def test_a_database_that_goes_silent_is_not_waited_for_and_may_have_committed_after_all(
    postgres: PrivatePostgres, fragile: GatewayServer, open_account: OpenAccount, clients: Listeners
) -> None:
    customer = open_account(fragile)
    ask(customer, "echo")
    (streamed,) = clients.open(customer, "brief")
    with postgres.frozen():
        said = streamed.result()
    assert said.done
    assert said.usage is not None
    assert "remaining_balance" not in said.usage
    assert eventually(lambda: len(bills.debits(customer)) == 2 and waiting(fragile) == [], within=REPLAYED_WITHIN)
    assert bills.record_of(fragile, said.id).cost == bills.exact(said.usage["cost"])
    assert bills.balance(customer) == Decimal(100) - sum(bills.debits(customer))


@pytest.fixture
def hasty(fragile_databases: MigratedDatabases, simulator: Simulator, tmp_path: Path) -> Iterator[GatewayServer]:
    """A gateway on it that drains in less time than a silent database is waited for."""
    env = PROVIDER_KEYS | {"GATEWAY_DRAIN_TIMEOUT": "6"}
    with contextlib.closing(GatewayServer(fragile_databases, tmp_path, catalogue=catalogue(simulator), env=env)) as own:
        yield own.start()


def test_an_idle_client_is_let_go_by_a_drain_though_the_beat_hangs_in_the_database(
    postgres: PrivatePostgres, hasty: GatewayServer, open_account: OpenAccount
) -> None:
    assert ask(open_account(hasty), "echo").status_code == 200
    with postgres.frozen():
        assert hasty.stop(timeout=30) == 0
    assert "graceful timeout" not in hasty.log


# connections that a firewall forgets


@pytest.fixture
def firewall() -> Iterator[LossyProxy]:
    """In front of the run's PostgreSQL."""
    if plugin.databases().kind != "postgres":
        pytest.skip("SQLite is no server")
    with LossyProxy(int(os.environ[plugin.POSTGRES_PORT])) as proxy:
        yield proxy


@pytest.fixture
def behind(
    firewall: LossyProxy, migrated_databases: MigratedDatabases, simulator: Simulator, tmp_path: Path
) -> Iterator[GatewayServer]:
    """A gateway whose way to its database leads through it."""
    server = GatewayServer(migrated_databases, tmp_path, catalogue=catalogue(simulator), env=PROVIDER_KEYS)
    through = server.database_url.replace(f":{os.environ[plugin.POSTGRES_PORT]}/", f":{firewall.port}/")
    server.env = server.env | {"DATABASE_URL": through}
    with contextlib.closing(server):
        yield server.start()


def without_echo(served: dict[str, Any]) -> dict[str, Any]:
    echo = {"provider": "sim", "id": "test/echo"}
    models = [entry | {"state": "disabled"} if echo.items() <= entry.items() else entry for entry in served["models"]]
    return served | {"models": models}


def test_the_control_plane_asks_a_silent_connection_no_more(
    firewall: LossyProxy, behind: GatewayServer, open_account: OpenAccount
) -> None:
    customer = open_account(behind)
    for _ in ("before", "after"):
        assert customer.http.get("/v1/generations").status_code == 200
        firewall.forget_connections()


def test_connections_that_go_silent_are_found_and_replaced(
    firewall: LossyProxy, behind: GatewayServer, open_account: OpenAccount, clients: Listeners, simulator: Simulator
) -> None:
    customer = open_account(behind)
    (stream,) = clients.open(customer, "long")
    until_checkpointed(behind, 1)
    firewall.forget_connections()
    with ThreadPoolExecutor(4) as pool:
        assert [reply.status_code for reply in pool.map(lambda _: ask(customer, "echo"), range(4))] == [200] * 4
    behind.seed(without_echo(catalogue(simulator)))
    assert eventually(lambda: ask(customer, "echo").status_code == 404)
    said = stream.result()
    assert (said.codes, said.done) == ([], True)
    assert eventually(lambda: waiting(behind) == [], within=REPLAYED_WITHIN)
    assert bills.record_of(behind, said.id).ending == "finished"
    assert len(bills.debits(customer)) == len(bills.records(customer)) > 4
