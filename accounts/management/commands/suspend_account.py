"""Suspends an account, or lifts its suspension."""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from accounts import suspensions
from accounts.management.arguments import account_from, add_account, reason_from
from gateway.management.base import OperatorCommand


class Command(OperatorCommand):
    help = "Suspends an account from its next request on: its keys and members may only read. --lift ends it."

    def add_arguments(self, parser: CommandParser) -> None:
        add_account(parser)
        how = parser.add_mutually_exclusive_group(required=True)
        how.add_argument("--reason", metavar="TEXT", help="why; mailed to the account's owners")
        how.add_argument("--lift", action="store_true", help="ends the suspension")

    def handle(self, *_args: Any, **options: Any) -> None:
        account = account_from(options["account"])
        reason = "" if options["lift"] else reason_from(options["reason"])
        with self.committed_once_printed():
            try:
                if options["lift"]:
                    suspensions.lift(account, by=None)
                    self.stdout.write(f"The suspension of {account.name} has been lifted.")
                else:
                    suspensions.suspend(account, reason, by=None)
                    self.stdout.write(f"{account.name} has been suspended.")
            except suspensions.SuspensionRefused as error:
                raise CommandError(str(error)) from None
