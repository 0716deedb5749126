"""`manage.py doctor`: what the gateway needs, what is wrong with it, and what to do."""

import pytest

from tests.conftest import PROVIDER_KEYS
from tests.servers.gateway import GatewayServer

pytestmark = pytest.mark.sqlite_is_enough


def test_a_gateway_in_order_is_well(gateway: GatewayServer) -> None:
    ran = gateway.manage_subprocess("doctor")
    assert ran.code == 0, ran.stdout
    lines = dict(line.removeprefix("ok").strip().split(": ", 1) for line in ran.stdout.splitlines())
    assert {"settings", "database", "migrations", "cache", "disk", "mail", "catalogue", "provider sim"} <= lines.keys()
    assert PROVIDER_KEYS["SIM_API_KEY"] not in ran.stdout


def test_what_is_wrong_is_said_with_what_to_do(gateway: GatewayServer) -> None:
    ran = gateway.manage_subprocess(
        "doctor",
        DEBUG="true",
        DATABASE_URL="postgres://nobody:hidden@127.0.0.1:1/none",
        CACHE_URL="redis://:hidden@127.0.0.1:1/0",
        EMAIL_URL="smtp://user:hidden@127.0.0.1:1",
        GATEWAY_SPOOL_DIR="/proc/spool",
    )
    assert ran.code == 1
    wrong = [line.split(":")[0].removeprefix("WRONG ") for line in ran.stdout.splitlines() if line.startswith("WRONG")]
    assert wrong == ["settings", "database", "migrations", "records", "cache", "disk", "mail", "catalogue"]
    assert "hidden" not in ran.stdout + ran.stderr
