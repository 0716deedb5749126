"""Checks migrations, which run while the previous release still serves.

A squashed migration is checked instead of its originals.

A migration may break a rule if it says why: `reviewed = "nothing has read the column since 1.4"`.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core import checks
from django.db import models
from django.db.migrations import Migration, operations
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

from .online_index import AddIndexOnline
from .postgresql.base import DatabaseWrapper

CONTRACTS = {
    operations.RemoveField: "drops a column that the previous release still reads",
    operations.DeleteModel: "drops a table that the previous release still reads",
    operations.RenameField: "renames a column that the previous release still uses",
    operations.RenameModel: "renames a table that the previous release still uses",
    operations.AlterModelTable: "renames a table that the previous release still uses",
}
_POSTGRESQL = DatabaseWrapper({"OPTIONS": {}, "NAME": "none"})  # used for names of column types; never connects


def broken() -> list[checks.CheckMessage]:
    """Returns an error for each rule that one of our migrations breaks."""
    graph = MigrationLoader(None).graph
    state = ProjectState()
    found: list[checks.CheckMessage] = []
    for label, name in graph._generate_plan(graph.leaf_nodes(), at_end=True):
        migration = graph.nodes[label, name]
        is_ours = Path(apps.get_app_config(label).path).parent == settings.BASE_DIR
        is_reviewed = hasattr(migration, "reviewed")
        for fault, hint in faults_of(migration, state):
            if is_ours and not is_reviewed:
                found.append(checks.Error(f"{label} {name}: {fault}.", hint=hint, id="gateway.E001"))
    return found


def faults_of(migration: Migration, state: ProjectState) -> Iterator[tuple[str, str]]:
    """Yields a migration's faults, each with advice. Changes `state` to the state after the migration."""
    created: set[str] = set()
    for operation in _on_the_database(migration.operations):
        if isinstance(operation, operations.CreateModel):
            created.add(operation.name_lower)
        elif getattr(operation, "model_name", "").lower() not in created:
            yield from _faults_of(operation, migration.app_label, state)
        operation.state_forwards(migration.app_label, state)


def _on_the_database(found: Sequence[Operation]) -> Iterator[Operation]:
    for operation in found:
        if isinstance(operation, operations.SeparateDatabaseAndState):
            yield from _on_the_database(operation.database_operations)
        else:
            yield operation


def _faults_of(operation: Operation, app_label: str, state: ProjectState) -> Iterator[tuple[str, str]]:
    name = operation.describe()
    for kind, fault in CONTRACTS.items():
        if isinstance(operation, kind):
            yield f"{name}: {fault}", "Do this one release after the code stopped using it."
    if isinstance(operation, operations.AddField):
        field = operation.field
        if not field.null and not field.has_db_default() and not field.many_to_many:
            yield (
                f"{name}: is NOT NULL without a db_default: inserts of the previous release fail",
                "Give it a db_default.",
            )
        if _has_index(field) and not field.many_to_many:
            yield f"{name}: builds an index that writers wait for", "Add it without, and the index by AddIndexOnline."
    elif isinstance(operation, operations.AlterField):
        before = state.models[app_label, operation.model_name_lower].fields[operation.name_lower]
        yield from ((f"{name}: {fault}", hint) for fault, hint in _alteration(before, operation.field))
    elif isinstance(operation, operations.AddIndex) and not isinstance(operation, AddIndexOnline):
        yield f"{name}: builds an index that writers wait for", "Use gateway.db.online_index.AddIndexOnline."
    elif isinstance(operation, operations.RemoveConstraint):
        model = state.models[app_label, operation.model_name_lower]
        if isinstance(model.get_constraint_by_name(operation.name), models.UniqueConstraint):
            yield f"{name}: ON CONFLICT of the previous release may name it", "Drop it one release later."
    elif isinstance(operation, operations.AddConstraint):
        yield (
            f"{name}: reads the whole table while writers wait",
            "By RunSQL: a CHECK as NOT VALID, validated apart; a UNIQUE from an index that was built concurrently.",
        )
    elif isinstance(operation, operations.RunSQL | operations.RunPython):
        yield f"{name}: is code that no rule can check", "Say in `reviewed` which rows it locks and for how long."


def _has_index(field: Any) -> bool:
    return bool(field.unique or field.db_index)


def _alteration(before: models.Field[Any, Any], after: models.Field[Any, Any]) -> Iterator[tuple[str, str]]:
    if before.null and not after.null:
        yield (
            "NOT NULL reads the whole table while writers wait",
            "Add a CHECK as NOT VALID by RunSQL, and validate it apart.",
        )
    if _has_index(after) and not _has_index(before):
        yield "builds an index that writers wait for", "Add the index by AddIndexOnline."
    if before.is_relation or after.is_relation:
        return
    old, new = before.db_type(_POSTGRESQL), after.db_type(_POSTGRESQL)
    is_wider = isinstance(after, models.CharField) and (after.max_length or 0) > (before.max_length or 0)
    if old != new and not is_wider:
        yield f"the type {old} becomes {new}: the table is rewritten", "Add another column, and copy."
