"""Adds indexes to large tables while rows are written."""

from typing import Any

from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations import AddIndex

PARTITIONED = "SELECT 1 FROM pg_class WHERE oid = to_regclass(%s) AND relkind = 'p'"


class AddIndexOnline(AddIndex):
    """Adds an index without stopping writers, and replaces one that failed. Its migration has `atomic = False`."""

    def database_forwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: Any, to_state: Any
    ) -> None:
        connection, name = schema_editor.connection, schema_editor.quote_name(self.index.name)
        if connection.vendor != "postgresql":
            schema_editor.execute(f"DROP INDEX IF EXISTS {name}")
            super().database_forwards(app_label, schema_editor, from_state, to_state)
            return
        model = to_state.apps.get_model(app_label, self.model_name)
        with connection.cursor() as cursor:
            cursor.execute(PARTITIONED, [model._meta.db_table])
            concurrently = cursor.fetchone() is None
            # A concurrent build blocks nothing while it waits for other transactions, so it may wait without a limit.
            cursor.execute("SELECT current_setting('lock_timeout')")
            lock_timeout = cursor.fetchone()[0]
        schema_editor.execute("SET statement_timeout = 0")
        schema_editor.execute("SET lock_timeout = 0")
        try:
            schema_editor.execute(f"DROP INDEX {'CONCURRENTLY ' if concurrently else ''}IF EXISTS {name}")
            schema_editor.execute(self.index.create_sql(model, schema_editor, concurrently=concurrently), params=None)
        finally:
            schema_editor.execute("RESET statement_timeout")
            schema_editor.execute(f"SET lock_timeout = '{lock_timeout}'")
