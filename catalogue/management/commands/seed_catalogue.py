from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db import DatabaseError

from catalogue import loader
from gateway.management.base import OperatorCommand


class Command(OperatorCommand):
    help = (
        "Makes the catalogue match these YAML or JSON files: all of them together, or nothing at all. "
        "Running servers use it within two seconds. Prints what was created, updated, unchanged and removed."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "paths", nargs="*", type=Path, metavar="PATH", help="a catalogue file; without any, the shipped catalogue"
        )
        parser.add_argument("--prune", action="store_true", help="remove the providers and models that no file names")
        parser.add_argument("--dry-run", action="store_true", help="print what would be done and write nothing")
        parser.add_argument(
            "--accept-price-jumps",
            action="store_true",
            help="take prices that move more than tenfold or to or from zero, and exchange rates that move more than "
            "twofold, instead of holding them back",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            with self.committed_once_printed():
                plan = loader.seed(
                    options["paths"] or loader.SHIPPED,
                    prune=options["prune"],
                    dry_run=options["dry_run"],
                    accept_price_jumps=options["accept_price_jumps"],
                )
                self.stdout.write("\n".join(plan.lines(dry_run=options["dry_run"])))
        except loader.CatalogueError as error:
            raise CommandError(str(error)) from None
        except DatabaseError as error:
            raise CommandError(f"the database refused, nothing was changed: {' '.join(str(error).split())}") from None
