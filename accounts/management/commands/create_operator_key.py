"""Creates an operator key and prints its token, and nothing else, on stdout."""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from accounts import operator_keys
from accounts.keys import DEFAULT_LIFETIME, LIFETIMES, InvalidKeyName, KeyNameTaken
from gateway.management.base import OperatorCommand


class Command(OperatorCommand):
    help = "Creates a key with which the operator's systems open accounts and book credit, and prints its full token."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--name", required=True, metavar="LABEL", help="the system that uses the key")
        parser.add_argument("--expires", choices=LIFETIMES, default=DEFAULT_LIFETIME, help="default: 90d")

    def handle(self, *_args: Any, **options: Any) -> None:
        with self.committed_once_printed():
            try:
                token = operator_keys.issue(options["name"], options["expires"])
            except (KeyNameTaken, InvalidKeyName) as error:
                raise CommandError(str(error)) from None
            self.stdout.write(token)
