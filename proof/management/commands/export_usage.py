"""Writes the records of a period, of one account or of all, with a last line that reconciles them with the ledger."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

from django.core.management.base import CommandError, CommandParser

from accounts.management.arguments import account_from
from accounts.models import Account
from billing.usage import focus
from billing.usage.statement import FORMATS, InvalidPeriod, Period, StatementTotals, lines, write_blocks
from gateway.management.base import OperatorCommand
from gateway.money import plain
from proof.exports import NotLogged, lines_with_proofs

FOCUS = "focus"
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
        parser.add_argument("--format", choices=[*FORMATS, FOCUS], default="csv")
        parser.add_argument(
            "--focus-version",
            choices=list(focus.COLUMNS),
            help=f"of --format focus; {focus.DEFAULT_VERSION} by default",
        )
        parser.add_argument(
            "--granularity",
            choices=list(focus.GRANULARITIES),
            help=f"of --format focus: what a row sums up; {focus.DEFAULT_GRANULARITY} by default",
        )
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
        for name in ("focus-version", "granularity"):
            if options[name.replace("-", "_")] is not None and options["format"] != FOCUS:
                raise CommandError(f"--{name} needs --format focus.")
        if options["all"]:
            self._write_files(options["directory"], period, options)
            return
        account, totals = account_from(options["account"]), StatementTotals()
        try:
            for block in _blocks(account, period, totals, options):
                self.stdout.write(block, ending="")
        except NotLogged as error:
            raise CommandError(str(error)) from None
        if not totals.reconciled:
            raise CommandError(UNRECONCILED)

    def _write_files(self, directory: Path, period: Period, options: dict[str, Any]) -> None:
        """Writes a file for each account and prints a line for each. Raises CommandError if some do not add up."""
        unreconciled: list[UUID] = []
        suffix = "focus.csv" if options["format"] == FOCUS else options["format"]
        try:
            directory.mkdir(parents=True, exist_ok=True)
            for account in list(
                Account.objects.order_by("name")
            ):  # `lines` gives the connection back between its blocks
                path, totals = directory / f"{account.pk}.{suffix}", StatementTotals()
                write_blocks(path, _blocks(account, period, totals, options))
                if not totals.reconciled:
                    unreconciled.append(account.pk)
                cost = f"{plain(totals.cost.total)} {account.currency}"
                self.stdout.write(f"{path.name} {totals.requests} requests, {cost}: {account.name}")
        except OSError as error:
            raise CommandError(f"{error.filename or directory}: {error.strerror}") from None
        if unreconciled:
            raise CommandError(f"{UNRECONCILED} Accounts: {', '.join(map(str, unreconciled))}")


def _blocks(account: Account, period: Period, totals: StatementTotals, options: dict[str, Any]) -> Iterator[str]:
    """Returns the text of an account's records in the format of the options, which fills `totals` as it is read."""
    if options["format"] == FOCUS:
        version, granularity = options["focus_version"], options["granularity"]
        return focus.blocks(
            account,
            period,
            totals,
            version=version or focus.DEFAULT_VERSION,
            granularity=granularity or focus.DEFAULT_GRANULARITY,
        )
    if options["proofs"]:
        statement = lines_with_proofs(account, period, totals, options["checkpoint_size"])
    else:
        statement = lines(account, period, totals)
    return FORMATS[options["format"]].blocks(statement)
