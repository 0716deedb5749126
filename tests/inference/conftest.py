"""Provides the gateways that the tests of inference share."""

import contextlib
from collections.abc import Callable, Iterator, Mapping

import pytest

from tests.conftest import PROVIDER_KEYS, OpenAccount, verified
from tests.inference import shapes
from tests.inference.stream_clients import StreamClients, stream_clients
from tests.servers.customer import Customer
from tests.servers.databases import MigratedDatabases
from tests.servers.gateway import GatewayServer
from tests.servers.pauses import SHORT, paused
from tests.servers.simulator import Simulator

StartStockedGateway = Callable[[Mapping[str, str]], GatewayServer]
# These budgets, in seconds, run out during a test, but are long enough for whatever is not slow on purpose.
BUDGETS = {
    "GATEWAY_FIRST_BYTE_TIMEOUT": "0.8",
    "GATEWAY_STREAM_IDLE_TIMEOUT": "0.4",
    "GATEWAY_OVERALL_TIMEOUT": "1.3",
}


@pytest.fixture(scope="session")
def start_stocked_gateway(
    migrated_databases: MigratedDatabases, simulator: Simulator, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StartStockedGateway]:
    """Starts gateways with every behaviour in every shape (shapes.py) and further settings."""
    with contextlib.ExitStack() as stack:

        def start(env: Mapping[str, str]) -> GatewayServer:
            folder, catalogue = tmp_path_factory.mktemp("inference"), shapes.catalogue(simulator.url)
            server = GatewayServer(migrated_databases, folder, catalogue=catalogue, env={**PROVIDER_KEYS, **env})
            server.stock = []
            stack.enter_context(verified(server))
            return server.start()

        yield start


@pytest.fixture(scope="session")
def gateway(start_stocked_gateway: StartStockedGateway) -> GatewayServer:
    """Starts the shared gateway of the tests of inference."""
    return start_stocked_gateway({})


@pytest.fixture(scope="session")
def hurried_gateway(start_stocked_gateway: StartStockedGateway) -> GatewayServer:
    """Starts that gateway with budgets that run out during a test."""
    return start_stocked_gateway(BUDGETS | paused(SHORT))


@pytest.fixture(scope="session")
def failover_gateway(start_stocked_gateway: StartStockedGateway) -> GatewayServer:
    """Starts that gateway with failover between the candidates of an auto request. A first byte may take a second."""
    return start_stocked_gateway({"GATEWAY_AUTO_FAILOVER": "true", "GATEWAY_FIRST_BYTE_TIMEOUT": "1"})


@pytest.fixture
def hurried_account(hurried_gateway: GatewayServer, open_account: OpenAccount) -> Customer:
    """Opens a fresh account on the hurried gateway."""
    return open_account(hurried_gateway)


@pytest.fixture
def clients() -> Iterator[StreamClients]:
    with stream_clients() as opened:
        yield opened
