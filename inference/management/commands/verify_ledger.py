"""Recomputes every balance from the ledger, every usage entry from its record, and every record from its usage."""

import sys
from typing import Any

from django.core.management.base import CommandParser

from accounts.management.arguments import account_from
from billing.verify import Verification, verify
from gateway.management.base import OperatorCommand
from inference.dialects import read_usage


class Command(OperatorCommand):
    help = "Checks that ledger, wallets and records agree. Exits 1 and lists each mismatch if they do not."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--account", metavar="ACCOUNT", help="only this account (name or id)")

    def handle(self, *_args: Any, **options: Any) -> None:
        account_id = account_from(options["account"]).pk if options["account"] is not None else None
        failed = False
        for found in verify(account_id, read_usage):
            if isinstance(found, Verification):
                self.stdout.write(
                    f"checked {found.accounts} accounts, {found.entries} ledger entries, "
                    f"{found.generations} generations: {found.mismatches} mismatches"
                )
            else:
                failed = True
                self.stderr.write(found)
        if failed:
            sys.exit(1)
