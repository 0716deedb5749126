"""Replaces the tags of a key."""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from accounts.management.arguments import account_from, add_account
from billing.management.policies import key_from
from billing.policies import set_tags
from gateway.errors import InvalidRequest
from gateway.management.base import OperatorCommand


class Command(OperatorCommand):
    help = "Replaces the tags of a key, such as team=search. Without tags, removes them."

    def add_arguments(self, parser: CommandParser) -> None:
        add_account(parser)
        parser.add_argument("--key", metavar="NAME", required=True, help="the key's name")
        parser.add_argument("--tag", action="append", default=[], metavar="NAME=VALUE", help="at most eight times")

    def handle(self, *_args: Any, **options: Any) -> None:
        key = key_from(account_from(options["account"]), options["key"])
        try:
            set_tags(key, options["tag"])
        except InvalidRequest as error:
            raise CommandError(error.message) from None
        self.stdout.write(f"Tags of {key.name}: {key.tags or 'none'}.")
