"""Rolls records up into days, account by account, up to a watermark below which no record can be committed any more.

docs/growth.md#daily-rollups explains why. What is not rolled up yet is read from the records, which is slower.
"""

import logging
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import DatabaseError, OperationalError, connection, transaction
from django.db.models import BigIntegerField, Count, F, Q, QuerySet, Sum, Value
from django.db.models.functions import Coalesce, Now

from catalogue.pricing import MEASURED
from gateway.db.postgresql.base import LOCK_NOT_AVAILABLE
from gateway.money import EXACT, ExactDecimalField, LossyValueError

from ..ledger.record_columns import ROLLED_UP
from ..models import NO_ALIAS, DailyUsage, Generation, UsageWatermark, Wallet
from . import route_hours
from .times import Kind, Times, counts_by, times_of_row, with_periods

logger = logging.getLogger(__name__)

TRAIL = timedelta(minutes=1)
EVERY_SECONDS = 30.0
BATCH_RECORDS = 5000  # take some 40 ms in the database, for which SQLite's write lock is held
RECORDS_PER_BEAT = 20_000
RECORDS_PER_MAINTENANCE = 1_000_000
ACCOUNTS_PER_ROUND = 100
OWN_ACCOUNTS_PER_ROUND = 1000  # accounts of one worker, found by primary key: 10 ms in the database
ALL_EVERY_SECONDS = 3600.0
FAILURES_PER_ROUND = 3  # then a round gives up: a lock concerns one account, but a fault of the database all of them
LOCK_WAIT_MS = 250  # settlements of a busy account wait for some milliseconds only
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)

# The columns that records and rows are grouped by.
GROUP = ("day", "key_id", "alias_id", "provider", "model", "region", "endpoint", "energy_source", "tags")


def _sums() -> dict[str, Any]:
    """Returns the columns of a row that are added up, each with its sum over records."""
    sums: dict[str, Any] = {
        "requests": Count("id"),
        "interrupted": Count("id", filter=Q(interrupted=True)),
        "estimated": Count("id", filter=Q(usage_estimated=True)),
        "measured": Count("id", filter=Q(energy_source=MEASURED)),
        "energy_wh_bounded": Sum("energy_wh", filter=Q(energy_wh_low__isnull=False)),
    }
    for column in ROLLED_UP:
        sums[column.name] = Sum(column.name)
        sums.setdefault(column.counted_by, Count(column.name))
    return sums


SUMS = _sums()
# For each sum of a figure that a request may lack: the column that counts the requests which have it.
KNOWN_BY = {
    "energy_wh_bounded": "bounds_known",
    **{column.name: column.counted_by for column in ROLLED_UP if column.counted_by != "requests"},
}
EXACT_SUMS = frozenset(name for name in SUMS if isinstance(DailyUsage._meta.get_field(name), ExactDecimalField))
# The sums that every day has. Days that were rolled up before another sum existed have 0 for it and for its count, so
# that `verify_ledger` recognizes them.
SINCE_THE_FIRST_DAY = (
    "requests",
    "prompt_tokens",
    "completion_tokens",
    "interrupted",
    "estimated",
    "priced",
    "cost",
    "cost_eur",
    "energy_known",
    "energy_wh",
    "carbon_known",
    "carbon_gco2e",
)
SUM_PREFIX = "sum_"  # an annotation may not have the name of a column


@dataclass(frozen=True, slots=True)
class Barrier:
    """Marks a moment: all earlier records of the account were committed then, and `entries` ledger entries."""

    account_id: UUID
    moment: datetime
    entries: int


class WorkerRollups:
    """Rolls up the accounts that this worker has settled for, and once an hour any account that is not rolled up."""

    def __init__(self, settled: dict[UUID, None]) -> None:
        self._settled = settled
        self._all_at = -ALL_EVERY_SECONDS

    def advance(self) -> bool:
        """Rolls up about RECORDS_PER_BEAT records. Tells whether there are more."""
        now = time.monotonic()
        if now - self._all_at < ALL_EVERY_SECONDS:
            return advance(RECORDS_PER_BEAT, among=self._behind()) >= RECORDS_PER_BEAT
        is_more = advance(RECORDS_PER_BEAT) >= RECORDS_PER_BEAT
        if not is_more:
            self._all_at = now
        return is_more

    def _behind(self) -> list[UUID]:
        """Returns this worker's accounts that are not rolled up completely, and forgets the others."""
        behind = looked_at = list(self._settled)[:OWN_ACCOUNTS_PER_ROUND]
        if not looked_at:
            return []
        for account_id in looked_at:
            del self._settled[account_id]
        try:
            behind = list(accounts_behind(timedelta(0), looked_at))
        finally:
            self._settled.update(dict.fromkeys(behind))
        return behind


def advance(
    limit: int, *, trail: timedelta = TRAIL, rest: timedelta | None = None, among: Collection[UUID] | None = None
) -> int:
    """Rolls up about `limit` records, longest tails first, and returns how many. It is safe in several workers at once.

    It leaves out accounts whose watermark was moved less than `rest` ago and, if `among` is given, all other accounts.
    """
    if among is not None and not among:
        return 0
    rolled = failures = 0
    rest = timedelta(seconds=EVERY_SECONDS / 2) if rest is None else rest
    for account_id in list(accounts_behind(trail + rest, among)[:ACCOUNTS_PER_ROUND]):
        try:
            for records in _advance_account(account_id, trail, limit - rolled):
                rolled += records
        except OperationalError as error:  # a locked SQLite file, a statement that took too long
            logger.warning("the usage of account %s is not rolled up now: %s", account_id, error)
            failures += 1
        except (DatabaseError, LossyValueError, OverflowError):  # a sum of this account is too large for its column
            logger.exception("the usage of account %s cannot be rolled up", account_id)
        if rolled >= limit or failures >= FAILURES_PER_ROUND:
            break
    return rolled


def drop_sums(account_id: UUID) -> None:
    """Drops an account's rows and sets its watermark back, so that all its records are rolled up anew."""
    _ensure_watermark(account_id)  # so that there is a row to lock
    with transaction.atomic():
        mark = UsageWatermark.objects.select_for_update().get(account_id=account_id)
        DailyUsage.objects.filter(account_id=account_id).delete()
        mark.rolled_until, mark.entries = BEGINNING, 0
        mark.save(update_fields=["rolled_until", "entries"])


def accounts_behind(least: timedelta, among: Collection[UUID] | None = None) -> QuerySet[Wallet, UUID]:
    """Selects accounts with ledger entries that are not known to be rolled up, those with the most entries first."""
    # A record without a cost has no entry: it is rolled up with the next record that has one.
    wallets = Wallet.objects.annotate(
        behind=F("seq") - Coalesce("account__usage_watermark__entries", Value(0, BigIntegerField())),
        rolled_until=F("account__usage_watermark__rolled_until"),
    ).filter(Q(rolled_until=None) | Q(rolled_until__lt=Now() - least), behind__gt=0)
    if among is not None:
        wallets = wallets.filter(pk__in=among)
    return wallets.order_by("-behind").values_list("account_id", flat=True)


def _advance_account(account_id: UUID, trail: timedelta, limit: int) -> Iterator[int]:
    """Rolls up at most `limit` records of an account, a transaction for each batch, and yields the number in each."""
    barrier = _barrier(account_id)
    if barrier is None:
        return
    _ensure_watermark(account_id)
    while limit > 0:
        wanted = min(limit, BATCH_RECORDS)
        records = _roll_batch(barrier, trail, wanted)
        yield records
        if records < wanted:
            return
        limit -= records


def _barrier(account_id: UUID) -> Barrier | None:
    """Waits until no settlement holds the wallet's lock. Returns None if that takes longer than LOCK_WAIT_MS."""
    # Now() is the time at which the statement starts, before it waits, by the same clock as `created_at`.
    try:
        with transaction.atomic():
            if connection.vendor == "postgresql":
                with connection.cursor() as cursor:
                    cursor.execute(f"SET LOCAL lock_timeout = {LOCK_WAIT_MS}")
            locked = Wallet.objects.annotate(asked_at=Now()).select_for_update(no_key=True)
            wallet = locked.get(pk=account_id)
            return Barrier(account_id, wallet.asked_at, wallet.seq)
    except OperationalError as error:
        if getattr(error.__cause__, "sqlstate", None) != LOCK_NOT_AVAILABLE:
            raise
        return None


def _ensure_watermark(account_id: UUID) -> None:
    watermark = UsageWatermark(account_id=account_id, rolled_until=BEGINNING)
    UsageWatermark.objects.bulk_create([watermark], ignore_conflicts=True)


def _roll_batch(barrier: Barrier, trail: timedelta, wanted: int) -> int:
    """Rolls up the next records, moves the watermark past them, and returns their number.

    The number is less than `wanted` if there are no more records, and 0 if another process is rolling the account up.
    """
    safe = barrier.moment - trail
    with transaction.atomic():
        mark = UsageWatermark.objects.select_for_update(skip_locked=True).filter(pk=barrier.account_id).first()
        if mark is None or mark.rolled_until >= safe:
            return 0
        tail = Generation.objects.filter(account_id=barrier.account_id, created_at__gt=mark.rolled_until)
        moments = tail.filter(created_at__lte=safe).order_by("created_at", "id").values_list("created_at", flat=True)
        until = next(iter(moments[wanted - 1 : wanted]), safe)  # records of the same moment stay in one batch
        batch = tail.filter(created_at__lte=until)
        found = list(sums_by(batch, *GROUP))
        _add(barrier.account_id, found, _times_by_group(batch))
        # Ordered, so that it is read from one end of the index: `exists()` may scan the whole table.
        later = tail.filter(created_at__gt=safe).order_by("created_at", "id").values_list("created_at")[:1]
        is_all = until == safe and not later
        priced = sum(row[SUM_PREFIX + "priced"] for row in found)
        mark.entries = barrier.entries if is_all else min(mark.entries + priced, barrier.entries - 1)
        mark.rolled_until = until
        if mark.routes_until is None or mark.routes_until < until:
            route_hours.count_records(batch, mark.routes_until)  # last, because it locks rows that accounts share
            mark.routes_until = until
        mark.save(update_fields=["rolled_until", "routes_until", "entries"])
        return sum(row[SUM_PREFIX + "requests"] for row in found)


def sums_by(records: QuerySet[Generation], *group: str) -> QuerySet[Generation, dict[str, Any]]:
    """Adds records up in the database: a row has the columns of the group, and each sum as SUM_PREFIX + its name."""
    sums = {SUM_PREFIX + name: aggregate for name, aggregate in SUMS.items()}
    added_up: QuerySet[Generation, dict[str, Any]] = (
        with_periods(records, group).order_by().values(*group).annotate(**sums)
    )
    return added_up


def _times_by_group(records: QuerySet[Generation]) -> dict[tuple[Any, ...], Times]:
    """Counts the durations of the records of each row."""
    found: dict[tuple[Any, ...], dict[str, dict[int, int]]] = {}
    first, *others = counts_by(records, *GROUP)
    for row in first.union(*others, all=True):
        found.setdefault(_group(row), {}).setdefault(row["kind"], {})[row["bucket"]] = row["counted"]
    return {group: Times.of_counts(counts) for group, counts in found.items()}


def _group(found: dict[str, Any]) -> tuple[Any, ...]:
    """Returns the values that a row has in the columns of the group."""
    usual: dict[str, Any] = {"alias_id": NO_ALIAS, "energy_source": "", "tags": ""}
    return tuple(found[name] or usual[name] if name in usual else found[name] for name in GROUP)


def _add(account_id: UUID, found: list[dict[str, Any]], times_of: dict[tuple[Any, ...], Times]) -> None:
    """Adds sums to the account's rows, in Python, because additions there cannot overflow."""
    days = {row["day"] for row in found}
    stored = DailyUsage.objects.filter(account_id=account_id, day__in=days) if days else ()
    rows = {tuple(getattr(row, name) for name in GROUP): row for row in stored}
    changed = []
    for sums in found:
        group = _group(sums)
        row = rows.get(group)
        if row is None:
            row = DailyUsage(account_id=account_id, **dict(zip(GROUP, group, strict=True)), **_ZEROS)
        _add_times(row, times_of[group])
        for name in SUMS:
            setattr(row, name, _plus(getattr(row, name), sums[SUM_PREFIX + name]))
        changed.append(row)
    DailyUsage.objects.bulk_create(
        changed,
        batch_size=1000,
        update_conflicts=True,
        unique_fields=["account", *GROUP],
        update_fields=[*SUMS, *Kind],
    )


_ZEROS: dict[str, Any] = {name: Decimal(0) if name in EXACT_SUMS else 0 for name in SUMS} | dict.fromkeys(Kind, b"")


def _add_times(row: DailyUsage, times: Times) -> None:
    """Adds to a row's histograms, or drops them if a version without histograms has added to the row's sums."""
    stored = times_of_row(row.requests, *(getattr(row, kind) for kind in Kind))
    columns = dict.fromkeys(Kind) if stored is None else (stored + times).to_columns()
    for kind, histogram in columns.items():
        setattr(row, kind, histogram)


def _plus(total: Any, figure: Any) -> Any:
    """Adds exactly. A sum over no figures is None; PostgreSQL returns sums of whole numbers as Decimal."""
    if isinstance(total, Decimal):
        return total if figure is None else EXACT.add(total, figure)
    return total + int(figure or 0)
