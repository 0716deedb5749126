"""Creates an API key and prints its token, and nothing else, on stdout."""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from accounts import keys
from accounts.management.arguments import account_from, add_account
from gateway.errors import AccountSuspended
from gateway.management.base import OperatorCommand


def _limit(text: str) -> int:
    value = int(text)
    if not 0 <= value < 2**31:
        raise ValueError
    return value


_limit.__name__ = "number of 0 or more"  # argparse shows it in its message


class Command(OperatorCommand):
    help = "Creates an API key for an account and prints the full token, which cannot be shown again."

    def add_arguments(self, parser: CommandParser) -> None:
        add_account(parser)
        parser.add_argument("--name", required=True, metavar="LABEL", help="where the key is used")
        parser.add_argument("--expires", choices=keys.LIFETIMES, default=keys.DEFAULT_LIFETIME, help="default: 90d")
        parser.add_argument("--rpm", type=_limit, metavar="N", help="requests per minute, 0 for no limit")
        parser.add_argument("--tpm", type=_limit, metavar="N", help="tokens per minute, 0 for no limit")

    def handle(self, *_args: Any, **options: Any) -> None:
        account = account_from(options["account"])
        limits = {"rpm": options["rpm"], "tpm": options["tpm"]}
        with self.committed_once_printed():
            try:
                _, token = keys.issue(account, name=options["name"], lifetime=options["expires"], **limits)
            except (keys.KeyNameTaken, keys.InvalidKeyName, AccountSuspended) as error:
                raise CommandError(str(error)) from None
            self.stdout.write(token)
