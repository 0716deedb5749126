"""Deletes an operator key by its name."""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from accounts import operator_keys
from gateway.management.base import OperatorCommand


class Command(OperatorCommand):
    help = "Deletes an operator key, so that its next request fails."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", metavar="LABEL")

    def handle(self, *_args: Any, **options: Any) -> None:
        with self.committed_once_printed():
            if not operator_keys.delete(options["name"]):
                raise CommandError(f"There is no operator key named {options['name']!r}.")
            self.stdout.write("Deleted.")
