"""If a worker, the database or both die in the middle, each answer is billed once or not at all."""

import contextlib
import os
import signal
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests import bills
from tests.chat import ask
from tests.conftest import OpenAccount, StartGateway
from tests.envelope import message, refusal
from tests.inference.recovery import (
    LONG,
    REPLAYED_WITHIN,
    SHORT_WAITS,
    assert_replayed_once,
    catalogue,
    checkpoints,
    let_go,
    locked,
    streamed_and_whole,
    until_checkpointed,
    waiting,
)
from tests.inference.stream_clients import StreamClients
from tests.patience import eventually
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer
from tests.servers.simulator import Simulator

UNSETTLED = "Internal error while settling the charge. What was delivered is billed once at most."
LONG_AGO = "2026-01-01 00:00:00"


UNDER_WAY = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'
"""


@pytest.fixture(scope="module")
def server(start_shared_gateway: StartGateway, simulator: Simulator) -> GatewayServer:
    """Starts one gateway for the tests in which it recovers."""
    return start_shared_gateway(catalogue=catalogue(simulator), **SHORT_WAITS)


@pytest.fixture
def customer(server: GatewayServer, open_account: OpenAccount) -> Customer:
    return open_account(server)


def as_if_long_ago(server: GatewayServer) -> None:
    """Makes all checkpoints old, as if nothing had renewed them."""
    server.query("UPDATE billing_checkpoint SET beat_at = %s", [LONG_AGO])


@contextlib.contextmanager
def frozen_for_long(server: GatewayServer) -> Iterator[None]:
    """Freezes the only worker, but outside of a transaction, for whose locks others would wait."""
    (worker,) = server.worker_pids()
    try:
        freeze(worker)
        while is_in_a_transaction(server):
            os.kill(worker, signal.SIGCONT)
            assert eventually(lambda: not is_in_a_transaction(server))
            freeze(worker)
        as_if_long_ago(server)
        yield
    finally:
        os.kill(worker, signal.SIGCONT)


def freeze(worker: int) -> None:
    """Stops the worker with SIGSTOP and returns when it stands still."""
    os.kill(worker, signal.SIGSTOP)
    assert eventually(lambda: Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[0] == "T")


def is_in_a_transaction(server: GatewayServer) -> bool:
    """Tells whether the frozen worker may hold a lock: on rows in PostgreSQL, or on SQLite's whole file."""
    if not server.database_url.startswith("sqlite"):
        return server.query(UNDER_WAY) != [(0,)]
    path = server.database_url.removeprefix("sqlite:///")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as lite:
        try:
            lite.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
        return False


def settled_by_maintain(server: GatewayServer, *, orphaned: int) -> None:
    result = server.manage("maintain", "--once").ok()
    assert f"settled 0 spooled and {orphaned} orphaned generations" in result


# A worker dies.


@pytest.mark.also_sqlite
def test_what_a_killed_worker_had_delivered_is_settled_as_interrupted(
    server: GatewayServer, customer: Customer, clients: StreamClients
) -> None:
    streams = clients.open(customer, "long", "counted", "stall")
    until_checkpointed(server, len(streams))
    (young,) = clients.open(customer, "long")
    victim = server.kill_worker()
    received = {streamed.id: streamed for streamed in (stream.result() for stream in streams)}
    assert young.result().text
    assert bills.records(customer) == []
    as_if_long_ago(server)
    settled_by_maintain(server, orphaned=len(streams))
    settled_by_maintain(server, orphaned=0)
    assert checkpoints(server) == 0
    assert len(bills.records(customer)) == len(bills.debits(customer)) == len(streams)
    for id_, streamed in received.items():
        record = bills.record_of(server, id_)
        assert (record.ending, record.interrupted) == ("worker_stopped", True)
        assert not streamed.done
        assert 0 < record.completion_tokens <= streamed.most_tokens
    assert server.query("SELECT 1 FROM billing_generation WHERE id = %s", [young.result().id[4:]]) == []
    assert eventually(lambda: server.healthy() and victim not in server.worker_pids())


def test_a_frozen_worker_finds_that_its_streams_were_settled_and_ends_them(
    server: GatewayServer, customer: Customer, clients: StreamClients, simulator: Simulator
) -> None:
    streams = clients.open(customer, "long", "stall")
    until_checkpointed(server, len(streams))
    with frozen_for_long(server):
        settled_by_maintain(server, orphaned=len(streams))
        settled = bills.records(customer)
    for stream in streams:
        streamed = stream.result()
        assert (streamed.codes, streamed.done) == (["service_unavailable"], False)
        assert "is restarting" not in streamed.messages[0]
        assert bills.record_of(server, streamed.id).completion_tokens <= streamed.most_tokens
    assert bills.records(customer) == settled
    assert len(bills.debits(customer)) == len(streams)
    assert simulator.stats(LONG)["open"] == 0
    assert ask(customer, "echo").status_code == 200


# The database does not settle.


def test_answers_have_no_balance_while_settlement_is_impossible(
    server: GatewayServer, customer: Customer, clients: StreamClients, simulator: Simulator
) -> None:
    with locked(server, customer):
        streamed, whole = streamed_and_whole(customer, clients, simulator)
        assert len(waiting(server)) == 2
    assert streamed.done
    answers = {streamed.id: streamed.usage, whole.headers["X-Generation-Id"]: whole.json()["usage"]}
    assert_replayed_once(server, customer, answers)


def test_with_neither_database_nor_spool_only_a_checkpoint_is_billed_and_no_answer_says_otherwise(
    start_gateway: StartGateway, open_account: OpenAccount, clients: StreamClients, simulator: Simulator, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    spool = str(tmp_path / "file" / "spool")
    broken = start_gateway(catalogue=catalogue(simulator), GATEWAY_SPOOL_DIR=spool, **SHORT_WAITS)
    customer = open_account(broken)
    (held,) = clients.open(customer, "held")
    until_checkpointed(broken, 1)
    with locked(broken, customer):
        whole = ask(customer, "echo", max_tokens=16)
        let_go(simulator)
        kept = held.result()
    assert refusal(whole) == (500, "internal_server_error", "internal_server_error", None)
    assert (kept.codes, kept.done) == (["internal_server_error"], False)
    assert {message(whole), *kept.messages} == {UNSETTLED}
    assert bills.untouched(customer)
    as_if_long_ago(broken)
    settled_by_maintain(broken, orphaned=1)
    assert bills.records(customer) == [bills.record_of(broken, kept.id)]
    assert ask(customer, "echo").status_code == 200


def test_a_poison_file_is_set_aside_and_reported(server: GatewayServer) -> None:
    server.spool.mkdir(exist_ok=True)
    poison = server.spool / f"{'0' * 32}.outcome"
    poison.write_bytes(b"what a full disk left")
    assert eventually(lambda: poison.with_suffix(".poison").exists())
    assert not poison.exists()
    result = server.manage("maintain", "--once")
    assert (result.code, "1 spooled outcomes and 0 checkpoints cannot be settled" in result.stderr) == (0, True)
    poison.with_suffix(".poison").unlink()


# The worker receives the signal to stop.


@contextlib.contextmanager
def stopping(server: GatewayServer) -> Iterator[None]:
    """Tells the gateway to stop before the block, and waits for its end after it."""
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(server.stop)
        yield
        assert ended.result() == 0


def test_a_drain_that_cannot_settle_spools(server: GatewayServer, customer: Customer, clients: StreamClients) -> None:
    with locked(server, customer):
        streams = clients.open(customer, "long", "stall")
        with stopping(server):
            received = [stream.result() for stream in streams]
        assert len(waiting(server)) == len(streams)
    server.start()  # the other tests use it
    assert eventually(lambda: len(bills.debits(customer)) == len(streams), within=REPLAYED_WITHIN)
    for streamed in received:
        record = bills.record_of(server, streamed.id)
        assert (record.ending, record.completion_tokens <= streamed.most_tokens) == ("worker_stopped", True)


@pytest.mark.only_postgres
def test_what_a_worker_still_settles_when_it_ends_goes_to_the_spool(
    start_gateway: StartGateway, open_account: OpenAccount, clients: StreamClients, simulator: Simulator
) -> None:
    """Its statement waits for a lock for up to five seconds, but the worker only for two."""
    server = start_gateway(catalogue=catalogue(simulator), GATEWAY_DRAIN_TIMEOUT="1")
    customer = open_account(server)
    with locked(server, customer):
        (held,) = clients.open(customer, "stall")
        with stopping(server):
            streamed = held.result()
        assert len(waiting(server)) == 1
    server.start()
    assert eventually(lambda: len(bills.debits(customer)) == 1, within=REPLAYED_WITHIN)
    assert bills.record_of(server, streamed.id).ending == "worker_stopped"


def test_a_long_drain_keeps_the_checkpoints_of_open_streams_fresh(
    start_gateway: StartGateway, open_account: OpenAccount, clients: StreamClients, simulator: Simulator
) -> None:
    server = start_gateway(catalogue=catalogue(simulator), GATEWAY_DRAIN_TIMEOUT="30", **SHORT_WAITS)
    streams = clients.open(open_account(server), "held", "held")
    until_checkpointed(server, len(streams))
    with stopping(server):
        assert eventually(lambda: not server.healthy())
        as_if_long_ago(server)
        renewed = "SELECT count(*) FROM billing_checkpoint WHERE beat_at > %s"
        assert eventually(lambda: server.query(renewed, ["2026-01-02 00:00:00"]) == [(len(streams),)])
        let_go(simulator)
        assert all(stream.result().done for stream in streams)
    assert checkpoints(server) == 0
