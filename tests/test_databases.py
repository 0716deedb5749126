"""A test database copied from a template has what the command would have written."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.db.models import DateTimeField

from tests.catalogue import catalogue_for, provider
from tests.servers.databases import MigratedDatabases
from tests.servers.gateway import GatewayServer

pytestmark = [pytest.mark.also_sqlite, pytest.mark.process]


def served_at(port: int) -> dict[str, Any]:
    """Builds a catalogue of a simulator at this port, of one at another port, and of one on another machine."""
    content = catalogue_for(f"http://127.0.0.1:{port}/v1")
    beside = provider("beside", f"http://127.0.0.1:{port + 1}/other/")
    return content | {"providers": [*content["providers"], beside, provider("far", "https://far.example/v1")]}


@pytest.fixture
def servers(migrated_databases: MigratedDatabases, tmp_path: Path) -> Iterator[list[GatewayServer]]:
    """Makes one server from a template that was made for other ports, and one that the command has seeded."""
    with ExitStack() as stack:
        opened = []
        for name, catalogue in (("first", served_at(1)), ("copied", served_at(3)), ("seeded", None)):
            (tmp_path / name).mkdir()
            server = GatewayServer(migrated_databases, tmp_path / name, catalogue=catalogue)
            opened.append(stack.enter_context(closing(server)))
        opened[-1].seed(served_at(3))
        yield opened[1:]


def test_a_copy_of_a_seeded_database_has_what_the_command_writes(servers: list[GatewayServer]) -> None:
    copied, seeded = servers
    for table in apps.get_app_config("catalogue").get_models():
        columns = [str(field.column) for field in table._meta.concrete_fields if not isinstance(field, DateTimeField)]
        statement = f"SELECT {', '.join(columns)} FROM {table._meta.db_table} ORDER BY 1"  # our own tables
        assert copied.query(statement) == seeded.query(statement)
    assert copied.query(
        "SELECT base_url FROM catalogue_provider WHERE slug IN ('sim', 'beside', 'far') ORDER BY 1"
    ) == [
        ("http://127.0.0.1:3/v1",),
        ("http://127.0.0.1:4/other",),
        ("https://far.example/v1",),
    ]
    assert copied.query("SELECT version FROM catalogue_catalogueversion") == [(1,)]
    assert "created 0, updated 0," in copied.seed(served_at(3))
