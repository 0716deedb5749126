"""Migrations run while workers of the previous version serve, and write to a table of records that may be large."""

from contextlib import closing
from decimal import Decimal
from pathlib import Path

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import override_settings
from django.utils import timezone

from accounts.models import Account, User
from billing.models import BalanceLine, Notice
from tests.factories import new_account
from tests.locks import foreign_connection
from tests.original_migrations import use_originals
from tests.servers.databases import FreshDatabases
from tests.servers.gateway import GatewayServer

pytestmark = [
    pytest.mark.django_db(transaction=True),
]


@pytest.fixture(autouse=True)
def originals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uses the original migrations: tests migrate back to one, and a squashed migration cannot be undone in part.

    They then migrate every app, since undoing a migration of billing also undoes those that depend on it.
    """
    use_originals(monkeypatch)


def test_requests_do_not_queue_behind_a_migrations_lock() -> None:
    call_command("migrate", "billing", "0013", verbosity=0)
    with closing(foreign_connection()) as other:
        other.execute("LOCK TABLE billing_dailyusage IN ACCESS SHARE MODE")
        with override_settings(MIGRATION_LOCK_TIMEOUT=0.05), pytest.raises(CommandError, match=r"for 0\.05 seconds"):
            call_command("migrate", verbosity=0)
    assert lock_timeout() == "0"
    call_command("migrate", verbosity=0)
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
    call_command("migrate", verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute("SELECT indexdef FROM pg_indexes WHERE indexname = 'generation_flagged'")
        assert "WHERE (NOT (flags IS NULL))" in cursor.fetchone()[0]


def test_a_threshold_becomes_a_line_of_the_balance_which_is_told_if_its_mail_was_sent() -> None:
    owner = User.objects.create_user("owner@acme.example")
    above, told, waiting = (new_account(credit=credit) for credit in ("100", "4", "5"))
    Account.objects.update(low_balance=Decimal(5))
    for account, sent_at in ((told, timezone.now()), (waiting, None)):
        Notice.objects.create(
            kind="low", account=account, person=owner, subject=account.pk, raised_at=timezone.now(), sent_at=sent_at
        )
    without = new_account()
    call_command("migrate", "billing", "0024", verbosity=0)
    call_command("migrate", verbosity=0)
    lines = {line.account_id: line for line in BalanceLine.objects.all()}
    assert {line.amount for line in lines.values()} == {5}
    states = {pk: (line.balance, line.crossed_at is None, line.told_at is None) for pk, line in lines.items()}
    assert states == {above.pk: (None, True, True), told.pk: (4, False, False), waiting.pk: (5, False, True)}
    assert without.pk not in lines


def test_a_migration_takes_as_long_as_it_needs(migrated_databases: FreshDatabases, tmp_path: Path) -> None:
    with closing(GatewayServer(migrated_databases, tmp_path)) as server:
        with closing(psycopg.connect(server.database_url, autocommit=True)) as owner:
            owner.execute("CREATE TABLE noted (statement_timeout text)")
            owner.execute(
                "CREATE RULE note AS ON INSERT TO django_migrations "
                "DO ALSO INSERT INTO noted VALUES (current_setting('statement_timeout'))"
            )
        for owns in ({}, {"MIGRATE_DATABASE_URL": server.database_url}):
            with closing(psycopg.connect(server.database_url, autocommit=True)) as owner:
                owner.execute("DELETE FROM django_migrations WHERE app = 'sessions'")
            server.manage_subprocess("migrate", "sessions", "--fake", **owns).ok()
        assert server.query("SELECT statement_timeout FROM noted") == [("0",), ("0",)]
