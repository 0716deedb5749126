"""Makes fresh databases in milliseconds, by copying one that was migrated once, or seeded with a catalogue once."""

import fcntl
import hashlib
import itertools
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import psycopg

from tests.servers.manage import CLOSE_CONNECTIONS, ManageHelper
from tests.servers.process import ROOT, ServerError

NOWHERE = "http://127.0.0.1:9"  # replaces an upstream on this machine in a template
_LOCAL = re.compile(r"http://127\.0\.0\.1:\d+")


class Databases(Protocol):
    """Makes databases: as files of SQLite, or on a PostgreSQL server."""

    @property
    def kind(self) -> str:
        """Returns `sqlite` or `postgres`."""

    def create_database(self, name: str, template: str | None = None) -> str:
        """Creates the database, as a copy of `template` if one is named, and returns its DATABASE_URL."""

    def drop_database(self, name: str) -> None:
        """Removes the database, if it exists."""


class SqliteDatabases:
    """Keeps one file per database."""

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


_numbers = itertools.count(1)  # shared by all instances in the process, so that a name is used once


class FreshDatabases(Protocol):
    """Makes databases that are ready for a gateway, one for each gateway."""

    @property
    def kind(self) -> str:
        """Returns `sqlite` or `postgres`."""

    def create(self) -> tuple[str, str]:
        """Creates a database and returns its name, for `drop`, and its DATABASE_URL."""

    def create_seeded(self, catalogue: Mapping[str, Any]) -> tuple[str, str]:
        """Creates a database with this catalogue, and returns its name and DATABASE_URL."""

    def drop(self, name: str) -> None:
        """Removes the database, if it exists."""


class MigratedDatabases:
    """Copies templates: a migrated one, and for each catalogue one that was seeded after the migrations.

    A template is made when its first copy is needed. Processes with the same `shared` folder copy the same templates:
    the first of them makes one, while the others wait.
    """

    def __init__(self, databases: Databases, *, shared: Path | None = None) -> None:
        self._databases = databases
        self._shared = shared
        self._templates: dict[str, str] = {}

    @property
    def kind(self) -> str:
        return self._databases.kind

    def create(self) -> tuple[str, str]:
        """Creates a migrated database and returns its name, for `drop`, and its DATABASE_URL."""
        return self._copy(self._template("migrated", self._migrate))

    def create_seeded(self, catalogue: Mapping[str, Any]) -> tuple[str, str]:
        """Creates a database in which `seed_catalogue` has written this catalogue.

        Catalogues that differ only in their providers' ports share a template, because each worker has a simulator of
        its own: the providers' addresses are written into the copy.
        """
        addresses, nowhere = _without_addresses(catalogue)
        content = json.dumps(nowhere)
        key = hashlib.sha256(content.encode()).hexdigest()
        name, url = self._copy(self._template(key, lambda: self._seed(content)))
        try:
            _move_providers(url, addresses)
        except BaseException:
            self.drop(name)
            raise
        return name, url

    def drop(self, name: str) -> None:
        self._databases.drop_database(name)

    def _copy(self, template: str) -> tuple[str, str]:
        """Copies a database to which nothing is connected."""
        name = f"gateway_{os.getpid()}_{next(_numbers)}"
        return name, self._databases.create_database(name, template=template)

    def _template(self, key: str, make: Callable[[], str]) -> str:
        if key not in self._templates:
            self._templates[key] = make() if self._shared is None else _made_once(self._shared / key, make)
        return self._templates[key]

    def _migrate(self) -> str:
        name = f"template_{os.getpid()}_{next(_numbers)}"
        try:
            manage(self._databases.create_database(name), "migrate", "--verbosity", "0")
        except ServerError:
            self._databases.drop_database(name)
            raise
        return name

    def _seed(self, content: str) -> str:
        name, url = self.create()
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "catalogue.json"
            file.write_text(content)
            with ManageHelper({**os.environ, "DATABASE_URL": url}, Path(folder) / "manage.log") as helper:
                done = helper.run("seed_catalogue", str(file))
                helper.run(CLOSE_CONNECTIONS)
        if done.code != 0:
            self.drop(name)
            raise ServerError(f"seed_catalogue failed:\n{done.stdout}{done.stderr}")
        return name


def _made_once(file: Path, make: Callable[[], str]) -> str:
    """Returns the name in the file. The process that finds no file calls `make` and writes the name."""
    file.parent.mkdir(exist_ok=True)
    with file.open("a+") as names:
        fcntl.flock(names, fcntl.LOCK_EX)
        names.seek(0)
        name = names.read()
        if not name:
            name = make()
            names.write(name)
    return name


def _without_addresses(catalogue: Mapping[str, Any]) -> tuple[list[tuple[str, str]], Mapping[str, Any]]:
    """Returns address and slug of each provider on this machine, and the catalogue with NOWHERE for these addresses."""
    addresses, providers = [], []
    for entry in catalogue.get("providers", ()):
        address = entry.get("base_url", "")
        if _LOCAL.match(address):
            addresses.append((address.rstrip("/"), entry["slug"]))
            providers.append(entry | {"base_url": _LOCAL.sub(NOWHERE, address, count=1)})
        else:
            providers.append(entry)
    return addresses, {**catalogue, "providers": providers}


def _move_providers(database_url: str, addresses: Sequence[tuple[str, str]]) -> None:
    """Writes the addresses as seeding would have done. The version stays the same, because nothing has read it yet."""
    if not addresses:
        return
    statement = "UPDATE catalogue_provider SET base_url = %s WHERE slug = %s"
    if database_url.startswith("sqlite:"):
        with closing(sqlite3.connect(database_url.removeprefix("sqlite:///"))) as lite, lite:
            lite.executemany(statement.replace("%s", "?"), addresses)
    else:
        with closing(psycopg.connect(database_url)) as connection, connection, connection.cursor() as cursor:
            cursor.executemany(statement, addresses)


class SeededDatabases:
    """Makes migrated databases with a default catalogue, which is used unless another is given."""

    def __init__(self, migrated: MigratedDatabases, catalogue: Mapping[str, Any]) -> None:
        self.migrated = migrated
        self._catalogue = catalogue

    @property
    def kind(self) -> str:
        return self.migrated.kind

    def create(self) -> tuple[str, str]:
        """Creates a database with the default catalogue and returns its name, for `drop`, and its DATABASE_URL."""
        return self.migrated.create_seeded(self._catalogue)

    def create_seeded(self, catalogue: Mapping[str, Any]) -> tuple[str, str]:
        return self.migrated.create_seeded(catalogue)

    def drop(self, name: str) -> None:
        self.migrated.drop(name)


def manage(database_url: str, *arguments: str) -> None:
    """Runs a command in a process of its own, because a database with open connections cannot be copied."""
    command = [sys.executable, "manage.py", *arguments]
    env = {**os.environ, "DATABASE_URL": database_url}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ServerError(f"{arguments[0]} failed:\n{done.stdout}{done.stderr}")
