"""Migrations run while workers of the previous version serve, and write to a table of records that may be large."""

from contextlib import closing

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import override_settings

from tests.locks import foreign_connection
from tests.original_migrations import use_originals

pytestmark = [
    pytest.mark.django_db(transaction=True),
]


@pytest.fixture(autouse=True)
def originals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uses the original migrations: tests migrate back to one, and a squashed migration cannot be undone in part."""
    use_originals(monkeypatch)


def test_requests_do_not_queue_behind_a_migrations_lock() -> None:
    call_command("migrate", "billing", "0013", verbosity=0)
    with closing(foreign_connection()) as other:
        other.execute("LOCK TABLE billing_dailyusage IN ACCESS SHARE MODE")
        with override_settings(MIGRATION_LOCK_TIMEOUT=0.05), pytest.raises(CommandError, match=r"for 0\.05 seconds"):
            call_command("migrate", "billing", verbosity=0)
    assert lock_timeout() == "0"
    call_command("migrate", "billing", verbosity=0)
    assert lock_timeout() == "0"
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(energy_wh_low) FROM billing_dailyusage")


def lock_timeout() -> str:
    """Returns how long a statement of this session waits for a lock."""
    with connection.cursor() as cursor:
        cursor.execute("SHOW lock_timeout")
        return str(cursor.fetchone()[0])


@pytest.mark.campaign
def test_what_is_left_of_an_index_whose_building_failed_is_built_anew() -> None:
    call_command("migrate", "billing", "0006", verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute("CREATE INDEX generation_flagged ON billing_generation (id)")
    call_command("migrate", "billing", verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute("SELECT indexdef FROM pg_indexes WHERE indexname = 'generation_flagged'")
        assert "WHERE (NOT (flags IS NULL))" in cursor.fetchone()[0]
