"""Squashed migrations make what the originals made, and installations with some or all of the originals continue."""

import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing

import psycopg
import pytest

from tests import plugin
from tests.servers.manage import Completed
from tests.servers.postgres import postgres_binaries
from tests.servers.process import ROOT

pytestmark = [pytest.mark.also_sqlite, pytest.mark.process, pytest.mark.long]
ORIGINALS = ("-m", "tests.original_migrations")
OF_1_0 = {"accounts": "0005", "aliases": "0002", "catalogue": "0012", "billing": "0016"}
RIGHTS = """
    SELECT auth_group.name, django_content_type.app_label, auth_permission.codename FROM auth_group
    JOIN auth_group_permissions ON auth_group_permissions.group_id = auth_group.id
    JOIN auth_permission ON auth_permission.id = auth_group_permissions.permission_id
    JOIN django_content_type ON django_content_type.id = auth_permission.content_type_id
"""
NewDatabase = Callable[[str], str]


@pytest.fixture
def new_database() -> Iterator[NewDatabase]:
    """Makes an empty database for the test and returns its DATABASE_URL."""
    databases, made = plugin.databases(), list[str]()

    def make(name: str) -> str:
        made.append(f"squashed_{os.getpid()}_{name}")
        return databases.create_database(made[-1])

    yield make
    for name in made:
        databases.drop_database(name)


def test_a_new_installation_gets_the_schema_and_the_groups_of_the_originals(new_database: NewDatabase) -> None:
    new, old = new_database("new"), new_database("old")
    assert "0001_squashed_0022" in manage(new, "manage.py", "migrate").ok()
    assert "squashed" not in manage(old, *ORIGINALS, "migrate").ok()
    assert schema(new) == schema(old)
    assert len(rights(new)) > 40
    assert rights(new) == rights(old)


@pytest.mark.parametrize(
    "applied",
    [
        pytest.param(OF_1_0, id="1.0"),
        pytest.param({"accounts": "0001_initial"}, id="accounts alone", marks=pytest.mark.campaign),
        pytest.param({}, id="all", marks=pytest.mark.campaign),
    ],
)
def test_an_older_installation_goes_on_with_the_originals(new_database: NewDatabase, applied: dict[str, str]) -> None:
    old, new = new_database("old"), new_database("new")
    for target in applied.items() or [()]:
        manage(old, *ORIGINALS, "migrate", *target, "--verbosity", "0").ok()
    manage(new, "manage.py", "migrate", "--verbosity", "0").ok()
    manage(old, "manage.py", "migrate", "aliases", "--verbosity", "0").ok()  # one app first, as after an interruption
    manage(old, "manage.py", "migrate", "--verbosity", "0").ok()
    manage(old, "manage.py", "migrate", "--check").ok()
    assert schema(old) == schema(new)
    assert rights(old) == rights(new)


def manage(database_url: str, *arguments: str) -> Completed:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=os.environ | {"DATABASE_URL": database_url},
        capture_output=True,
        text=True,
        check=False,
    )
    return Completed(done.stdout, done.stderr, done.returncode)


def schema(database_url: str) -> list[str]:
    """Returns the statements that make the tables, on SQLite without the order of columns, which changes alter."""
    if database_url.startswith("sqlite:"):
        with closing(sqlite3.connect(database_url.removeprefix("sqlite:///"))) as lite:
            return sorted(
                line for (sql,) in lite.execute("SELECT sql FROM sqlite_master WHERE sql <> ''") for line in _parts(sql)
            )
    dump = subprocess.run(
        [postgres_binaries() / "pg_dump", "--schema-only", database_url], capture_output=True, text=True, check=True
    ).stdout
    return [line for line in dump.splitlines() if not line.startswith(("\\restrict", "\\unrestrict"))]


def _parts(sql: str) -> list[str]:
    """Splits a table into columns and constraints, each with the table's name; returns other statements whole."""
    if not sql.startswith("CREATE TABLE"):
        return [sql]
    head, _, body = sql.removesuffix(")").partition(" (")
    return [f"{head}: {part}" for part in re.split(r", (?=\"\w+\" [a-zA-Z]|CONSTRAINT )", body)]


def rights(database_url: str) -> list[tuple[str, ...]]:
    """Returns each group with each of its permissions."""
    if database_url.startswith("sqlite:"):
        with closing(sqlite3.connect(database_url.removeprefix("sqlite:///"))) as lite:
            return sorted(lite.execute(RIGHTS))
    with closing(psycopg.connect(database_url)) as connection:
        return sorted(connection.execute(RIGHTS).fetchall())
