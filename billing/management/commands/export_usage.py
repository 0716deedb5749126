"""Writes an account's records of a period, with a last line that reconciles them with the ledger."""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from accounts.management.arguments import account_from, add_account
from billing.usage.statement import FORMATS, InvalidPeriod, Period, Totals, lines
from gateway.management.base import OperatorCommand


class Command(OperatorCommand):
    only_reads = True
    help = "Prints an account's records of a period, oldest first, and a line of totals (docs/statements.md)."

    def add_arguments(self, parser: CommandParser) -> None:
        add_account(parser)
        bound = "inclusive: a day (2026-10-30, in UTC) or an RFC 3339 date-time with an offset"
        parser.add_argument("--since", required=True, metavar="D", help=bound)
        parser.add_argument("--until", required=True, metavar="D", help=bound)
        parser.add_argument("--format", choices=list(FORMATS), default="csv")

    def handle(self, *_args: Any, **options: Any) -> None:
        account = account_from(options["account"])
        try:
            period = Period.between(options["since"], options["until"])
        except InvalidPeriod as error:
            raise CommandError(str(error)) from None
        totals = Totals()
        for block in FORMATS[options["format"]].blocks(lines(account, period, totals)):
            self.stdout.write(block, ending="")
        if not totals.reconciled:
            raise CommandError("The records do not add up with the ledger: see the last line, and run verify_ledger.")
