"""Provides the gateways that the tests of inference share."""

from collections.abc import Iterator

import pytest

from tests.conftest import PROVIDER_KEYS, OpenAccount, verified
from tests.inference import shapes
from tests.inference.stream_clients import StreamClients, stream_clients
from tests.servers.customer import Customer
from tests.servers.databases import MigratedDatabases
from tests.servers.gateway import GatewayServer
from tests.servers.pauses import SHORT, paused
from tests.servers.simulator import Simulator

# These budgets, in seconds, run out during a test, but are long enough for whatever is not slow on purpose.
BUDGETS = {
    "GATEWAY_FIRST_BYTE_TIMEOUT": "0.4",
    "GATEWAY_STREAM_IDLE_TIMEOUT": "0.4",
    "GATEWAY_OVERALL_TIMEOUT": "0.9",
}


@pytest.fixture(scope="session")
def gateway(
    migrated_databases: MigratedDatabases, simulator: Simulator, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayServer]:
    """Starts the shared gateway of the tests of inference: every behaviour in every shape (shapes.py)."""
    folder = tmp_path_factory.mktemp("inference")
    server = GatewayServer(migrated_databases, folder, catalogue=shapes.catalogue(simulator.url), env=PROVIDER_KEYS)
    server.stock = []
    with verified(server):
        yield server.start()


@pytest.fixture(scope="session")
def hurried_gateway(
    migrated_databases: MigratedDatabases, simulator: Simulator, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayServer]:
    """Starts that gateway with budgets that run out during a test."""
    folder = tmp_path_factory.mktemp("hurried")
    env = PROVIDER_KEYS | BUDGETS | paused(SHORT)
    server = GatewayServer(migrated_databases, folder, catalogue=shapes.catalogue(simulator.url), env=env)
    server.stock = []
    with verified(server):
        yield server.start()


@pytest.fixture(scope="session")
def failover_gateway(
    migrated_databases: MigratedDatabases, simulator: Simulator, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayServer]:
    """Starts that gateway with failover between the candidates of an auto request. A first byte may take a second."""
    folder = tmp_path_factory.mktemp("failover")
    env = PROVIDER_KEYS | {"GATEWAY_AUTO_FAILOVER": "true", "GATEWAY_FIRST_BYTE_TIMEOUT": "1"}
    server = GatewayServer(migrated_databases, folder, catalogue=shapes.catalogue(simulator.url), env=env)
    server.stock = []
    with verified(server):
        yield server.start()


@pytest.fixture
def hurried_account(hurried_gateway: GatewayServer, open_account: OpenAccount) -> Customer:
    """Opens a fresh account on the hurried gateway."""
    return open_account(hurried_gateway)


@pytest.fixture
def clients() -> Iterator[StreamClients]:
    with stream_clients() as opened:
        yield opened
