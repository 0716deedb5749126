"""Holds the base of operators' commands, which report a failure in one line with an exit status."""

import logging
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ClassVar

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error, connections, transaction

from .output import OutputFailed

EXIT_USAGE = 2  # argparse's status for bad options
EXIT_CLOSED_PIPE = 128 + signal.SIGPIPE  # a shell's status for a program that SIGPIPE has ended
SQLITE_PATIENCE_SECONDS = 10.0
CONNECT_SECONDS = 30  # a busy server may take longer than the five seconds that a worker waits
running_command: ContextVar[str] = ContextVar("running_command", default="")  # the name of a command while it runs
UNDEFINED_TABLE_OR_COLUMN = frozenset({"42P01", "42703"})  # SQLSTATE


class OperatorCommand(BaseCommand):
    """Is the base of our commands. Turns bad arguments, database errors and failed output into a CommandError."""

    only_reads: ClassVar = False  # True: ends quietly if the reader of its output, such as `head`, stops reading

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        parser.called_from_command_line = False
        return parser

    def run_from_argv(self, argv: list[str]) -> None:
        connect_as_a_command()
        try:
            # Python represents bytes that are not UTF-8 by lone surrogates.
            if any("\ud800" <= character <= "\udfff" for argument in argv for character in argument):
                raise CommandError("An argument is not valid UTF-8.")
            super().run_from_argv(argv)
        except CommandError as error:  # Django has already printed errors raised in `handle`
            if "--traceback" in argv:
                raise
            self.stderr.write(f"CommandError: {str(error).removeprefix('Error: ')} (see --help)")
            sys.exit(EXIT_USAGE)

    def execute(self, *args: Any, **options: Any) -> str | None:
        token = running_command.set(type(self).__module__.rpartition(".")[2])
        try:
            output = super().execute(*args, **options)
            self.stdout.flush()
        except Error as error:
            raise CommandError(explain(error)) from error
        except OutputFailed as error:
            if error.is_closed_pipe and self.only_reads:
                sys.exit(EXIT_CLOSED_PIPE)
            raise CommandError(str(error)) from error
        finally:
            running_command.reset(token)
        return output

    @contextmanager
    def committed_once_printed(self) -> Iterator[None]:
        """Opens a transaction, which is rolled back with a CommandError if the output cannot be written."""
        try:
            with transaction.atomic():
                yield
                self.stdout.flush()
        except OutputFailed as error:
            raise CommandError(f"{error} Nothing was changed.") from error


def explain(error: Error) -> str:
    """Returns a database error as one line, with advice."""
    words = " ".join(str(error).split())
    sqlstate = getattr(error.__cause__, "sqlstate", None)
    if sqlstate in UNDEFINED_TABLE_OR_COLUMN or words.startswith(("no such table", "no such column")):
        return "The database is not migrated: run `manage.py migrate` first."
    return f"The database refused: {words}"


def connect_as_a_command() -> None:
    """Lets this process connect without a pool, wait longer for a connection, and run statements of any length."""
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)
    databases = [connection.settings_dict for connection in connections.all()]
    if settings.MIGRATION_DATABASE is not None:
        databases.append(settings.MIGRATION_DATABASE)
    for database in databases:
        options = dict(database["OPTIONS"])
        if "sqlite" in database["ENGINE"]:
            options["timeout"] = SQLITE_PATIENCE_SECONDS
        else:
            options.pop("pool", None)
            options.setdefault("connect_timeout", CONNECT_SECONDS)
            if not settings.DATABASE_TRANSACTION_POOLING:
                options["options"] = "-c statement_timeout=0"
        database["OPTIONS"] = options
