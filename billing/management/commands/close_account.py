"""Closes an account for good, and writes its final statement."""

from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.utils import timezone

from accounts import closing
from accounts.management.arguments import account_from, add_account, reason_from
from accounts.models import Account
from billing.models import Wallet
from billing.usage.statement import Period, write
from gateway.management.base import OperatorCommand
from gateway.money import plain


class Command(OperatorCommand):
    help = (
        "Closes an account: its keys are deleted, its invitations are revoked, and its members may only read. "
        "It cannot be undone: a customer who returns gets a new account."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        add_account(parser)
        parser.add_argument("--reason", required=True, metavar="TEXT", help="why; the mail to its owners quotes it")
        where = "a new file for its final statement: JSONL if the name ends with .jsonl, else CSV"
        parser.add_argument("--statement", required=True, type=Path, metavar="FILE", help=where)

    def handle(self, *_args: Any, **options: Any) -> None:
        account, reason = account_from(options["account"]), reason_from(options["reason"])
        path: Path = options["statement"]
        if path.exists() or not path.absolute().parent.is_dir():
            raise CommandError(f"{path}: --statement names a new file in a directory that exists.")
        with self.committed_once_printed():
            try:
                deleted, revoked = closing.close(account, reason, by=None)
            except closing.AlreadyClosed as error:
                raise CommandError(str(error)) from None
            balance = plain(Wallet.objects.get(pk=account.pk).balance)
            self.stdout.write(
                f"{account.name} has been closed: {deleted} keys deleted, {revoked} invitations revoked, "
                f"a balance of {balance} {account.currency}."
            )
        # The statement is written after the closing, so that it misses no request.
        self._write_statement(path, account)

    def _write_statement(self, path: Path, account: Account) -> None:
        format_ = "jsonl" if path.suffix == ".jsonl" else "csv"
        try:
            totals = write(path, account, Period(account.created_at, timezone.now()), format_)
        except OSError as error:
            raise CommandError(
                f"{path}: {error.strerror}. The account has been closed all the same: write its statement with "
                "export_usage."
            ) from None
        if not totals.reconciled:
            raise CommandError(f"The account has been closed, but {path} does not add up: run verify_ledger.")
        self.stdout.write(f"{path} has its final statement of {totals.requests} requests.")
