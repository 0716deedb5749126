"""Removes the names and people of a closed account whose records are old enough."""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from accounts.management.arguments import account_from, add_account
from gateway.management.base import OperatorCommand
from operations import forgetting


class Command(OperatorCommand):
    help = (
        "Forgets a closed account whose last record or ledger entry is older than RECORD_YEARS: names become ids; "
        "members, invitations, aliases, failures and notices are deleted; ledger and records stay. Run it "
        "with the database role that runs migrations. It cannot be undone."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        add_account(parser)

    def handle(self, *_args: Any, **options: Any) -> None:
        account = account_from(options["account"])
        with self.committed_once_printed():
            try:
                forgetting.forget(account)
            except forgetting.RecordsStillKept as error:
                raise CommandError(str(error)) from None
            self.stdout.write(f"The account {account.pk} has been forgotten: its ledger and records stay.")
