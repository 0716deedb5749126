"""Seeds a catalogue in this process, and provides callers of the alias endpoints."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.db import connection, transaction

from catalogue import loader
from catalogue.routing import snapshot
from catalogue.routing.routes import Snapshot
from tests.aliases.caller import Caller
from tests.catalogue import BEHAVIOURS, catalogue_for, model, region
from tests.factories import forget_snapshot

UNREACHED = "http://127.0.0.1:9/v1"  # no test of this folder that uses this catalogue calls an upstream
POUNDS = {"currency": "GBP", "prompt_per_1m_tokens": 0.5, "completion_per_1m_tokens": 1.5}
MORE = [
    model("realtime", modality="realtime"),
    model("retired", retires_on="2020-01-01"),
    model("pounds", pricing=POUNDS),
    model("resting-half", state="unavailable", regions=[region("FRPAR"), region("DEFRA", state="disabled")]),
]
UNUSED = BEHAVIOURS.keys() - {"echo", "chunks"}  # seeded for every test: fewer are faster


_kept: list[tuple[str, Any]] = []  # statements that write the catalogue's rows, in a tenth of the time of seeding
_read: list[Snapshot] = []  # the only snapshot of these rows, while its grid applies: nothing changes one


@pytest.fixture
def served(db: None, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Seeds the catalogue of tests/catalogue.py, with what matters only to targets."""
    if not _kept:
        seed(tmp_path_factory.mktemp("served"))
        keep()
    with transaction.atomic(), connection.cursor() as cursor:  # foreign keys are checked at the end
        for statement, parameters in _kept:
            cursor.execute(statement, parameters)
    forget_snapshot()
    if _read:
        monkeypatch.setattr(snapshot, "_current", _read[0])
    snapshot.refresh()
    _read[:] = [snapshot.current()]
    yield
    forget_snapshot()


def seed(folder: Path) -> None:
    content = catalogue_for(UNREACHED, *MORE)
    content["models"] = [entry for entry in content["models"] if entry["id"].partition("/")[2] not in UNUSED]
    file = folder / "catalogue.json"
    file.write_text(json.dumps(content))
    loader.seed([file])


def keep() -> None:
    """Keeps the statements that write the current catalogue with the same keys, and drops any earlier ones."""

    def note(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        _kept.append((sql, params))
        return execute(sql, params, many, context)

    tables = [*apps.get_app_config("catalogue").get_models()]
    rows = {table: list(table._base_manager.all()) for table in tables}
    with transaction.atomic(), connection.cursor() as cursor, connection.execute_wrapper(note):
        for table in tables:
            cursor.execute(f"DELETE FROM {table._meta.db_table}")  # our own tables
        for table in tables:
            table._base_manager.bulk_create(rows[table])


@pytest.fixture
def caller(served: None) -> Caller:
    """Returns a fresh account's key."""
    return Caller.of()


@pytest.fixture
def stranger(served: None) -> Caller:
    """Returns another account's key."""
    return Caller.of()
