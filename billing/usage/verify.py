"""Verifies the ledger: balances from entries, entries from records, each record's tokens from its upstream's usage, its
cost and footprint from its tokens and frozen terms, the usage by day and what is spent of budgets from the records.

It is safe during live traffic: a wallet is read before its entries, later entries are left to the next run, and only
watermarks are locked. Memory is constant: entries are read in pages with their records, and figures are converted only
if they are shown. Small accounts share statements, because Django takes longer to compile one than to read a few rows.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from heapq import merge
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from django.db import transaction
from django.db.models import F, OuterRef, Subquery, Sum
from django.db.models.functions import Now

from accounts.models import Account
from gateway.ids import generation_id
from gateway.money import plain

from ..ledger import spending
from ..models import NO_ALIAS, DailyUsage, Generation, LedgerEntry, UsageWatermark, Wallet
from .recomputation import ReadUsage, Record, as_stored, columns_of_record, read_record, recompute, shown
from .rollups import GROUP, KNOWN_BY, SINCE_THE_FIRST_DAY, SUM_PREFIX, SUMS, sums_by

PAGE = 2000  # entries
MOST_WALLETS = 500  # wallets of a batch, whose ids are parameters of its statements
PART = 20_000  # entries of a part; a part is larger only if its last account has more
GROUP_WITHOUT_SOURCE = [name for name in GROUP if name != "energy_source"]  # older days lack the energy's source
Row = TypeVar("Row")


class LedgerRow(NamedTuple):
    """Holds what is verified of a ledger entry; amounts are whole numbers of 10^-10 units."""

    seq: int
    amount: int
    balance_after: int
    generation_id: UUID | None


@dataclass(slots=True)
class Verification:
    """Counts what was verified; `mismatches` is the number of lines that `verify` has yielded."""

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

    `report` is called at each page of entries and at the end of each account within a batch. All accounts before the
    one that it is called with are done.
    """
    result = Verification()
    chosen = {} if account_id is None else {"pk": account_id}
    chosen |= {} if start_at is None else {"pk__gte": start_at}
    chosen |= {} if before is None else {"pk__lt": before}
    wallets = Wallet.objects.filter(**chosen).order_by("pk").select_related("account").iterator(PAGE)
    for batch in _batches(wallets):
        result.accounts += len(batch)
        for wallet, mismatch in _verify_batch(batch, result, read_usage, report):
            result.mismatches += 1
            yield f"account {wallet.account.name}: {mismatch}"
    for account in Account.objects.filter(wallet=None, **chosen).order_by("pk").iterator(PAGE):
        result.accounts += 1
        result.mismatches += 1
        yield f"account {account.name}: it has no wallet"
    yield result


def parts(start_at: UUID | None) -> Iterator[tuple[UUID | None, UUID | None]]:
    """Splits the accounts from `start_at` on into parts of about PART entries. Yields the start and end (excluded)."""
    wallets = Wallet.objects.filter(**({} if start_at is None else {"pk__gte": start_at}))
    entries = 0
    for pk, seq in wallets.order_by("pk").values_list("pk", "seq").iterator(PAGE):
        if entries >= PART:
            yield start_at, pk
            start_at, entries = pk, 0
        entries += seq
    yield start_at, None


def _batches(wallets: Iterable[Wallet]) -> Iterator[list[Wallet]]:
    """Yields consecutive wallets that have no more than a page of entries together; one that has more comes alone."""
    batch, entries = list[Wallet](), 0
    for wallet in wallets:
        if batch and (entries + wallet.seq > PAGE or len(batch) == MOST_WALLETS):
            yield batch
            batch, entries = [], 0
        batch.append(wallet)
        entries += wallet.seq
    if batch:
        yield batch


def _verify_batch(
    batch: list[Wallet], result: Verification, read_usage: ReadUsage, report: Callable[[UUID, Verification], object]
) -> Iterator[tuple[Wallet, str]]:
    """Yields each mismatch with its wallet: first of all entries, then of records without one, then of usage by day."""
    entries = chain.from_iterable(_pages(batch, lambda: report(batch[0].pk, result)))
    for wallet, rows in _by_wallet(batch, entries, itemgetter(0)):
        for mismatch in _entries(wallet, rows, result, read_usage):
            yield wallet, mismatch
    wallet_of = {wallet.pk: wallet for wallet in batch}
    for account_id, seq, last in _ahead(batch):
        yield wallet_of[account_id], f"the wallet counts {seq} entries, the ledger ends at {last}"
    for row in _without_entry(batch):
        record, terms = read_record(row)
        result.generations += 1
        for mismatch in chain(recompute(record, terms, read_usage), _unbooked(record)):
            yield wallet_of[record.account_id], mismatch
    with transaction.atomic():
        in_future = _marks_in_the_future(batch)
        for wallet, days in _by_wallet(batch, _days(batch), lambda row: row[1]["account_id"]):
            if wallet is not batch[0]:  # the first wallet was reported with its entries
                report(wallet.pk, result)
            for mismatch in _usage_by_day(wallet, days, in_future):
                yield wallet, mismatch
    for account_id, mismatch in spending.mismatches(wallet_of):
        yield wallet_of[account_id], mismatch


def _by_wallet(
    batch: list[Wallet], rows: Iterable[Row], account_of: Callable[[Row], UUID]
) -> Iterator[tuple[Wallet, Iterable[Row]]]:
    """Yields each wallet with its rows. They come in the order of the wallets; rows of other accounts are skipped."""
    groups = groupby(rows, account_of)
    account_id, own = next(groups, (None, ()))
    for wallet in batch:
        while account_id is not None and account_id < wallet.pk:
            account_id, own = next(groups, (None, ()))
        yield wallet, own if account_id == wallet.pk else ()


def _pages(batch: list[Wallet], report: Callable[[], object]) -> Iterator[list[tuple[Any, ...]]]:
    """Yields pages of entries with their records, in the order of wallets and ledgers."""
    rows = LedgerEntry.objects.filter(seq__lte=max(wallet.seq for wallet in batch)).order_by("account_id", "seq")
    own = "account_id", "seq", as_stored("amount"), as_stored("balance_after"), "generation_id"
    account_id, seq = batch[0].pk, 0
    page: list[tuple[Any, ...]] | None = None
    while page is None or len(page) == PAGE:
        report()
        if len(batch) == 1:
            rest = rows.filter(account_id=account_id, seq__gt=seq)
        else:  # A second page is needed only if entries came after the wallets were read.
            rest = rows.filter(account_id__gte=account_id, account_id__lte=batch[-1].pk)
            rest = rest.exclude(account_id=account_id, seq__lte=seq)
        page = list(rest.values_list(*own, *columns_of_record("generation__"))[:PAGE])
        yield page
        if page:
            account_id, seq = page[-1][:2]


def _entries(
    wallet: Wallet, rows: Iterable[tuple[Any, ...]], result: Verification, read_usage: ReadUsage
) -> Iterator[str]:
    """Checks every entry and its record, in the ledger's order, and then the wallet's number and balance."""
    seq = balance = 0
    for row in rows:
        entry = LedgerRow._make(row[1:5])
        if entry.seq > wallet.seq:
            break
        result.entries += 1
        if entry.seq != seq + 1:
            yield f"entries {seq + 1} to {entry.seq - 1} are missing"
        seq = entry.seq
        balance += entry.amount
        if entry.balance_after != balance:
            stored = shown(entry.balance_after)
            yield f"entry {seq}: balance after it is {stored}, its entries add up to {shown(balance)}"
        if entry.generation_id is not None:
            record, terms = read_record(row[5:])
            yield from _usage(wallet, entry, record)
            yield from recompute(record, terms, read_usage)
            result.generations += 1
    if seq < wallet.seq:
        yield f"the wallet counts {wallet.seq} entries, the ledger ends at {seq}"
    if shown(balance) != plain(wallet.balance):
        yield f"the wallet holds {plain(wallet.balance)}, its entries add up to {shown(balance)}"


def _ahead(batch: list[Wallet]) -> Iterable[tuple[UUID, int, int]]:
    """Returns id, count and last number of each wallet that counts fewer entries than there are.

    An entry and its wallet move together, and a single statement sees both as they are at one moment.
    """
    numbers = LedgerEntry.objects.filter(account_id=OuterRef("pk")).order_by("-seq").values("seq")
    wallets = Wallet.objects.filter(pk__in=_ids(batch)).order_by("pk").annotate(last=Subquery(numbers[:1]))
    return wallets.filter(last__gt=F("seq")).values_list("pk", "seq", "last")


def _usage(wallet: Wallet, entry: LedgerRow, record: Record) -> Iterator[str]:
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


def _without_entry(batch: list[Wallet]) -> Iterator[tuple[Any, ...]]:
    records = Generation.objects.filter(account_id__in=_ids(batch))
    if len(batch) == 1:
        records = records.filter(ledger_entry=None)
    else:  # PostgreSQL would join a few records with the whole ledger; it looks a subquery up for each record.
        entry = LedgerEntry.objects.filter(generation_id=OuterRef("pk")).order_by().values("pk")[:1]
        records = records.annotate(entry=Subquery(entry)).filter(entry=None)
    return records.order_by("account_id", "created_at", "id").values_list(*columns_of_record()).iterator(PAGE)


def _unbooked(record: Record) -> Iterator[str]:
    """Yields a line if the record was billed: only a record that was never priced has no entry."""
    if record.cost is not None:
        yield f"{generation_id(record.id)}: billed {shown(record.cost)}, but has no ledger entry"


def _marks_in_the_future(batch: list[Wallet]) -> dict[UUID, datetime]:
    """Locks the watermarks of a batch until the transaction ends, and returns those that lie in the future."""
    marks = UsageWatermark.objects.filter(pk__in=_ids(batch)).order_by("pk")
    list(marks.select_for_update().values_list("pk"))
    # A mark may have moved while the first statement waited for another account's mark. This statement's time is later.
    return {pk: until for pk, until, now in marks.values_list("pk", "rolled_until", Now()) if until > now}


def _days(batch: list[Wallet]) -> Iterator[tuple[bool, dict[str, Any]]]:
    """Yields sums of the records up to the watermarks (False) and kept rows (True), by account and day."""
    ids, by = _ids(batch), ("account_id", *GROUP_WITHOUT_SOURCE)
    until = F("account__usage_watermark__rolled_until")
    records = Generation.objects.filter(account_id__in=ids, created_at__lte=until)
    stored = (
        DailyUsage.objects.filter(account_id__in=ids)
        .order_by("account_id", "day")
        .values(*by)
        .annotate(**{SUM_PREFIX + name: Sum(name) for name in SUMS})
    )
    return merge(
        ((False, row) for row in sums_by(records, *by).order_by("account_id", F("day")).iterator(PAGE)),
        ((True, row) for row in stored.iterator(PAGE)),
        key=lambda row: (row[1]["account_id"], row[1]["day"]),
    )


def _usage_by_day(
    wallet: Wallet, rows: Iterable[tuple[bool, dict[str, Any]]], future: dict[UUID, datetime]
) -> Iterator[str]:
    """Compares each day's rows with the sums of its records."""
    if wallet.pk in future:
        until = f"{future[wallet.pk]:%Y-%m-%d %H:%M} UTC"
        yield f"its usage counts as added up until {until}, which hides what is served before"
    for day, of_day in groupby(rows, lambda row: row[1]["day"]):
        known: tuple[dict[Any, Any], dict[Any, Any]] = {}, {}
        for is_stored, row in of_day:
            group = (
                row["key_id"],
                row["alias_id"] or NO_ALIAS,
                *(row[name] or "" for name in GROUP_WITHOUT_SOURCE[3:]),
            )
            known[is_stored][group] = {name: row[SUM_PREFIX + name] or 0 for name in SUMS}
        of_records, of_rows = known
        groups = of_records.keys() & of_rows.keys()
        differing = {name for group in groups for name in _differing(of_rows[group], of_records[group])}
        if differing or of_records.keys() != of_rows.keys():
            found, kept = (
                f"{sum(row['requests'] for row in rows.values())} requests for "
                f"{plain(sum((row['cost'] for row in rows.values()), Decimal(0)))}"
                for rows in known
            )
            names = ", ".join(name for name in SUMS if name in differing)
            where = f"; they differ in {names}" if names and found == kept else ""
            yield f"its usage of {day} is {kept}, its records add up to {found}{where}"


def _differing(kept: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    """Yields the name of each sum by day that differs from the sum of the records.

    If a part of the day was rolled up before a column existed, its sum and count may be smaller, but never larger.
    """
    for name in SUMS:
        count = KNOWN_BY.get(name, name)
        is_partial = name not in SINCE_THE_FIRST_DAY and kept[count] < found[count]
        if kept[name] > found[name] if is_partial else kept[name] != found[name]:
            yield name


def _ids(batch: list[Wallet]) -> list[UUID]:
    return [wallet.pk for wallet in batch]
