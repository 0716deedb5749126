"""Implements `recompute`: recomputes records from the history of the catalogue."""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from accounts.management.arguments import account_from
from gateway.management.base import OperatorCommand
from proof.recompute import PARTS, Recomputation, recompute


class Command(OperatorCommand):
    only_reads = True
    help = (
        "Checks that each record has the prices, exchange rates, energy and grid that the catalogue had when its "
        "request was admitted, and the cost and footprint that they give. Exits 1 and lists each mismatch if not "
        "(docs/proof.md#recompute)."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--account", metavar="ACCOUNT", help="only this account (name or id)")

    def handle(self, *_args: Any, **options: Any) -> None:
        account = None if options["account"] is None else account_from(options["account"])
        for found in recompute(account):
            if isinstance(found, Recomputation):
                self._summarize(found)
            else:
                self.stderr.write(found)

    def _summarize(self, result: Recomputation) -> None:
        self.stdout.write(f"recomputed {result.records} records: {result.mismatches} mismatches")
        for part in PARTS:
            if result.not_covered[part]:
                self.stdout.write(f"older than the history of their {part}: {result.not_covered[part]} records")
        if result.mismatches:
            raise CommandError("Some records do not have what the catalogue had.")
