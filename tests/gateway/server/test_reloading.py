"""After SIGHUP, new workers have the current settings and credentials of the environment's file."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.catalogue import catalogue_for
from tests.chat import HELLO
from tests.conftest import OpenAccount, StartGateway
from tests.patience import eventually
from tests.servers.customer import Customer
from tests.servers.databases import SeededDatabases
from tests.servers.gateway import GatewayServer
from tests.servers.simulator import Simulator


class Serve(GatewayServer):
    """Runs a gateway by `manage.py serve`, which reads the file before gunicorn does."""

    def command(self) -> list[str]:
        return [sys.executable, "manage.py", "serve"]


@pytest.fixture(params=[GatewayServer, Serve])
def by_file(
    request: pytest.FixtureRequest, seeded_databases: SeededDatabases, simulator: Simulator, tmp_path: Path
) -> Iterator[GatewayServer]:
    (tmp_path / "gateway.env").write_text("GATEWAY_ALIAS_LIMIT=1\n")
    env = {"ENV_FILE": str(tmp_path / "gateway.env")}
    server = request.param(seeded_databases, tmp_path, catalogue=catalogue_for(simulator.url), env=env)
    with closing(server):
        yield server.start()
        server.verify()


def test_a_reload_reads_the_file_anew(by_file: GatewayServer, open_account: OpenAccount, tmp_path: Path) -> None:
    server, file = by_file, tmp_path / "gateway.env"
    customer = open_account(server)
    assert _asked(customer) == 503
    file.write_text("# a new provider\nSIM_ABSENT_KEY=a-new-credential\nGATEWAY_ALIAS_LIMIT=2\nWEB_CONCURRENCY=2\n")
    _reload(server)
    assert _asked(customer) == 200
    for name in ("one", "two"):
        reply = customer.http.post("/v1/aliases", json={"name": name, "target": "sim/test/echo/FRPAR"})
        assert reply.status_code == 201
    file.write_text("# what is gone is not there\n")
    _reload(server)
    assert _asked(customer) == 503


def test_a_bad_value_leaves_the_settings_as_they_were(
    start_gateway: StartGateway, open_account: OpenAccount, tmp_path: Path
) -> None:
    file = tmp_path / "gateway.env"
    file.write_text("SIM_ABSENT_KEY=a-credential\n")
    server = start_gateway(ENV_FILE=str(file))
    customer = open_account(server)
    file.write_text("GATEWAY_BODY_TIMEOUT=soon\n")
    _reload(server)
    assert "The settings stay as they were: GATEWAY_BODY_TIMEOUT is a number of seconds above zero." in server.log
    assert _asked(customer) == 200
    file.unlink()
    _reload(server)
    assert "The settings stay as they were: ENV_FILE is a file that can be read." in server.log
    assert _asked(customer) == 200


def _asked(customer: Customer) -> int:
    body = {"model": "nokey/test/echo", "messages": HELLO}
    return customer.http.post("/v1/chat/completions", json=body).status_code


def _reload(server: GatewayServer) -> None:
    before = set(server.worker_pids())
    os.kill(server.master_pid, signal.SIGHUP)
    assert eventually(lambda: bool(now := server.worker_pids()) and before.isdisjoint(now), within=60)
    assert eventually(server.healthy, within=60)
