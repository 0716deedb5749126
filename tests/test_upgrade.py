"""An upgrade needs no downtime: gateways of an earlier commit and of this tree serve from one database together."""

import contextlib
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import plugin
from tests.catalogue import catalogue_for, model
from tests.conftest import PROVIDER_KEYS
from tests.crowd import Crowd, compare, crowded
from tests.patience import eventually
from tests.servers.databases import MigratedDatabases
from tests.servers.gateway import GatewayServer
from tests.servers.manage import Completed
from tests.servers.nginx import Nginx
from tests.servers.process import ROOT
from tests.servers.simulator import Simulator

pytestmark = pytest.mark.cluster
EARLIER = os.environ.get("UPGRADE_FROM", "b0c1dad")  # five migrations before 1.0.0
SLUGS = ("echo", "echo", "chunks", "brief")


class EmptyDatabases(MigratedDatabases):
    """Makes databases that have not been migrated."""

    def create(self) -> tuple[str, str]:
        name = f"upgraded_{uuid.uuid4().hex}"
        return name, self._databases.create_database(name)


class Release(GatewayServer):
    """Runs a gateway from the tree in a folder, which may change between `stop` and `start`."""

    tree = ROOT

    def command(self) -> list[str]:
        return ["env", "-C", str(self.tree), *super().command()]

    def manage(self, *arguments: str) -> Completed:
        command = [sys.executable, "manage.py", *arguments]
        done = subprocess.run(command, cwd=self.tree, env=self.env, capture_output=True, text=True, check=False)
        return Completed(done.stdout, done.stderr, done.returncode)


@pytest.fixture
def gateways(tmp_path: Path) -> Iterator[list[Release]]:
    """Makes two gateways on one empty database."""
    with contextlib.ExitStack() as stack:
        started: list[Release] = []
        env = PROVIDER_KEYS | {"GATEWAY_DRAIN_TIMEOUT": "10"}
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            started.append(Release(EmptyDatabases(plugin.databases()), tmp_path / name, env=env))
            stack.callback(started[-1].close)
            env |= {"DATABASE_URL": started[0].database_url}
        yield started


def test_two_gateways_go_from_an_earlier_commit_to_this_one(
    gateways: list[Release], simulator: Simulator, tmp_path: Path
) -> None:
    earlier = tmp_path / "earlier"
    earlier.mkdir()
    archive = subprocess.run(["git", "archive", EARLIER], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", earlier], input=archive, check=True)
    one, two = gateways
    one.tree = two.tree = earlier
    one.manage("migrate", "--verbosity", "0").ok()
    content = catalogue_for(simulator.url, model("brief", upstream_model="chunks:20:0.05"))
    one.seed(content)
    for gateway in gateways:
        gateway.start(timeout=60)
    figures: dict[str, tuple[int, int]] = {}
    with Nginx([one.port, two.port], tmp_path) as nginx:
        one.origin = nginx.origin
        with crowded(one, SLUGS, clients=8) as crowd:

            def step(name: str, act: Callable[[], object] = lambda: None) -> None:
                answers, refused = len(crowd.received), crowd.refused.total()
                act()
                goes_on(crowd)
                figures[name] = len(crowd.received) - answers, crowd.refused.total() - refused

            step("both of the earlier commit")
            one.tree = ROOT
            step("migrate with the new one", lambda: one.manage("migrate", "--verbosity", "0").ok())
            for gateway in gateways:
                step(f"stop {gateway.port}", lambda gateway=gateway: gateway.stop(timeout=30))  # type: ignore[misc]
                gateway.tree = ROOT
                step(f"start {gateway.port}", lambda gateway=gateway: gateway.start(timeout=60))  # type: ignore[misc]
                step(f"{gateway.port} is new")
        compared = compare(one, crowd, simulator.origin, content)
    print("", *figures.items(), dict(crowd.refused), nginx.lost(), compared, sep="\n")  # noqa: T201  # what it is run for
    for gateway in gateways:
        gateway.stop()
    one.manage("verify_ledger").ok()
    # A gateway of the earlier commit closes connections on which nginx may be sending when it is stopped.
    assert sum(refused for name, (_, refused) in figures.items() if not name.startswith("stop")) == 0
    assert all(each.whole for each in crowd.received)


def goes_on(crowd: Crowd) -> None:
    answers = len(crowd.received)
    assert eventually(lambda: len(crowd.received) > answers + 20, within=60)
