"""Provides a gateway that keeps a log."""

import pytest

from tests.conftest import StartGateway
from tests.proof.log import KEY
from tests.servers.gateway import GatewayServer


@pytest.fixture(scope="module")
def log_gateway(start_shared_gateway: StartGateway) -> GatewayServer:
    """Starts two workers that append to the log each second."""
    return start_shared_gateway(
        LOG_KEY=KEY.to_text(), WEB_CONCURRENCY="2", DJANGO_SETTINGS_MODULE="tests.proof.short_intervals"
    ).stocked()
