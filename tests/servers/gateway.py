"""Runs the gateway as in production: gunicorn, its worker processes, and a database of its own."""

import json
import os
import signal
import sqlite3
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Self

import psycopg
import requests

from tests.patience import eventually
from tests.plugin import LedgerMismatch
from tests.servers.databases import FreshDatabases
from tests.servers.manage import Completed, ManageHelper, run_manage
from tests.servers.process import ServerError, ServerProcess, free_port

# Tests differ from the defaults, because one address sends every request, a leftover stream must not delay the end, and
# providers that fail on purpose must not be missing from another test's automatic choice.
TEST_DEFAULTS = {
    "GATEWAY_IP_RATE": "off",
    "GATEWAY_DRAIN_TIMEOUT": "3",
    "GATEWAY_AUTO_SKIP_DOWN": "false",
    "WEB_CONCURRENCY": "1",
}

FOLLOWED_WITHIN = 10.0  # seconds for a new version of the catalogue; a worker checks every two


class GatewayServer:
    """Runs one gateway, from its database to its last worker. `start` and `stop` may alternate; `close` ends it all."""

    def __init__(
        self,
        databases: FreshDatabases,
        folder: Path,
        *,
        catalogue: Mapping[str, Any] | Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._databases = databases
        self._folder = folder
        self._process: ServerProcess | None = None
        self.port = free_port()
        self.origin = f"http://127.0.0.1:{self.port}"
        self.base_url = f"{self.origin}/v1"
        self.spool = folder / "spool"
        self.stock: list[tuple[str, str, str]] | None = (
            None  # accounts for `Customer`: name, id, key; None: opened singly
        )
        self.opened_by: dict[str, str] = {}  # tests, by the names of the accounts that they opened
        self.verify_at_end = True  # a test that damages the ledger on purpose sets this to False
        self._database, self.database_url = (
            databases.create_seeded(catalogue) if isinstance(catalogue, Mapping) else databases.create()
        )
        self.env = self._environment(env or {})
        self._helper = ManageHelper(self.env, folder / "manage.log")
        if isinstance(catalogue, Path):
            self._seed_or_close(catalogue)

    def _seed_or_close(self, catalogue: Path) -> None:
        try:
            self.seed(catalogue)
        except BaseException:
            self.close()
            raise

    def _environment(self, overrides: Mapping[str, str]) -> dict[str, str]:
        own = {
            "BIND": "127.0.0.1",
            "PORT": str(self.port),
            "DATABASE_URL": self.database_url,
            "GATEWAY_SPOOL_DIR": str(self.spool),
            "PUBLIC_URL": self.origin,
            "PYTHONUNBUFFERED": "1",
        }
        return {**os.environ, **TEST_DEFAULTS, **own, **overrides}

    def start(self, *, timeout: float = 120.0) -> Self:
        """Starts gunicorn and returns once `/healthz` answers 200."""
        self._process = ServerProcess(self.command(), log=self._folder / "gateway.log", env=self.env)
        self._process.wait_until(self.healthy, timeout=timeout)
        return self

    def stocked(self) -> Self:
        """Makes accounts be opened in batches, which pays if more than ten tests need one each."""
        self.stock = []
        return self

    def command(self) -> list[str]:
        """Returns the command line of `start`."""
        return [sys.executable, "-m", "gunicorn", "-c", "python:gateway.gunicorn_conf", "gateway.wsgi"]

    def stop(self, number: signal.Signals = signal.SIGTERM, *, timeout: float = 15.0) -> int:
        """Signals gunicorn's master and waits for its end. The database stays, and `manage` still works."""
        if self._process is None:
            return 0
        process, self._process = self._process, None
        return process.stop(number, timeout=timeout)

    def verify(self) -> None:
        """Checks that every balance and every usage entry adds up.

        Raises LedgerMismatch, which names the tests whose accounts do not.
        """
        if not self.verify_at_end:
            return
        done = self.manage("verify_ledger")
        if done.code != 0:
            output = f"{done.stdout}{done.stderr}"
            tests = (f"{name}: {test}" for name, test in self.opened_by.items() if f"account {name}:" in output)
            raise LedgerMismatch("\n".join([output, *tests]))

    def close(self) -> None:
        """Stops everything and drops the database."""
        self.stop()
        self._helper.close()
        self._databases.drop(self._database)

    def healthy(self) -> bool:
        """Tells whether `/healthz` answers 200 now."""
        try:
            return (
                requests.get(f"http://127.0.0.1:{self.port}/healthz", timeout=2, allow_redirects=False).status_code
                == 200
            )
        except requests.RequestException:
            return False

    @property
    def log(self) -> str:
        """Returns everything that gunicorn and its workers have written so far."""
        path = self._folder / "gateway.log"
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def master_pid(self) -> int:
        """Returns the process id of gunicorn's master, for a signal after which `stop` should not wait."""
        if self._process is None:
            raise ServerError("the gateway is not running")
        return self._process.pid

    def worker_pids(self) -> list[int]:
        """Returns the worker processes, as Linux lists the children of the master's main thread."""
        children = Path(f"/proc/{self.master_pid}/task/{self.master_pid}/children").read_text()
        return [int(pid) for pid in children.split()]

    def kill_worker(self) -> int:
        """Kills one worker without warning and returns its process id; the master starts another by itself."""
        victim = self.worker_pids()[0]
        os.kill(victim, signal.SIGKILL)
        return victim

    def seed(self, catalogue: Mapping[str, Any] | Path, *flags: str) -> str:
        """Seeds a catalogue, given as its file or as its content, and returns what the command printed."""
        if not isinstance(catalogue, Path):
            path = self._folder / "catalogue.json"
            path.write_text(json.dumps(catalogue))
            catalogue = path
        return self.manage("seed_catalogue", str(catalogue), *flags).ok()

    def offer(self, *, providers: Sequence[Mapping[str, Any]] = (), models: Sequence[Mapping[str, Any]]) -> None:
        """Adds to the catalogue, and returns once every worker serves what was added."""
        before = self._catalogue_version()
        self.seed({"providers": providers, "models": models})
        if self._catalogue_version() != before:
            assert eventually(self._every_worker_follows)

    def _every_worker_follows(self) -> bool:
        """Tells whether every worker has loaded the current catalogue; after a while, increases its version.

        A worker logs what it loads, except at its start: if it started meanwhile, it logs the next version.
        """
        line = f"catalogue snapshot {self._catalogue_version()}:"
        if eventually(lambda: self.log.count(line) >= len(self.worker_pids()), within=FOLLOWED_WITHIN):
            return True
        self.query("UPDATE catalogue_catalogueversion SET version = version + 1")
        return False

    def _catalogue_version(self) -> int:
        ((version,),) = self.query("SELECT version FROM catalogue_catalogueversion")
        return int(version)

    def manage(self, *arguments: str) -> Completed:
        """Runs a management command on this server's database, in milliseconds."""
        return self._helper.run(*arguments)

    def manage_subprocess(self, *arguments: str, **env: str) -> Completed:
        """Runs a command in a real `manage.py` process, for tests about the process itself."""
        return run_manage({**self.env, **env}, *arguments)

    def query(self, statement: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Returns rows straight from the database, without Django. Placeholders are `%s` on both databases."""
        if self._databases.kind == "sqlite":
            path = self.database_url.removeprefix("sqlite:///")
            with closing(sqlite3.connect(path, isolation_level=None, timeout=10)) as lite:
                return lite.execute(statement.replace("%s", "?"), parameters).fetchall()
        with closing(psycopg.connect(self.database_url, autocommit=True)) as connection:
            cursor = connection.execute(statement.encode(), parameters or None)
            return cursor.fetchall() if cursor.description else []
