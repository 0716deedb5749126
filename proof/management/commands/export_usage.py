"""Writes the records of a period, of one account or of all, with a last line that reconciles them with the ledger."""

from pathlib import Path
from typing import Any
from uuid import UUID

from django.core.management.base import CommandError, CommandParser

from accounts.management.arguments import account_from
from accounts.models import Account
from billing.usage.statement import FORMATS, InvalidPeriod, Period, StatementTotals, lines, write
from gateway.management.base import OperatorCommand
from gateway.money import plain
from proof.exports import NotLogged, lines_with_proofs

UNRECONCILED = "The records do not add up with the ledger: see the last line, and run verify_ledger."


class Command(OperatorCommand):
    only_reads = True
    help = (
        "Prints an account's records of a period, oldest first, and a line of totals (docs/statements.md). "
        "With --all, writes a file for each account, named by the account's id."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("account", metavar="ACCOUNT", nargs="?", help="the account's name or id")
        parser.add_argument("--all", action="store_true", help="every account, into --directory")
        parser.add_argument("--directory", type=Path, metavar="DIR", help="where --all writes; made if it is missing")
        bound = "inclusive: a day (2026-10-30, in UTC) or an RFC 3339 date-time with an offset"
        parser.add_argument("--since", required=True, metavar="D", help=bound)
        parser.add_argument("--until", required=True, metavar="D", help=bound)
        parser.add_argument("--format", choices=list(FORMATS), default="csv")
        parser.add_argument("--proofs", action="store_true", help="with --format jsonl: add leaves and their proofs")
        parser.add_argument(
            "--checkpoint-size", type=int, metavar="N", default=0, help="prove consistency with this older checkpoint"
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        if options["all"] == (options["account"] is not None):
            raise CommandError("Name an ACCOUNT, or give --all with --directory.")
        if options["all"] != (options["directory"] is not None):
            raise CommandError("--all and --directory go together.")
        try:
            period = Period.between(options["since"], options["until"])
        except InvalidPeriod as error:
            raise CommandError(str(error)) from None
        if options["proofs"] and (options["all"] or options["format"] != "jsonl"):
            raise CommandError("--proofs needs an ACCOUNT and --format jsonl.")
        if options["all"]:
            self._write_files(options["directory"], period, options["format"])
            return
        account, totals = account_from(options["account"]), StatementTotals()
        if options["proofs"]:
            statement = lines_with_proofs(account, period, totals, options["checkpoint_size"])
        else:
            statement = lines(account, period, totals)
        try:
            for block in FORMATS[options["format"]].blocks(statement):
                self.stdout.write(block, ending="")
        except NotLogged as error:
            raise CommandError(str(error)) from None
        if not totals.reconciled:
            raise CommandError(UNRECONCILED)

    def _write_files(self, directory: Path, period: Period, format_: str) -> None:
        """Writes a file for each account and prints a line for each. Raises CommandError if some do not add up."""
        unreconciled: list[UUID] = []
        try:
            directory.mkdir(parents=True, exist_ok=True)
            for account in list(
                Account.objects.order_by("name")
            ):  # `lines` gives the connection back between its blocks
                path = directory / f"{account.pk}.{format_}"
                totals = write(path, account, period, format_)
                if not totals.reconciled:
                    unreconciled.append(account.pk)
                cost = f"{plain(totals.cost.total)} {account.currency}"
                self.stdout.write(f"{path.name} {totals.requests} requests, {cost}: {account.name}")
        except OSError as error:
            raise CommandError(f"{error.filename or directory}: {error.strerror}") from None
        if unreconciled:
            raise CommandError(f"{UNRECONCILED} Accounts: {', '.join(map(str, unreconciled))}")
