from typing import Any

from django.conf import settings
from django.core.management import CommandError
from django.core.management.commands import migrate
from django.db import DEFAULT_DB_ALIAS, OperationalError, connections

from gateway.db import serving_role
from gateway.db.postgresql.base import LOCK_NOT_AVAILABLE

from ..base import connect_as_a_command


class Command(migrate.Command):
    """Replaces Django's command. Its statements wait for a lock at most MIGRATION_LOCK_TIMEOUT.

    If MIGRATE_DATABASE_URL is set, its role migrates, and gives the role of DATABASE_URL its rights.
    """

    def run_from_argv(self, argv: list[str]) -> None:
        connect_as_a_command()
        super().run_from_argv(argv)

    def handle(self, *args: Any, **options: Any) -> None:
        owner = settings.MIGRATION_DATABASE
        if owner is None or options["database"] != DEFAULT_DB_ALIAS:
            self._migrate(*args, **options)
            return
        connection = connections[DEFAULT_DB_ALIAS]
        serves, connection.settings_dict = connection.settings_dict, {**connection.settings_dict, **owner}
        self._migrate(*args, **options)
        if serves["USER"] != owner["USER"] and not (options["plan"] or options["check_unapplied"]):
            serving_role.grant(connection, serves["USER"], serves["PASSWORD"])

    def _migrate(self, *args: Any, **options: Any) -> None:
        connection = connections[options["database"]]
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT set_config('lock_timeout', %s, false)", [f"{settings.MIGRATION_LOCK_TIMEOUT:g}s"]
                )
                # A foreign key of another app's table is changed by two statements in one, which cannot be prepared.
                prepares, connection.connection.prepare_threshold = connection.connection.prepare_threshold, None
        try:
            super().handle(*args, **options)
        except OperationalError as error:
            if getattr(error.__cause__, "sqlstate", None) != LOCK_NOT_AVAILABLE:
                raise
            raise CommandError(
                f"A transaction held a table for {settings.MIGRATION_LOCK_TIMEOUT:g} seconds (MIGRATION_LOCK_TIMEOUT). "
                "The migration it stopped is not applied, those before it are: run `manage.py migrate` again."
            ) from error
        finally:
            if connection.vendor == "postgresql" and connection.is_usable():  # the connection may be used again
                with connection.cursor() as cursor:
                    cursor.execute("RESET lock_timeout")
                    connection.connection.prepare_threshold = prepares
