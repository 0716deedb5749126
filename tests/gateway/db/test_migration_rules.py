"""`make check` fails on a migration that would harm the release that serves while it runs."""

from typing import Any

import pytest
from django.db import models
from django.db.migrations import Migration
from django.db.migrations.operations import (
    AddConstraint,
    AddField,
    AddIndex,
    AlterField,
    CreateModel,
    DeleteModel,
    RemoveConstraint,
    RemoveField,
    RenameField,
    RunPython,
    RunSQL,
    SeparateDatabaseAndState,
)
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

from gateway.db.migration_rules import broken, faults_of
from gateway.db.online_index import AddIndexOnline
from tests.original_migrations import use_originals

# These original migrations are older than the rules; their tables were small or new then.
OLDER = {
    ("billing", "0002_ledger_is_append_only"),
    ("billing", "0005_credit_and_alerts"),
    ("catalogue", "0003_first_offered_at"),
    ("catalogue", "0004_what_upstreams_take"),
    ("catalogue", "0006_price_tiers"),
}

RECORD = CreateModel(
    "Record",
    [
        ("id", models.BigAutoField(primary_key=True)),
        ("name", models.CharField(max_length=10, null=True)),
        ("count", models.IntegerField(default=0)),
    ],
    options={"constraints": [models.UniqueConstraint(fields=["name"], name="one")]},
)
BY_NAME = models.Index(fields=["name"], name="by_name")


def _faults(*operations: Operation) -> list[str]:
    state = ProjectState()
    RECORD.state_forwards("things", state)
    later = type("Migration", (Migration,), {"operations": operations})("0002_later", "things")
    return [fault for fault, _ in faults_of(later, state)]


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        (AddField("record", "kind", models.IntegerField(default=1)), "NOT NULL without a db_default"),
        (AddField("record", "kind", models.IntegerField(null=True, db_index=True)), "builds an index"),
        (AlterField("record", "name", models.CharField(max_length=10)), "reads the whole table"),
        (AlterField("record", "name", models.CharField(max_length=10, null=True, unique=True)), "builds an index"),
        (AlterField("record", "name", models.CharField(max_length=5, null=True)), "varchar(10) becomes varchar(5)"),
        (AlterField("record", "count", models.BigIntegerField()), "integer becomes bigint"),
        (AddIndex("record", BY_NAME), "builds an index"),
        (AddConstraint("record", models.CheckConstraint(condition=models.Q(count=0), name="none")), "reads the whole"),
        (RemoveField("record", "name"), "drops a column"),
        (RemoveConstraint("record", "one"), "ON CONFLICT"),
        (RenameField("record", "name", "title"), "renames a column"),
        (DeleteModel("Record"), "drops a table"),
        (RunSQL("UPDATE things_record SET count = 1"), "code that no rule can check"),
        (RunPython(RunPython.noop), "code that no rule can check"),
        (SeparateDatabaseAndState(database_operations=[RemoveField("record", "name")]), "drops a column"),
    ],
)
def test_what_hurts_is_a_fault(operation: Operation, reason: str) -> None:
    (fault,) = _faults(operation)
    assert reason in fault


@pytest.mark.parametrize(
    "operations",
    [
        [AddField("record", "kind", models.IntegerField(null=True))],
        [AddField("record", "kind", models.IntegerField(db_default=1))],
        [AlterField("record", "name", models.CharField(max_length=20, null=True))],
        [AlterField("record", "count", models.IntegerField(default=2, null=True))],
        [AddIndexOnline("record", BY_NAME)],
        [CreateModel("Other", [("id", models.BigAutoField(primary_key=True))]), AddIndex("other", BY_NAME)],
        [SeparateDatabaseAndState(state_operations=[RemoveField("record", "name")])],
    ],
    ids=["null", "db_default", "wider", "may be null", "online", "new table", "state alone"],
)
def test_operations_that_the_previous_release_survives_are_allowed(operations: list[Any]) -> None:
    assert _faults(*operations) == []


def test_the_migrations_of_this_release_have_no_fault() -> None:
    assert broken() == []


def test_the_originals_of_squashed_migrations_have_only_faults_that_are_older_than_the_rules(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_originals(monkeypatch)
    assert {tuple(str(fault.msg).split(":")[0].split()) for fault in broken()} == OLDER
