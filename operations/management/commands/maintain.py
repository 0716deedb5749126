"""Implements `maintain`: purges expired secrets, settles orphaned generations, and drops old rows."""

import signal
import threading
from typing import Any

from django.contrib.sessions.backends.db import SessionStore
from django.core.management.base import CommandError, CommandParser
from django.db import Error
from django.utils import timezone

from accounts import invitations, keys, people_seen, playground_keys, second_factors
from accounts.management.arguments import account_from
from accounts.webhooks import delivery, endpoints
from billing.ledger import idempotent_requests
from billing.maintenance import maintain_once
from billing.usage import request_failures, rollups
from catalogue.footprint import grid_import
from catalogue.routing import health, quota, route_failures
from gateway.db.outages import Outage
from gateway.db.pool import release_all
from gateway.management.base import OperatorCommand, explain

STOPPING = (signal.SIGTERM, signal.SIGINT)


class Command(OperatorCommand):
    help = (
        "Purges expired secrets, settles orphaned generations (checkpoints and spool), mails staff and owners "
        "what they should know, sends what is due to webhooks, drops old counters, failures, idempotency keys, "
        "deliveries, ended sessions and old invitations, and asks the sources of grid intensities that are due."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        how_often = parser.add_mutually_exclusive_group()
        how_often.add_argument("--once", action="store_true", help="once, and end (the default)")
        how_often.add_argument("--every", type=_seconds, metavar="SECONDS", help="again and again, this far apart")
        parser.add_argument(
            "--roll-up-anew",
            metavar="ACCOUNT",
            help="first drops this account's sums by day, which are then made from all its records; its name or id",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        if options["roll_up_anew"] is not None:
            if options["every"] is not None:
                raise CommandError("--roll-up-anew goes with --once.")
            rollups.drop_sums(account_from(options["roll_up_anew"]).pk)
        if options["every"] is None:
            self._maintain()
        else:
            self._maintain_every(options["every"])

    def _maintain_every(self, seconds: float) -> None:
        """Works until a signal arrives, which ends the wait between two rounds but never a round.

        While the database is down it tries again each time.
        """
        # Must come before the connection pool starts threads, which inherit the mask: sigtimedwait takes the signals.
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
        stopped, outage = None, Outage("maintenance waits", self.stderr.write)
        while stopped is None:
            try:
                self._maintain()
            except Error as error:
                outage.failed(explain(error))
            else:
                outage.worked()
            release_all()
            stopped = signal.sigtimedwait(STOPPING, seconds)

    def _maintain(self) -> None:
        now = timezone.now()
        purged = playground_keys.delete_expired(now) + keys.purge_expired(now)
        done = maintain_once()
        dropped = quota.drop_before(quota.day_of(now)) + health.drop_before(now - health.KEPT)
        dropped += route_failures.drop_before(now - route_failures.KEPT)
        failures = request_failures.drop_before(request_failures.kept_since(now))
        used = idempotent_requests.drop_before(now - idempotent_requests.KEPT_FOR)
        ended = invitations.drop_ended(now)
        delivery.drop_before(now - delivery.KEPT_FOR)
        SessionStore.clear_expired()
        people_seen.drop_ended()
        second_factors.renew_secrets()
        endpoints.renew_secrets()
        grid_import.refresh.work()
        sent = delivery.send_due()  # last, since receivers may be slow
        self.stdout.write(
            f"purged {purged} secrets, settled {done.spooled} spooled and {done.orphaned} orphaned generations, "
            f"dropped {dropped} counters, {failures} failures, {used} idempotency keys and {ended} ended invitations, "
            f"sent {sent} events to webhooks"
        )
        self.stdout.flush()
        if done.poisoned or done.unsettled:
            self.stderr.write(
                f"{done.poisoned} spooled outcomes and {done.unsettled} checkpoints cannot be settled: "
                "see docs/operations.md"
            )


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < threading.TIMEOUT_MAX:
        raise ValueError
    return value


_seconds.__name__ = "number of seconds above zero"  # argparse quotes the name in its message
