"""PgBouncer gives each transaction one of two connections: nothing may depend on which."""

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests import bills, plugin
from tests.catalogue import catalogue_for
from tests.chat import ask, stream
from tests.conftest import PROVIDER_KEYS, OpenAccount
from tests.servers.databases import MigratedDatabases
from tests.servers.gateway import GatewayServer
from tests.servers.pgbouncer import PrivatePgBouncer
from tests.servers.postgres import PostgresDatabases
from tests.servers.simulator import Simulator


@pytest.fixture
def pooled(
    migrated_databases: MigratedDatabases, simulator: Simulator, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayServer]:
    databases = plugin.databases()
    assert isinstance(databases, PostgresDatabases)
    with contextlib.closing(PrivatePgBouncer(databases)) as pooler:
        pooler.start()
        server = GatewayServer(
            migrated_databases,
            tmp_path_factory.mktemp("pooled"),
            catalogue=catalogue_for(simulator.url),
            env=PROVIDER_KEYS | {"DATABASE_TRANSACTION_POOLING": "true"},
        )
        with contextlib.closing(server):
            server.env["DATABASE_URL"] = server.database_url.replace(f":{databases.port}/", f":{pooler.port}/")
            yield server.start()
            server.stop()


def test_a_gateway_behind_a_transaction_pooler_bills_and_verifies(
    pooled: GatewayServer, open_account: OpenAccount
) -> None:
    customer = open_account(pooled)
    with ThreadPoolExecutor(8) as clients:
        list(clients.map(lambda _: ask(customer, "echo").raise_for_status(), range(40)))
    assert stream(customer, "chunks").chunks
    assert len(bills.debits(customer)) == 41
    assert len(customer.http.get("/v1/generations").json()["data"]) == 41
    assert customer.http.get("/v1/models").ok
    assert "prepared statement" not in pooled.log
    pooled.manage_subprocess("verify_ledger").ok()
    doctor = pooled.manage_subprocess("doctor")
    assert "WRONG database: Its role has no statement_timeout" in doctor.stdout
    doctor = pooled.manage_subprocess("doctor", DATABASE_TRANSACTION_POOLING="false")
    assert "WRONG database: DATABASE_URL leads to PgBouncer: set DATABASE_TRANSACTION_POOLING=true." in doctor.stdout
