"""Provides a gateway that keeps a log, and the program for customers as a module."""

import decimal
import importlib.util
from collections.abc import Iterator
from types import ModuleType

import pytest

from tests.conftest import StartGateway
from tests.proof.customer import VERIFY
from tests.proof.log import KEY
from tests.servers.gateway import GatewayServer


@pytest.fixture(scope="module")
def log_gateway(start_shared_gateway: StartGateway) -> GatewayServer:
    """Starts two workers that append to the log each second."""
    return start_shared_gateway(
        LOG_KEY=KEY.to_text(), WEB_CONCURRENCY="2", DJANGO_SETTINGS_MODULE="tests.proof.short_intervals"
    ).stocked()


@pytest.fixture(scope="module")
def program() -> Iterator[ModuleType]:
    """Loads the program, for tests with hundreds of calls. It changes the decimal context of its process."""
    with decimal.localcontext():
        spec = importlib.util.spec_from_file_location("verify", VERIFY)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module
