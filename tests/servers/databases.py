"""Fresh, migrated databases in milliseconds: copies of one that was migrated once."""

import fcntl
import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Protocol

from tests.servers.process import ROOT, ServerError


class Databases(Protocol):
    """Where databases can be made: a folder of SQLite files, or a PostgreSQL server."""

    @property
    def kind(self) -> str:
        """`sqlite` or `postgres`."""

    def create_database(self, name: str, template: str | None = None) -> str:
        """Creates the database, as a copy of `template` where one is named, and returns its DATABASE_URL."""

    def drop_database(self, name: str) -> None:
        """Removes the database, if it exists."""


class SqliteDatabases:
    """One file per database."""

    kind = "sqlite"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def create_database(self, name: str, template: str | None = None) -> str:
        """Copies the template's file; without one, SQLite makes the file when it is first opened."""
        if template is not None:
            shutil.copyfile(self._path(template), self._path(name))
        return f"sqlite:///{self._path(name)}"

    def drop_database(self, name: str) -> None:
        for suffix in ("", "-wal", "-shm", "-journal"):
            self._path(name, suffix).unlink(missing_ok=True)

    def _path(self, name: str, suffix: str = "") -> Path:
        return self._folder / f"{name}.sqlite3{suffix}"


_numbers = itertools.count(1)  # of this process, however many of these there are: a name is given once


class FreshDatabases(Protocol):
    """Databases that are ready for a gateway, one for each."""

    @property
    def kind(self) -> str:
        """`sqlite` or `postgres`."""

    def create(self) -> tuple[str, str]:
        """A new database: its name, for `drop`, and its DATABASE_URL."""

    def drop(self, name: str) -> None:
        """Removes it, if it exists."""


class MigratedDatabases:
    """Copies of a template that is migrated when the first copy is asked for.

    Processes that name the same file in `shared` copy one template, which the first of them migrates.
    """

    def __init__(self, databases: Databases, *, shared: Path | None = None) -> None:
        self._databases = databases
        self._shared = shared
        self._template: str | None = None

    @property
    def kind(self) -> str:
        return self._databases.kind

    def create(self) -> tuple[str, str]:
        """A new migrated database: its name, for `drop`, and its DATABASE_URL."""
        if self._template is None:
            self._template = self._own_template() if self._shared is None else self._shared_template(self._shared)
        return self.copy(self._template)

    def copy(self, template: str) -> tuple[str, str]:
        """A copy of a database that nobody is connected to."""
        name = f"gateway_{os.getpid()}_{next(_numbers)}"
        return name, self._databases.create_database(name, template=template)

    def drop(self, name: str) -> None:
        self._databases.drop_database(name)

    def _own_template(self) -> str:
        name = f"template_{os.getpid()}_{next(_numbers)}"
        try:
            manage(self._databases.create_database(name), "migrate", "--verbosity", "0")
        except ServerError:
            self._databases.drop_database(name)
            raise
        return name

    def _shared_template(self, file: Path) -> str:
        """The name in the file; whoever finds none migrates, while the others wait."""
        with file.open("a+") as names:
            fcntl.flock(names, fcntl.LOCK_EX)
            names.seek(0)
            name = names.read()
            if not name:
                name = self._own_template()
                names.write(name)
        return name


class SeededDatabases:
    """Copies of a migrated one that was seeded with a catalogue once, when the first copy is asked for."""

    def __init__(self, migrated: MigratedDatabases, catalogue: Path) -> None:
        self.migrated = migrated
        self._catalogue = catalogue
        self._template: str | None = None

    @property
    def kind(self) -> str:
        return self.migrated.kind

    def create(self) -> tuple[str, str]:
        """A new seeded database: its name, for `drop`, and its DATABASE_URL."""
        if self._template is None:
            self._template, url = self.migrated.create()
            manage(url, "seed_catalogue", str(self._catalogue))
        return self.migrated.copy(self._template)

    def drop(self, name: str) -> None:
        self.migrated.drop(name)


def manage(database_url: str, *arguments: str) -> None:
    """A management command in a process of its own: a database that somebody is connected to cannot be copied."""
    command = [sys.executable, "manage.py", *arguments]
    env = {**os.environ, "DATABASE_URL": database_url}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ServerError(f"{arguments[0]} failed:\n{done.stdout}{done.stderr}")
