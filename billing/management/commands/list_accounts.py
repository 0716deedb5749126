"""Lists all accounts with their balances and what they spent."""

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.utils import timezone

from accounts.models import Account
from billing.usage.spending import spending_by_account
from billing.usage.statistics import Days, Totals
from gateway.edge.rfc3339 import to_text
from gateway.management.base import OperatorCommand
from gateway.management.tables import as_table
from gateway.money import plain

SPENT_DAYS = 30
NOTHING = Totals()
Listed = tuple[Account, Totals]
SORTED_BY: dict[str, Callable[[Listed], Any]] = {
    "name": lambda listed: listed[0].name.casefold(),
    "created": lambda listed: listed[0].created_at,
    "balance": lambda listed: listed[0].wallet.balance,
    "spend": lambda listed: -(listed[1].cost_eur or Decimal(0)),
}


class Command(OperatorCommand):
    only_reads = True
    help = "Lists all accounts: id, balance, what they spent since a day, and whether they are suspended."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="prints one array of objects")
        parser.add_argument(
            "--sort", choices=list(SORTED_BY), default="name", help="spend: the most first, in EUR; balance: the least"
        )
        parser.add_argument(
            "--since", metavar="DAY", help=f"first UTC day of what was spent, 2026-10-01; default: {SPENT_DAYS} days"
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        days = _days(options["since"], timezone.now())
        spending = spending_by_account(days)
        accounts = Account.objects.select_related("wallet")
        listed = [(account, spending.get(account.pk, NOTHING)) for account in accounts]
        listed.sort(key=SORTED_BY[options["sort"]])
        if options["json"]:
            self.stdout.write(json.dumps([_described(*each, days) for each in listed], indent=2, ensure_ascii=False))
            return
        heading = ("NAME", "ID", "BALANCE", f"SPENT SINCE {days.first}", "CURRENCY", "SUSPENDED SINCE")
        for line in as_table(heading, [_row(*each) for each in listed], numbers=(2, 3)):
            self.stdout.write(line)


def _days(since: str | None, now: datetime) -> Days:
    if since is None:
        return Days.until(now, SPENT_DAYS)
    today = now.astimezone(UTC).date()
    try:
        first = date.fromisoformat(since)
    except ValueError:
        raise CommandError(f"--since is a day such as {today - timedelta(days=SPENT_DAYS)}, not {since!r}.") from None
    if first > today:
        raise CommandError(f"--since is in the future ({since}).")
    return Days(first, today)


def _row(account: Account, spent: Totals) -> tuple[str, ...]:
    suspended = account.suspended_at
    return (
        account.name,
        str(account.pk),
        plain(account.wallet.balance),
        plain(spent.cost or Decimal(0)),
        account.currency,
        "" if suspended is None else to_text(suspended),
    )


def _described(account: Account, spent: Totals, days: Days) -> dict[str, Any]:
    """Describes an account with amounts as decimal strings, as in a statement."""
    return {
        "id": str(account.pk),
        "name": account.name,
        "currency": account.currency,
        "balance": plain(account.wallet.balance),
        "since": str(days.first),
        "requests": spent.requests,
        "spent": plain(spent.cost or Decimal(0)),
        "spent_eur": plain(spent.cost_eur or Decimal(0)),
        "created_at": to_text(account.created_at),
        "suspended_at": None if account.suspended_at is None else to_text(account.suspended_at),
        "closed_at": None if account.closed_at is None else to_text(account.closed_at),
    }
