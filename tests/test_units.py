"""The commands of the units in deploy/systemd run as systemd would run them, with the shipped nginx in front."""

import os
import re
import shlex
import subprocess
import sys
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Self

import environ
import pytest

from tests.catalogue import catalogue_for
from tests.conftest import PROVIDER_KEYS
from tests.crowd import Crowd, crowded
from tests.patience import eventually
from tests.servers.databases import SeededDatabases
from tests.servers.gateway import GatewayServer
from tests.servers.nginx import Nginx
from tests.servers.process import ROOT, ServerProcess, free_port
from tests.servers.programs import find_program
from tests.servers.simulator import Simulator

FOLDER = ROOT / "deploy" / "systemd"
UNITS = sorted(FOLDER.glob("*.service"))
DEPLOYMENT = (ROOT / "docs" / "deployment.md").read_text()
MOST_EXPOSED = 3.0
SECRET = "s3cret"
IN_THE_FILE = ("SECRET_KEY", "DATABASE_URL", "PUBLIC_URL", "ALLOWED_HOSTS", "GATEWAY_IP_RATE", "GATEWAY_DRAIN_TIMEOUT")


def values(unit: Path, name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", unit.read_text(), re.MULTILINE)


def as_systemd(text: str) -> dict[str, str]:
    """Parses a file as EnvironmentFile= does: lines of NAME=value, and comments that begin a line (systemd.exec(5))."""
    lines = (line.strip() for line in text.splitlines())
    return dict(line.split("=", 1) for line in lines if line and line[0] not in "#;")


def as_django_environ(path: Path) -> dict[str, str]:
    before = dict(os.environ)
    try:
        os.environ.clear()
        environ.Env.read_env(path)
        return dict(os.environ)
    finally:
        os.environ.clear()
        os.environ.update(before)


def test_the_settings_of_the_document_are_the_same_by_systemd_and_by_us_and_start(tmp_path: Path) -> None:
    block = DEPLOYMENT.split("The settings of a production")[1].split("## Is it well?")[0]
    text = "\n".join(re.findall(r"^    (.*)$", block, re.MULTILINE)).replace("…", SECRET)
    file = tmp_path / "gateway.env"
    file.write_text(text)
    by_systemd = as_systemd(text)
    assert by_systemd == as_django_environ(file)
    assert by_systemd["WEB_CONCURRENCY"].isdigit()
    assert by_systemd["SECRET_KEY"] == by_systemd["SCALEWAY_API_KEY"] == SECRET
    for env in (by_systemd, {"ENV_FILE": str(file)}):
        done = subprocess.run(
            [sys.executable, "-c", "from django.conf import settings as s; print(s.SECRET_KEY, s.WEB_CONCURRENCY)"],
            env={"PATH": os.environ["PATH"], "DJANGO_SETTINGS_MODULE": "gateway.settings", **env},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout.split() == [SECRET, by_systemd["WEB_CONCURRENCY"]], done.stderr


def test_units_and_commands_of_the_document_have_the_settings() -> None:
    for unit in UNITS:
        assert "ENV_FILE=/etc/inference-gateway.env" in " ".join(values(unit, "Environment")), unit.name
        for command in re.findall(r"manage\.py (\w+)", unit.read_text()):
            assert command == "migrate" or list(ROOT.glob(f"*/management/commands/{command}.py")), command
    one_machine = DEPLOYMENT.split("## One machine")[1].split("## Containers")[0]
    upgrade = DEPLOYMENT.split("## Upgrade")[1]
    for line in re.findall(r"^    (.*manage\.py.*)$", one_machine + upgrade, re.MULTILINE):
        assert "ENV_FILE=/etc/inference-gateway.env" in line, line
    named = re.findall(r"inference-gateway[@-](?:\d+|migrate\b(?!\.env)|maintain)(?:\.\w+)?", one_machine + upgrade)
    for name in named:
        file = re.sub(r"@\d+", "@", name)
        assert (FOLDER / (file if "." in file else f"{file}.service")).exists(), name
    assert "MIGRATE_DATABASE_URL" not in FOLDER.joinpath("inference-gateway@.service").read_text()
    assert values(FOLDER / "inference-gateway-migrate.service", "EnvironmentFile") == [
        "-/etc/inference-gateway-migrate.env"
    ]


@pytest.mark.process
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_is_hardened(unit: Path) -> None:
    done = subprocess.run(
        [find_program("systemd-analyze"), "security", "--offline=true", "--no-pager", unit],
        capture_output=True,
        text=True,
        check=True,
    )
    level = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert level is not None
    assert float(level[1]) < MOST_EXPOSED


class Unit(GatewayServer):
    """Runs a gateway by the commands of `inference-gateway@.service`; `start` returns when systemd's would."""

    FILE = FOLDER / "inference-gateway@.service"

    def start(self, *, timeout: float = 120.0) -> Self:
        settings = self._folder / "gateway.env"
        settings.write_text("\n".join(f"{name}={self.env[name]}" for name in IN_THE_FILE if name in self.env))
        given = shlex.split(" ".join(values(self.FILE, "Environment")).replace("%i", str(self.port)))
        env = dict(each.split("=", 1) for each in given) | {
            "PATH": os.environ["PATH"],
            # The folders belong to the test, and its ports are too high to be prefixed with 1.
            "ENV_FILE": str(settings),
            "GATEWAY_SPOOL_DIR": str(self.spool),
            "METRICS_BIND": f"127.0.0.1:{self._metrics_port}",
        }
        self._process = ServerProcess(self.command(), log=self._folder / "gateway.log", env=env)
        self._process.wait_until(self.healthy, timeout=timeout)
        return self

    def command(self) -> list[str]:
        return self._of("ExecStart")

    def healthy(self) -> bool:
        return subprocess.run(self._of("ExecStartPost"), check=False).returncode == 0

    @cached_property
    def _metrics_port(self) -> int:
        return free_port()

    def _of(self, name: str) -> list[str]:
        (line,) = values(self.FILE, name)
        binaries = str(Path(sys.executable).parent)
        line = line.replace("%i", str(self.port)).replace("/opt/inference-gateway/.venv/bin", binaries)
        program, *arguments = shlex.split(line)
        return [program if program.startswith(binaries) else find_program(Path(program).name), *arguments]


@pytest.mark.long
@pytest.mark.process
def test_two_units_behind_nginx_restart_one_after_the_other_and_refuse_nothing(
    seeded_databases: SeededDatabases, simulator: Simulator, tmp_path: Path
) -> None:
    """`systemctl restart inference-gateway@8001 && systemctl restart inference-gateway@8002`, under load."""
    folders = [tmp_path / name for name in ("one", "other", "nginx")]
    for folder in folders:
        folder.mkdir()
    one = Unit(seeded_databases, folders[0], catalogue=catalogue_for(simulator.url), env=PROVIDER_KEYS)
    with closing(one):
        other = Unit(seeded_databases, folders[1], env=PROVIDER_KEYS | {"DATABASE_URL": one.database_url})
        with closing(other):
            one.start()
            other.start()
            with Nginx([one.port, other.port], folders[2]) as nginx:
                direct, one.origin = one.origin, nginx.origin
                with crowded(one, ("echo", "echo", "chunks"), clients=4) as crowd:
                    for each in (one, other):
                        goes_on(crowd)
                        assert each.stop(timeout=60) == 0
                        each.start()
                    goes_on(crowd)
                assert not crowd.refused, nginx.lost()
                one.origin = direct
            assert all(each.whole for each in crowd.received)
        one.stop()
        one.manage("verify_ledger").ok()


def goes_on(crowd: Crowd) -> None:
    answers = len(crowd.received)
    assert eventually(lambda: len(crowd.received) > answers + 20)
