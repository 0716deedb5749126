"""Partitions the table of records by month, and adds the months to come."""

from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db import connection
from django.utils import timezone

from billing.usage import partitions
from gateway.management.base import OperatorCommand

MOST_MONTHS = 60


class Command(OperatorCommand):
    help = (
        "Partitions the table of records by month (PostgreSQL), during live traffic, and adds partitions for the next "
        "months. Run again, it adds the months that are missing. Without --apply it prints what it would do."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--months", type=int, default=12, metavar="N", help="how many months to have ahead (12)")
        parser.add_argument("--apply", action="store_true", help="do it")

    def handle(self, *_args: Any, **options: Any) -> None:
        if connection.vendor != "postgresql":
            raise CommandError("SQLite has no partitions: DATABASE_URL must name a PostgreSQL database.")
        if not 1 <= options["months"] <= MOST_MONTHS:
            raise CommandError(f"--months is 1 to {MOST_MONTHS}.")
        now = timezone.now()
        if options["apply"]:
            try:
                partitions.partition(now, options["months"], self.stdout.write)
            except partitions.PartitioningFailed as error:
                raise CommandError(str(error)) from None
            return
        missing = partitions.months_missing(now, options["months"])
        if not partitions.is_partitioned():
            self.stdout.write(f"would make {partitions.TABLE} the partition of all records before {missing[0]:%Y-%m}")
        if missing:
            self.stdout.write(f"would add {len(missing)} months, {missing[0]:%Y-%m} to {missing[-1]:%Y-%m}")
        self.stdout.write("--apply does it" if missing else "there is nothing to do")
