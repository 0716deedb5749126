"""PostgreSQL's primary dies and a standby takes its place, at the same address."""

import contextlib
import signal
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import psycopg
import pytest

from tests import bills
from tests.catalogue import catalogue_for
from tests.chat import answer, ask
from tests.conftest import PROVIDER_KEYS
from tests.inference.recovery import REPLAYED_WITHIN, SHORT_WAITS, waiting
from tests.patience import eventually
from tests.servers.customer import Customer
from tests.servers.databases import MigratedDatabases
from tests.servers.gateway import GatewayServer
from tests.servers.lossy_proxy import LossyProxy
from tests.servers.postgres import PrivatePostgres
from tests.servers.simulator import Simulator


@pytest.fixture
def primary() -> Iterator[PrivatePostgres]:
    with contextlib.closing(
        PrivatePostgres(wal_level="replica", max_wal_senders="4", synchronous_commit="on")
    ) as started:
        yield started.start()


def execute(server: PrivatePostgres, *statements: str) -> None:
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def bring_back(primary: PrivatePostgres) -> None:
    primary.start()
    execute(primary, "ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")


@pytest.mark.campaign
def test_a_commit_whose_answer_died_with_the_primary_is_billed_once_by_its_successor(
    primary: PrivatePostgres, simulator: Simulator, tmp_path: Path
) -> None:
    # With pooling, statements are sent as text, so that the proxy can recognise them.
    env = PROVIDER_KEYS | SHORT_WAITS | {"DATABASE_TRANSACTION_POOLING": "true"}
    server = GatewayServer(MigratedDatabases(primary), tmp_path, catalogue=catalogue_for(simulator.url), env=env)
    with contextlib.ExitStack() as stack:
        stack.callback(server.close)
        standby = PrivatePostgres.standby_of(primary)
        stack.callback(standby.close)
        standby.start()
        execute(primary, "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
        address = stack.enter_context(LossyProxy(primary.port))
        stack.callback(bring_back, primary)  # `close` drops the database there
        server.env["DATABASE_URL"] = server.database_url.replace(f":{primary.port}/", f":{address.port}/")
        server.start()
        customer = stack.enter_context(contextlib.closing(Customer.open(server)))
        first = answer(customer, "echo")

        def fail_over() -> None:
            primary.stop(signal.SIGQUIT)
            address.target_port = standby.port

        address.lose_answer_to(b"INSERT INTO billing_generation", fail_over)
        reply = ask(customer, "echo")
        assert (reply.status_code, address.lost) == (200, 1)
        second = reply.json()
        assert "remaining_balance" not in second["usage"]
        server.database_url = server.database_url.replace(f":{primary.port}/", f":{standby.port}/")
        assert len(bills.debits(customer)) == 2, "the lost answer's transaction was committed"
        assert len(waiting(server)) == 1

        execute(standby, "SELECT pg_promote()")
        assert eventually(lambda: waiting(server) == [], within=REPLAYED_WITHIN)
        third = answer(customer, "echo")
        costs = [bills.exact(each["usage"]["cost"]) for each in (first, second, third)]
        assert sorted(bills.debits(customer)) == sorted(costs)
        assert bills.balance(customer) == Decimal(100) - sum(costs)
        server.stop()
        server.manage_subprocess("verify_ledger", DATABASE_URL=server.database_url).ok()
