"""The periodic work: purge expired secrets, settle what was orphaned, drop old counters."""

import time
from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from accounts import keys
from billing.maintenance import maintain_once
from catalogue import health, quota
from gateway.db import release_all
from gateway.management.base import OperatorCommand


class Command(OperatorCommand):
    help = "Purges expired secrets, settles orphaned generations (checkpoints and spool), drops old counters."

    def add_arguments(self, parser: CommandParser) -> None:
        how_often = parser.add_mutually_exclusive_group()
        how_often.add_argument("--once", action="store_true", help="once, and end (the default)")
        how_often.add_argument("--every", type=_seconds, metavar="SECONDS", help="again and again, this far apart")

    def handle(self, *_args: Any, **options: Any) -> None:
        while True:
            self._maintain()
            if options["every"] is None:
                return
            release_all()
            time.sleep(options["every"])

    def _maintain(self) -> None:
        now = timezone.now()
        purged = keys.purge_expired(now)
        settled = maintain_once()
        dropped = quota.drop_before(quota.day_of(now)) + health.drop_before(now - health.WINDOW)
        self.stdout.write(
            f"purged {purged} secrets, settled {settled['spooled']} spooled and {settled['orphaned']} orphaned "
            f"generations, dropped {dropped} counters"
        )
        if settled["poisoned"]:
            self.stderr.write(f"{settled['poisoned']} spooled outcomes cannot be settled: see the spool folder")


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError
    return value


_seconds.__name__ = "number of seconds above zero"  # argparse puts it into its message
