"""Recomputes every balance from the ledger, every usage entry from its record, and every record from its usage."""

import gc
import sys
import time
from typing import Any
from uuid import UUID

from django.core.management.base import CommandError, CommandParser
from django.db import Error
from django.db.models import Sum

from accounts.management.arguments import account_from
from billing.models import Wallet
from billing.verify import Verification, verify
from gateway.management.base import OperatorCommand, explain
from inference.dialects import read_usage

BAR_WIDTH = 40
LINE_START = "\r\x1b[K"  # on a terminal: the line is emptied


class Command(OperatorCommand):
    help = (
        "Checks that ledger, wallets, records and usage by day agree. Exits 1 and lists each mismatch if they do not."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        accounts = parser.add_mutually_exclusive_group()
        accounts.add_argument("--account", metavar="ACCOUNT", help="only this account (name or id)")
        accounts.add_argument("--start-at", metavar="ACCOUNT", help="leave out the accounts before this one")

    def handle(self, *_args: Any, **options: Any) -> None:
        account_id, start_at = (
            None if options[name] is None else account_from(options[name]).pk for name in ("account", "start_at")
        )
        bar = Bar(self.stderr, account_id, start_at)
        gc.freeze()  # what is loaded by now would be looked through again and again: a quarter of all the time
        failed = False
        try:
            for found in verify(account_id, read_usage, start_at=start_at, tell=bar.show):
                bar.clear()
                if isinstance(found, Verification):
                    self.stdout.write(
                        f"checked {found.accounts} accounts, {found.entries} ledger entries, "
                        f"{found.generations} generations: {found.mismatches} mismatches"
                    )
                else:
                    failed = True
                    self.stderr.write(found)
        except (KeyboardInterrupt, Error) as error:
            bar.clear()
            why = "Stopped" if isinstance(error, KeyboardInterrupt) else explain(error)
            if bar.account_id is None:
                raise CommandError(why) from error
            raise CommandError(f"{why} (go on with --start-at {bar.account_id})") from error
        if failed:
            sys.exit(1)


class Bar:
    """How far it is, by ledger entries, drawn once a second where stderr is a terminal."""

    def __init__(self, stderr: Any, account_id: UUID | None, start_at: UUID | None) -> None:
        self.account_id: UUID | None = None  # the one at hand
        self._stderr = stderr if stderr.isatty() else None
        self._drawn_at = 0.0
        if self._stderr is not None:
            wallets = Wallet.objects.all() if account_id is None else Wallet.objects.filter(pk=account_id)
            wallets = wallets if start_at is None else wallets.filter(pk__gte=start_at)
            self._total: int = wallets.aggregate(total=Sum("seq"))["total"] or 1

    def show(self, account_id: UUID, result: Verification) -> None:
        """Draws it, unless it was drawn less than a second ago."""
        self.account_id = account_id
        if self._stderr is None or time.monotonic() - self._drawn_at < 1:
            return
        self._drawn_at = time.monotonic()
        done = min(1.0, result.entries / self._total)
        bar = ("#" * round(done * BAR_WIDTH)).ljust(BAR_WIDTH)
        self._stderr.write(f"{LINE_START}[{bar}] {done:4.0%} of {self._total:,} ledger entries", ending="")
        self._stderr.flush()

    def clear(self) -> None:
        """Makes room for a line of text."""
        if self._stderr is not None:
            self._stderr.write(LINE_START, ending="")
            self._drawn_at = 0.0
