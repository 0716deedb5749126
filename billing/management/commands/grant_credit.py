"""Books credit or a correction on an account, once for each reference."""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from accounts.management.arguments import account_from, add_account
from billing.ledger import credits as ledger
from billing.management.amounts import amount
from gateway.management.base import OperatorCommand
from gateway.money import plain


class Command(OperatorCommand):
    help = "Books credit (or, with --correction, a correction) under a reference, once, and prints the new balance."

    def add_arguments(self, parser: CommandParser) -> None:
        add_account(parser)
        parser.add_argument("amount", type=amount, metavar="AMOUNT", help="in the account's currency")
        parser.add_argument("--reference", required=True, metavar="REF", help="booked only once per account")
        parser.add_argument("--reason", metavar="TEXT", help="a note that staff read with the entry in the admin")
        parser.add_argument("--correction", action="store_true", help="a correction, which may be negative")

    def handle(self, *_args: Any, **options: Any) -> None:
        account = account_from(options["account"])
        book = ledger.correct if options["correction"] else ledger.grant
        with self.committed_once_printed():
            try:
                credit = book(account.pk, options["amount"], options["reference"].strip(), reason=options["reason"])
            except (ledger.InvalidAmount, ledger.InvalidReference, ledger.ReferenceConflict) as error:
                raise CommandError(str(error)) from None
            self.stdout.write(plain(credit.balance))
            self.stdout.flush()  # so that the balance comes before the notes
            self.stderr.write(f"This is the balance of {account.name} ({account.pk}) in {account.currency}.")
            if credit.repeated:
                self.stderr.write(f"Reference {options['reference']!r} is already recorded; nothing changed.")
