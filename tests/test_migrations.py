"""Migrations run while workers of the version before serve, and write to a table of records that may be large."""

import re
from io import StringIO
from pathlib import Path

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import connection

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.postgres_is_enough,
    pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has one writer at a time"),
]
# Of each app, how many migrations there were before anybody had records.
FIRST = {"accounts": 3, "billing": 5, "catalogue": 3}
LATER = [
    (app, file.stem)
    for app, first in FIRST.items()
    for file in sorted(Path(apps.get_app_config(app).path, "migrations").glob("0*.py"))[first:]
]


def sql_of(app: str, name: str) -> str:
    sql = StringIO()
    call_command("sqlmigrate", app, name, stdout=sql)
    return sql.getvalue()


@pytest.mark.parametrize(("app", "name"), LATER)
def test_what_the_version_before_uses_is_not_dropped(app: str, name: str) -> None:
    assert not re.search(r"DROP (TABLE|COLUMN)|RENAME", sql_of(app, name))


@pytest.mark.parametrize(("app", "name"), [(app, name) for app, name in LATER if app == "billing"])
def test_indexes_are_built_while_records_are_written(app: str, name: str) -> None:
    sql = sql_of(app, name)
    new = re.findall(r'CREATE TABLE ("\w+")', sql)  # which nobody writes to yet
    tables = re.findall(r'CREATE (?:UNIQUE )?INDEX (?!CONCURRENTLY)"\w+" ON ("\w+")', sql)
    assert set(tables) <= set(new)


def test_what_is_left_of_an_index_whose_building_failed_is_built_anew() -> None:
    call_command("migrate", "billing", "0006", verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute("CREATE INDEX generation_flagged ON billing_generation (id)")
    call_command("migrate", "billing", verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute("SELECT indexdef FROM pg_indexes WHERE indexname = 'generation_flagged'")
        assert "WHERE (NOT (flags IS NULL))" in cursor.fetchone()[0]
