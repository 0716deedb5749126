"""Deletes an API key. Its next request fails."""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from accounts import keys
from accounts.management.arguments import account_from, add_account
from gateway.management.base import OperatorCommand


class Command(OperatorCommand):
    help = "Deletes an account's API key. It stops working on the next request."

    def add_arguments(self, parser: CommandParser) -> None:
        add_account(parser)
        parser.add_argument("--name", required=True, metavar="LABEL", help="the key's name")

    def handle(self, *_args: Any, **options: Any) -> None:
        account = account_from(options["account"])
        key = keys.find(account, options["name"])
        with self.committed_once_printed():
            if key is None or not keys.delete(key):
                raise CommandError(f"Account {account.name!r} has no key named {options['name']!r}.")
            self.stdout.write(f"Deleted {key.name} ({key.masked}).")
