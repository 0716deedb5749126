"""Runs the simulated provider as a command of Django."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from simulator.server import add_arguments, serve


class Command(BaseCommand):
    """Runs the simulated provider. It needs no database."""

    help = "Run a simulated provider that answers deterministically and fails as the model name asks."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Takes the same options as `python -m simulator`."""
        add_arguments(parser)

    def handle(self, *_arguments: Any, **options: Any) -> None:
        """Listens until SIGTERM or SIGINT."""
        try:
            serve(options["port"], options["dialect"], self._announce)
        except OSError as error:
            raise CommandError(f"The simulated provider cannot listen: {error}") from error

    def _announce(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()
