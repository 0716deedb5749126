"""Runs a private PgBouncer that pools transactions, from the binary on the machine."""

import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Self

from tests.servers.postgres import PostgresDatabases, unprivileged_user
from tests.servers.process import ServerProcess, accepts, free_port
from tests.servers.programs import find_program

SETTINGS = """
[databases]
* = host=127.0.0.1 port={target} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 2
max_client_conn = 200
"""


class PrivatePgBouncer(PostgresDatabases):
    """Runs in front of a PostgreSQL on loopback, with two connections to each database for all clients."""

    def __init__(self, target: PostgresDatabases) -> None:
        super().__init__(free_port())
        self._folder = Path(tempfile.mkdtemp(prefix="gateway-pgbouncer-"))
        self._settings = SETTINGS.format(target=target.port, port=self.port)
        self._process: ServerProcess | None = None

    def start(self) -> Self:
        user = unprivileged_user()  # PgBouncer refuses to run as root
        path = self._folder / "pgbouncer.ini"
        path.write_text(self._settings)
        for each in (self._folder, path):
            if user is not None:
                shutil.chown(each, user)
        log = self._folder / "pgbouncer.log"
        self._process = ServerProcess([find_program("pgbouncer"), path], log=log, env=os.environ, user=user)
        self._process.wait_until(lambda: accepts(self.port))
        return self

    def close(self) -> None:
        """Stops it, which closes every connection."""
        if self._process is not None:
            self._process.stop(signal.SIGINT)
        shutil.rmtree(self._folder, ignore_errors=True)
