"""Runs the cluster of deploy/cluster behind the interface of a gateway: nginx's address and the primary's database."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.servers.databases import MigratedDatabases
from tests.servers.gateway import GatewayServer
from tests.servers.manage import ManageHelper
from tests.servers.postgres import PostgresDatabases
from tests.servers.process import ROOT, ServerError

SCRIPT = ROOT / "deploy" / "cluster" / "cluster.py"
FOLDER = ROOT / "var" / "cluster"


class Cluster(GatewayServer):
    """Runs the cluster that `deploy/cluster/cluster.py up` has started; `close` takes it down."""

    def __init__(self) -> None:
        self.run("up")
        self._folder = FOLDER
        self.env = self.settings_of("gateway1")
        self.database_url = self.env["DATABASE_URL"]
        self._databases = MigratedDatabases(PostgresDatabases(urlsplit(self.database_url).port or 0))
        self.origin = self.env["PUBLIC_URL"]
        self.base_url = f"{self.origin}/v1"
        self._helper = ManageHelper(self.env, FOLDER / "manage.log")

    def run(self, *arguments: str) -> str:
        """Runs a command of the script and returns what it printed."""
        done = subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, check=False)
        if done.returncode:
            raise ServerError(f"cluster.py {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout.strip()

    def status(self) -> dict[str, Any]:
        """Returns which parts live, and which database is the primary."""
        return json.loads(self.run("status"))

    def settings_of(self, gateway: str) -> dict[str, str]:
        """Returns the environment of one of the two gateways."""
        lines = (FOLDER / gateway / "gateway.env").read_text().splitlines()
        own = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
        return {**os.environ, **own, "PYTHONUNBUFFERED": "1"}

    def spools(self) -> list[Path]:
        """Returns the files that wait in either gateway's spool."""
        return [path for gateway in ("gateway1", "gateway2") for path in (FOLDER / gateway / "spool").glob("*.*")]

    def close(self) -> None:
        """Ends every part; the logs stay in var/cluster."""
        self._helper.close()
        self.run("down")
