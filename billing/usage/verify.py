"""Proving the ledger: balances from entries, entries from records, each record's tokens from its upstream's usage, its
cost and footprint from its tokens and frozen terms, and the usage by day from the records.

Safe beside live traffic: a wallet is read before its entries, and later ones are left to the next run; only a
watermark is locked. Memory is constant: entries come by pages, with their records, converted only where shown.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from heapq import merge
from itertools import chain, groupby
from typing import Any, NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models import F, Max, Sum
from django.db.models.functions import Now

from accounts.models import Account
from gateway.ids import generation_id
from gateway.money import plain

from ..models import NO_ALIAS, DailyUsage, Generation, LedgerEntry, UsageWatermark, Wallet
from .recomputation import ReadUsage, Record, as_stored, columns_of_record, read_record, recompute, shown
from .rollups import ADDED_LATER, BEGINNING, GROUP, SUM_PREFIX, SUMS, sums_by

PAGE = 2000  # entries
PART = 20_000  # entries, or one account that has more
COMPARED = [name for name in SUMS if name not in ADDED_LATER]
BY = [name for name in GROUP if name != "energy_source"]  # which older days lack


class Entry(NamedTuple):
    """What is looked at of a ledger entry."""

    seq: int
    amount: int
    balance_after: int
    generation_id: UUID | None


@dataclass(slots=True)
class Verification:
    """What was checked, and how much of it; `mismatches` come from the generator that fills it."""

    accounts: int = 0
    entries: int = 0
    generations: int = 0
    mismatches: int = 0


def verify(
    account_id: UUID | None,
    read_usage: ReadUsage,
    *,
    start_at: UUID | None = None,
    before: UUID | None = None,
    report: Callable[[UUID, Verification], object] = lambda _account_id, _result: None,
) -> Iterator[str | Verification]:
    """Yields a line for each mismatch, and last the Verification, of an account or of all between two ids.

    `report` is called with the account at each page of entries.
    """
    result = Verification()
    chosen = {} if account_id is None else {"pk": account_id}
    chosen |= {} if start_at is None else {"pk__gte": start_at}
    chosen |= {} if before is None else {"pk__lt": before}
    for wallet in Wallet.objects.filter(**chosen).order_by("pk").select_related("account").iterator(PAGE):
        result.accounts += 1
        looked_at = _entries(wallet, result, read_usage, report), _without_entry(wallet, result, read_usage)
        for mismatch in chain(*looked_at, _usage_by_day(wallet)):
            result.mismatches += 1
            yield f"account {wallet.account.name}: {mismatch}"
    for account in Account.objects.filter(wallet=None, **chosen).order_by("pk").iterator(PAGE):
        result.accounts += 1
        result.mismatches += 1
        yield f"account {account.name}: it has no wallet"
    yield result


def parts(start_at: UUID | None) -> Iterator[tuple[UUID | None, UUID | None]]:
    """All accounts from `start_at` on as parts of PART entries: where each starts, and before which account it ends."""
    wallets = Wallet.objects.filter(**({} if start_at is None else {"pk__gte": start_at}))
    entries = 0
    for pk, seq in wallets.order_by("pk").values_list("pk", "seq").iterator(PAGE):
        if entries >= PART:
            yield start_at, pk
            start_at, entries = pk, 0
        entries += seq
    yield start_at, None


def _entries(
    wallet: Wallet, result: Verification, read_usage: ReadUsage, report: Callable[[UUID, Verification], object]
) -> Iterator[str]:
    """Every entry and its record, in the ledger's order, and where that leads."""
    entries = LedgerEntry.objects.filter(account_id=wallet.pk, seq__lte=wallet.seq).order_by("seq")
    own = "seq", as_stored("amount"), as_stored("balance_after"), "generation_id"
    rows = entries.values_list(*own, *columns_of_record("generation__"))
    seq = balance = 0
    page: list[tuple[Any, ...]] | None = None
    while page is None or len(page) == PAGE:
        report(wallet.pk, result)
        page = list(rows.filter(seq__gt=seq)[:PAGE])
        for row in page:
            entry = Entry._make(row[:4])
            if entry.seq != seq + 1:
                yield f"entries {seq + 1} to {entry.seq - 1} are missing"
            seq = entry.seq
            balance += entry.amount
            if entry.balance_after != balance:
                stored = shown(entry.balance_after)
                yield f"entry {seq}: balance after it is {stored}, its entries add up to {shown(balance)}"
            if entry.generation_id is not None:
                record, frozen = read_record(row[4:])
                yield from _usage(wallet, entry, record)
                yield from recompute(record, frozen, read_usage)
                result.generations += 1
        result.entries += len(page)
    if seq < wallet.seq:
        yield f"the wallet counts {wallet.seq} entries, the ledger ends at {seq}"
    if shown(balance) != plain(wallet.balance):
        yield f"the wallet holds {plain(wallet.balance)}, its entries add up to {shown(balance)}"
    # An entry and its wallet move together, so that no entry can be ahead of a wallet that is read after it.
    last = LedgerEntry.objects.filter(account_id=wallet.pk).aggregate(last=Max("seq"))["last"] or 0
    wallet.refresh_from_db(fields=["seq"])
    if last > wallet.seq:
        yield f"the wallet counts {wallet.seq} entries, the ledger ends at {last}"


def _usage(wallet: Wallet, entry: Entry, record: Record) -> Iterator[str]:
    if (record.account_id, record.cost, record.balance_after) == (wallet.pk, -entry.amount, entry.balance_after):
        return
    name = f"entry {entry.seq} for {generation_id(record.id)}"
    if record.account_id != wallet.pk:
        yield f"{name}: the record belongs to another account"
    if record.cost is None or entry.amount != -record.cost:
        yield f"{name}: debits {shown(-entry.amount)}, the record's cost is {shown(record.cost)}"
    if record.balance_after != entry.balance_after:
        stored = shown(record.balance_after)
        yield f"{name}: the record's balance after it is {stored}, not {shown(entry.balance_after)}"


def _without_entry(wallet: Wallet, result: Verification, read_usage: ReadUsage) -> Iterator[str]:
    """Records that were never priced have none; every billed one has its entry."""
    records = Generation.objects.filter(account_id=wallet.pk, ledger_entry=None).order_by("created_at", "id")
    for row in records.values_list(*columns_of_record()).iterator(PAGE):
        record, frozen = read_record(row)
        result.generations += 1
        yield from recompute(record, frozen, read_usage)
        if record.cost is not None:
            yield f"{generation_id(record.id)}: billed {shown(record.cost)}, but has no ledger entry"


def _usage_by_day(wallet: Wallet) -> Iterator[str]:
    """The account's rows are the sums of its records up to its watermark, which nobody moves meanwhile."""
    with transaction.atomic():
        marks = UsageWatermark.objects.select_for_update().annotate(now=Now())
        mark = marks.filter(pk=wallet.pk).first()
        until = BEGINNING if mark is None else mark.rolled_until
        if mark is not None and until > mark.now:
            yield f"its usage counts as added up until {until:%Y-%m-%d %H:%M} UTC, which hides what is served before"
        records = Generation.objects.filter(account_id=wallet.pk, created_at__lte=until)
        stored = (
            DailyUsage.objects.filter(account_id=wallet.pk)
            .order_by("day")
            .values(*BY)
            .annotate(**{SUM_PREFIX + name: Sum(name) for name in COMPARED})
        )
        rows = merge(
            ((False, row) for row in sums_by(records, *BY).order_by(F("day")).iterator(PAGE)),
            ((True, row) for row in stored.iterator(PAGE)),
            key=_day,
        )
        for day, of_day in groupby(rows, _day):
            known: tuple[dict[Any, Any], dict[Any, Any]] = {}, {}
            for is_stored, row in of_day:
                group = (row["key_id"], row["alias_id"] or NO_ALIAS, *(row[name] for name in BY[3:]))
                known[is_stored][group] = {name: row[SUM_PREFIX + name] or 0 for name in COMPARED}
            if known[False] != known[True]:
                found, kept = (
                    f"{sum(row['requests'] for row in rows.values())} requests for "
                    f"{plain(sum((row['cost'] for row in rows.values()), Decimal(0)))}"
                    for rows in known
                )
                yield f"its usage of {day} is {kept}, its records add up to {found}"


def _day(row: tuple[bool, dict[str, Any]]) -> date:
    day: date = row[1]["day"]
    return day
