"""Makes the printed page of a statement: the ledger's sums, and the usage by day, key, model, region and tag."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.utils import timezone

from accounts.models import Account, ApiKey
from billing.models import LedgerEntry
from billing.usage.months import Ledger
from billing.usage.statement import Line, Period, StatementTotals, Sum, lines
from billing.usage.statistics import Days, GroupColumn, Row, Scope, Totals, breakdown
from gateway.money import EXACT
from gateway.server.turns import take_turns
from gateway.templatetags.figures import ENERGY_UNITS, MASS_UNITS, Scale

MOST_PRINTED = 50_000  # requests that are read one by one for a printed page
MOST_DAYS = 92  # a longer period is shown by month
SETTLED_AFTER = timedelta(minutes=2)  # by then no record of an earlier moment can be committed any more
NO_TAGS = "no tags"


class TooManyRequests(Exception):
    """Is raised if a page would have to read too many requests one by one."""

    def __init__(self, requests: int) -> None:
        super().__init__(f"{requests} requests")
        self.requests = requests


@dataclass(slots=True)
class PrintedSums:
    """Sums up a row of a printed statement."""

    requests: int = 0
    cost: Sum = field(default_factory=Sum)
    energy_wh: Sum = field(default_factory=Sum)
    carbon_gco2e: Sum = field(default_factory=Sum)

    def add(self, other: "PrintedSums") -> None:
        self.requests += other.requests
        for sums, more in (
            (self.cost, other.cost),
            (self.energy_wh, other.energy_wh),
            (self.carbon_gco2e, other.carbon_gco2e),
        ):
            sums.total = EXACT.add(sums.total, more.total)
            sums.known += more.known
            sums.unknown += more.unknown

    def add_line(self, line: Line) -> None:
        self.requests += 1
        for sums, name in ((self.cost, "cost"), (self.energy_wh, "energy_wh"), (self.carbon_gco2e, "carbon_gco2e")):
            figure = line[name]
            sums.add(figure if isinstance(figure, Decimal) else None)

    def add_totals(self, totals: Totals) -> None:
        self.requests += totals.requests
        for sums, total, known in (
            (self.cost, totals.cost, totals.priced),
            (self.energy_wh, totals.energy_wh, totals.energy_known),
            (self.carbon_gco2e, totals.carbon_gco2e, totals.carbon_known),
        ):
            sums.total = EXACT.add(sums.total, total or Decimal(0))
            sums.known += known
            sums.unknown += totals.requests - known


@dataclass(frozen=True, slots=True)
class PrintedTable:
    """Holds a table of a printed statement: its name, the head of its first column, and its rows."""

    name: str
    heading: str
    rows: Mapping[Any, PrintedSums]

    @property
    def energy(self) -> Scale:
        return Scale.of((sums.energy_wh.shown for sums in self.rows.values()), ENERGY_UNITS)

    @property
    def carbon(self) -> Scale:
        return Scale.of((sums.carbon_gco2e.shown for sums in self.rows.values()), MASS_UNITS)


@dataclass(slots=True)
class PrintedStatement:
    """Holds the sums of a printed statement: in total, and by day, key, model, region and tag."""

    totals: StatementTotals = field(default_factory=StatementTotals)
    whole: PrintedSums = field(default_factory=PrintedSums)
    days: dict[date, PrintedSums] = field(default_factory=lambda: defaultdict(PrintedSums))
    keys: dict[str, PrintedSums] = field(default_factory=lambda: defaultdict(PrintedSums))  # by id
    models: dict[str, PrintedSums] = field(default_factory=lambda: defaultdict(PrintedSums))
    regions: dict[str, PrintedSums] = field(default_factory=lambda: defaultdict(PrintedSums))
    tags: dict[str, PrintedSums] = field(default_factory=lambda: defaultdict(PrintedSums))

    def tables(self) -> Iterator[PrintedTable]:
        """Yields a table for each grouping, the highest cost first, and one of days, or of months if they are many."""
        names = dict(ApiKey.objects.filter(pk__in=[*self.keys]).values_list("pk", "name"))
        twice = {name for name in names.values() if [*names.values()].count(name) > 1}
        keys = {}
        for key_id, sums in self.keys.items():
            name = names[UUID(key_id)]
            keys[f"{name} ({key_id})" if name in twice else name] = sums
        yield PrintedTable("key", "API key", _sorted(keys))
        yield PrintedTable("model", "Model", _sorted(self.models))
        yield PrintedTable("region", "Region", _sorted(self.regions))
        if self.tags.keys() - {NO_TAGS}:
            yield PrintedTable("tag", "Tag", _sorted(self.tags))
        if not self.days or max(self.days) - min(self.days) < timedelta(days=MOST_DAYS):
            yield PrintedTable("day", "Date", dict(sorted(self.days.items())))
        else:
            yield PrintedTable("month", "Month", self._months())

    def _months(self) -> dict[date, PrintedSums]:
        """Adds up the days of each month, which is named by its first day."""
        months: dict[date, PrintedSums] = {}
        for day, sums in sorted(self.days.items()):
            months.setdefault(day.replace(day=1), PrintedSums()).add(sums)
        return months


def printed(account: Account, period: Period) -> PrintedStatement:
    """Returns the printed statement of a period. Raises TooManyRequests.

    Whole days that are over are read from the daily rollups, which have exactly the records' sums. Other periods are
    read record by record.
    """
    days = Days(period.since.astimezone(UTC).date(), period.until.astimezone(UTC).date())
    is_over = period.until < timezone.now() - SETTLED_AFTER
    if is_over and is_of_days(period):
        return _of_days(account, days)
    requests = sum(row.totals.requests for row in breakdown(Scope(account.pk), days))
    if requests > MOST_PRINTED:
        raise TooManyRequests(requests)
    return _of_lines(account, period)


def is_of_days(period: Period) -> bool:
    """Tells whether a period consists of whole UTC days."""
    return (period.since.astimezone(UTC).time(), period.until.astimezone(UTC).time()) == (time.min, time.max)


def number_of(account: Account, period: Period) -> str:
    """Returns the statement's number: the month, or else the bounds of the period, and the end of the account's id."""
    since, until = period.since.astimezone(UTC), period.until.astimezone(UTC)
    if not is_of_days(period):
        bounds = f"{since:%Y%m%dT%H%M%SZ}-{until:%Y%m%dT%H%M%SZ}"
    elif since.day == 1 and until.date() == _end_of_month(since):
        bounds = f"{since:%Y-%m}"
    else:
        bounds = f"{since:%Y%m%d}-{until:%Y%m%d}"
    return f"{bounds}-{account.pk.hex[-12:].upper()}"


def credit_of(account_id: UUID, days: Days) -> list[LedgerEntry]:
    """Returns the grants and corrections of these days, newest first."""
    # The filter repeats the condition of the index, so that the index is used, as in `ledger_page`.
    entries = LedgerEntry.objects.filter(account_id=account_id).exclude(reference=None)
    return list(entries.filter(created_at__gte=days.since, created_at__lt=days.before).order_by("-seq"))


def _of_lines(account: Account, period: Period) -> PrintedStatement:
    page = PrintedStatement()
    for line in lines(account, period, page.totals):
        take_turns()
        if line["line"] == "generation":
            tags = str(line["tags"] or "").split() or [NO_TAGS]
            for sums in (
                page.whole,
                page.days[date.fromisoformat(str(line["created_at"])[:10])],
                page.keys[str(line["key_id"])],
                page.models[str(line["model"]).rpartition("/")[0]],
                page.regions[str(line["region"])],
                *(page.tags[tag] for tag in tags),
            ):
                sums.add_line(line)
    return page


def _of_days(account: Account, days: Days) -> PrintedStatement:
    page, scope, column = PrintedStatement(), Scope(account.pk), GroupColumn
    ledger = Ledger(account.pk).sums(days)
    for row in breakdown(scope, days, column.DAY, column.KEY, column.PROVIDER, column.MODEL, column.REGION):
        if row.day is not None:
            for sums in (
                page.whole,
                page.days[row.day],
                page.keys[str(row.key_id)],
                page.models[f"{row.provider}/{row.model}"],
                page.regions[str(row.region)],
            ):
                sums.add_totals(row.totals)
    by_tag: list[Row] = breakdown(scope, days, column.TAG)
    for row in by_tag:
        page.tags[row.tag or NO_TAGS].add_totals(row.totals)
    page.totals = StatementTotals(
        requests=page.whole.requests,
        cost=page.whole.cost,
        energy_wh=page.whole.energy_wh,
        carbon_gco2e=page.whole.carbon_gco2e,
        opening_balance=ledger.opening,
        credits=ledger.top_ups + ledger.corrections,
        closing_balance=ledger.closing,
    )
    return page


def _sorted(rows: dict[str, PrintedSums]) -> dict[str, PrintedSums]:
    return dict(sorted(rows.items(), key=lambda row: (-row[1].cost.total, row[0])))


def _end_of_month(moment: datetime) -> date:
    return (moment.date().replace(day=1) + timedelta(days=31)).replace(day=1) - timedelta(days=1)
