"""Makes the database itself refuse to change or remove a ledger entry."""

from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps

POSTGRESQL = [
    """CREATE FUNCTION billing_ledger_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'ledger entries are append-only' USING ERRCODE = 'integrity_constraint_violation';
    END $$""",
    """CREATE TRIGGER billing_ledgerentry_append_only BEFORE UPDATE OR DELETE ON billing_ledgerentry
    FOR EACH ROW EXECUTE FUNCTION billing_ledger_is_append_only()""",
]
POSTGRESQL_UNDO = [
    "DROP TRIGGER billing_ledgerentry_append_only ON billing_ledgerentry",
    "DROP FUNCTION billing_ledger_is_append_only()",
]
SQLITE = [
    f"""CREATE TRIGGER billing_ledgerentry_no_{verb.lower()} BEFORE {verb} ON billing_ledgerentry
    BEGIN SELECT RAISE(ABORT, 'ledger entries are append-only'); END"""
    for verb in ("UPDATE", "DELETE")
]
SQLITE_UNDO = [f"DROP TRIGGER billing_ledgerentry_no_{verb}" for verb in ("update", "delete")]


def _run(editor: BaseDatabaseSchemaEditor, postgresql: list[str], sqlite: list[str]) -> None:
    for statement in postgresql if editor.connection.vendor == "postgresql" else sqlite:
        editor.execute(statement)


def protect(_apps: StateApps, editor: BaseDatabaseSchemaEditor) -> None:
    _run(editor, POSTGRESQL, SQLITE)


def unprotect(_apps: StateApps, editor: BaseDatabaseSchemaEditor) -> None:
    _run(editor, POSTGRESQL_UNDO, SQLITE_UNDO)


class Migration(migrations.Migration):
    dependencies = [("billing", "0001_initial")]
    operations = [migrations.RunPython(protect, unprotect)]
