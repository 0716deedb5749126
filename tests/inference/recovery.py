"""Provides long streams for tests of crashes, and reads what is kept of them until they are settled."""

import contextlib
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import requests

from tests import bills
from tests.catalogue import catalogue_for, model
from tests.chat import ask
from tests.inference.stream_clients import PartialStream, StreamClients
from tests.patience import eventually
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer
from tests.servers.simulator import Simulator

SHORT_WAITS = {"DJANGO_SETTINGS_MODULE": "tests.inference.short_waits"}
LONG = "chunks:300:0.1"
HELD = "hold:2"
CHECKPOINTED_WITHIN = 15.0  # seconds: a row is written by the first beat after the first output
REPLAYED_WITHIN = 30.0


def catalogue(simulator: Simulator) -> dict[str, Any]:
    return catalogue_for(
        simulator.url,
        model("long", upstream_model=LONG),
        model("counted", upstream_model=f"{LONG}+usage-every-chunk"),
        model("held", upstream_model=HELD),
    )


def checkpoints(server: GatewayServer) -> int:
    ((count,),) = server.query("SELECT count(*) FROM billing_checkpoint")
    return count


def until_checkpointed(server: GatewayServer, streams: int) -> None:
    assert eventually(lambda: checkpoints(server) == streams, within=CHECKPOINTED_WITHIN)


@contextlib.contextmanager
def locked(server: GatewayServer, customer: Customer) -> Iterator[None]:
    """Prevents every settlement for this customer: locks its wallet, or on SQLite the whole file."""
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


def let_go(simulator: Simulator) -> None:
    """Lets the held answers continue to their ends."""
    requests.post(f"{simulator.origin}/let-go", params={"model": HELD}, timeout=30).raise_for_status()


def streamed_and_whole(
    customer: Customer, clients: StreamClients, simulator: Simulator
) -> tuple[PartialStream, requests.Response]:
    """Requests a stream and a whole answer at once."""
    with ThreadPoolExecutor(1) as pool:
        (streamed,) = clients.open(customer, "held")
        let_go(simulator)
        asked = pool.submit(ask, customer, "echo", max_tokens=16)
        return streamed.result(), asked.result()


def waiting(server: GatewayServer) -> list[Path]:
    """Returns the outcomes in the spool."""
    return [path for path in server.spool.glob("*") if path.suffix != ".poison"] if server.spool.is_dir() else []


def assert_replayed_once(server: GatewayServer, customer: Customer, answers: dict[str, Any]) -> None:
    """Checks that each answer stated its cost without a balance, and that the ledger has just that cost in the end."""
    assert all("remaining_balance" not in usage for usage in answers.values())
    assert eventually(lambda: len(bills.records(customer)) == len(answers), within=REPLAYED_WITHIN)
    assert eventually(lambda: waiting(server) == [])
    for id_, usage in answers.items():
        record = bills.record_of(server, id_)
        assert record.cost == bills.exact(usage["cost"])
        assert record.ending == "finished"
    assert sorted(bills.debits(customer)) == sorted(bills.exact(usage["cost"]) for usage in answers.values())
