"""Proving the ledger: every balance from its entries, every usage entry from its generation record, each record's cost
and footprint from its tokens with the prices, rates and factors frozen in it, and the usage by day from the records.

Each record's tokens are read again from the usage that the upstream reported, with today's reader: where that would
bill the request otherwise, the record is listed as well.

Safe beside live traffic: a wallet is read before its entries, and entries beyond its seq are left to the next run; what
is locked is an account's watermark alone, for which only its roll-up would wait. Constant memory: entries are read by
pages, each with its record and without converting what need not be shown. Parts of the accounts can be proved apart.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from functools import lru_cache
from heapq import merge
from itertools import chain, groupby
from typing import Any, NamedTuple, Protocol
from uuid import UUID

import orjson
from django.db import transaction
from django.db.models import ExpressionWrapper, F, Field, Max, Sum
from django.db.models.functions import Now

from accounts.models import Account
from catalogue.carbon import ENERGY_PLACES, MEASURED, EnergyFactors, Footprint, footprint_of
from catalogue.footprint.energy import figures_in
from catalogue.pricing import (
    RATE_PLACES,
    ContradictoryUsage,
    Price,
    Rates,
    Usage,
    cost_of,
    former_eur_units,
    thawed_tiers,
)
from gateway.ids import generation_id
from gateway.money import MONEY_PLACES, plain

from ..models import IMPLAUSIBLE_USAGE, NO_ALIAS, DailyUsage, Generation, LedgerEntry, UsageWatermark, Wallet
from .rollups import ADDED_LATER, BEGINNING, GROUP, SUM_PREFIX, SUMS, sums_by

PAGE = 2000  # entries
PART = 20_000  # entries, or one account that has more
COMPARED = [name for name in SUMS if name not in ADDED_LATER]
BY = [name for name in GROUP if name != "energy_source"]  # which older days lack
COSTS = ("prompt cost", "completion cost", "cost", "cost in EUR")
FOOTPRINT = (
    *("energy in Wh", "carbon in g", "lowest energy in Wh", "highest energy in Wh", "embodied carbon in g"),
    "energy source",
)


class ReadUsage(Protocol):
    """Reads an upstream's usage in a dialect's words (`inference.dialects.read_usage`)."""

    def __call__(self, dialect: str, reported: Any, *, is_embedding: bool, flags: str, prompt: int) -> Usage | None: ...


class Record(NamedTuple):
    """The columns of a generation that are checked, exact decimals as the whole numbers that the table keeps."""

    id: UUID
    account_id: UUID
    endpoint: str
    dialect: str | None
    upstream_usage: str | None
    usage_estimated: bool
    flags: str | None
    prompt_tokens: int
    uncached_prompt_tokens: int
    cache_read_tokens: int | None
    cache_write_5m_tokens: int | None
    cache_write_1h_tokens: int | None
    completion_tokens: int
    price_currency: str
    price_tiers: str | None
    prompt_price: int
    completion_price: int
    cache_read_price: int | None
    cache_write_price: int | None
    cache_write_1h_price: int | None
    account_rate: int
    eur_rate: int
    prompt_cost: int | None
    completion_cost: int | None
    cost: int | None
    cost_eur: int | None
    balance_after: int | None
    energy_per_token_wh: int | None
    energy_per_prompt_token_wh: int | None
    energy_figures: str | None
    grid_intensity: int | None
    energy_wh: int | None
    carbon_gco2e: int | None
    energy_wh_low: int | None
    energy_wh_high: int | None
    embodied_gco2e: int | None
    energy_source: str | None

    @property
    def usage(self) -> Usage:
        """The tokens that it was billed for."""
        return Usage(
            self.uncached_prompt_tokens,
            self.cache_read_tokens,
            self.cache_write_5m_tokens,
            self.cache_write_1h_tokens,
            self.completion_tokens,
        )


class Entry(NamedTuple):
    """What is looked at of a ledger entry."""

    seq: int
    amount: int
    balance_after: int
    generation_id: UUID | None


AS_STORED = frozenset(Record._fields[Record._fields.index("price_tiers") :]) | {"amount"}


def _columns(names: tuple[str, ...], prefix: str = "") -> list[Any]:
    """For `values_list`: the columns, exact decimals and JSON as they are stored."""
    as_stored: Field[Any, Any] = Field()
    return [
        ExpressionWrapper(F(prefix + name), output_field=as_stored) if name in AS_STORED else prefix + name
        for name in names
    ]


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
    """Yields a line for each mismatch, and last the Verification. None stands for all accounts, which are gone through
    by their ids, from `start_at` and up to `before`. `report` is called with the account at each page of entries.
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
    rows = entries.values_list(*_columns(Entry._fields), *_columns(Record._fields, "generation__"))
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
                stored = _shown(entry.balance_after)
                yield f"entry {seq}: balance after it is {stored}, its entries add up to {_shown(balance)}"
            if entry.generation_id is not None:
                record = Record._make(row[4:])
                yield from _usage(wallet, entry, record)
                yield from _record(record, read_usage)
                result.generations += 1
        result.entries += len(page)
    if seq < wallet.seq:
        yield f"the wallet counts {wallet.seq} entries, the ledger ends at {seq}"
    if _shown(balance) != plain(wallet.balance):
        yield f"the wallet holds {plain(wallet.balance)}, its entries add up to {_shown(balance)}"
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
        yield f"{name}: debits {_shown(-entry.amount)}, the record's cost is {_shown(record.cost)}"
    if record.balance_after != entry.balance_after:
        stored = _shown(record.balance_after)
        yield f"{name}: the record's balance after it is {stored}, not {_shown(entry.balance_after)}"


def _without_entry(wallet: Wallet, result: Verification, read_usage: ReadUsage) -> Iterator[str]:
    """Records that were never priced have none; every billed one has its entry."""
    records = Generation.objects.filter(account_id=wallet.pk, ledger_entry=None).order_by("created_at", "id")
    for row in records.values_list(*_columns(Record._fields)).iterator(PAGE):
        record = Record._make(row)
        result.generations += 1
        yield from _record(record, read_usage)
        if record.cost is not None:
            yield f"{generation_id(record.id)}: billed {_shown(record.cost)}, but has no ledger entry"


def _record(record: Record, read_usage: ReadUsage) -> Iterator[str]:
    """Yields a line for each figure that its tokens, prices and factors, or its upstream's usage, do not give."""
    usage, price, rates = record.usage, _price(*record[13:20]), _rates(record.account_rate, record.eur_rate)
    if record.prompt_tokens != usage.prompt:
        name = generation_id(record.id)
        yield f"{name}: {record.prompt_tokens} prompt tokens, its parts add up to {usage.prompt}"
    if record.cost is not None:
        expected = cost_of(price, usage, rates)
        figures = (expected.prompt_units, expected.completion_units, expected.total_units, expected.eur_units)
        stored = (record.prompt_cost, record.completion_cost, record.cost, record.cost_eur)
        if stored != figures and rates.account != rates.eur and stored[3] == former_eur_units(price, usage, rates):
            figures = (*figures[:3], stored[3])
        if stored != figures:
            yield from _unlike(record, COSTS, stored, figures, "prices")
    yield from _footprint(record, usage)
    # Why a usage was implausible cannot be found again: what was asked for and delivered is not kept.
    is_implausible = record.cost is None and IMPLAUSIBLE_USAGE in (record.flags or "").split()
    if record.upstream_usage is not None and not is_implausible:
        odd = _reread(record, usage, price, rates, read_usage)
        if odd is not None:
            yield f"{generation_id(record.id)}: {odd}"


def _footprint(record: Record, usage: Usage) -> Iterator[str]:
    """Yields a line for each wrong figure of energy and carbon. Energy that a provider measured is its own factor."""
    stored = Footprint._make(record[-len(Footprint._fields) :])
    measured = stored.energy_units if stored.source == MEASURED else None
    expected = footprint_of(usage, _factors(*record[-10:-6]), measured)
    if stored.source is None and record.energy_figures is None:  # from before sources were kept, and figures by kind
        expected = expected._replace(source=None)
    if stored != expected:
        yield from _unlike(record, FOOTPRINT, stored, expected, "factors")


def _unlike(
    record: Record, names: tuple[str, ...], stored: tuple[Any, ...], expected: tuple[Any, ...], frozen: str
) -> Iterator[str]:
    """A line for each figure that is stored otherwise than its tokens give it."""
    for name, found, figure in zip(names, stored, expected, strict=True):
        if found != figure:
            given = f"its tokens and frozen {frozen} give {_shown(figure)}"
            yield f"{generation_id(record.id)}: {name} {_shown(found)}, {given}"


def _reread(record: Record, stored: Usage, price: Price, rates: Rates, read_usage: ReadUsage) -> str | None:
    """What is odd about the upstream's usage, read again. An estimate keeps the completion that it ended with."""
    reported, is_embedding = orjson.loads(record.upstream_usage or ""), record.endpoint == Generation.Endpoint.EMBEDDING
    dialect, flags = record.dialect or "", record.flags or ""
    try:
        usage = read_usage(dialect, reported, is_embedding=is_embedding, flags=flags, prompt=record.prompt_tokens)
    except ContradictoryUsage as contradiction:
        if record.cost is None:
            return None
        return f"billed, but its upstream's usage is read as contradictory: {contradiction}"
    except KeyError:
        return f"its upstream's usage is in the dialect {record.dialect!r}, which is unknown"
    if usage is None:
        return None if record.usage_estimated else "its upstream's usage is read as no count of the request"
    if record.usage_estimated and record.cost is not None:
        usage = replace(usage, completion=record.completion_tokens)
    if record.cost is not None and _buckets(usage) == _buckets(stored):
        return None
    return (
        f"its upstream's usage is read as {_described(usage)}, which costs "
        f"{plain(cost_of(price, usage, rates).total)}; "
        f"the record has {_described(stored)} and costs {_shown(record.cost)}"
    )


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


@lru_cache(maxsize=1000)
def _price(currency: str, tiers: str | None, *prices: int | None) -> Price:
    decimals: Any = [None if units is None else _decimal(units) for units in prices]
    return Price(currency, *decimals, tiers=thawed_tiers(orjson.loads(tiers or "null"), currency))


@lru_cache(maxsize=1000)
def _rates(account: int, eur: int) -> Rates:
    return Rates(_decimal(account, RATE_PLACES), _decimal(eur, RATE_PLACES))


@lru_cache(maxsize=1000)
def _factors(
    per_token: int | None, per_prompt_token: int | None, figures: str | None, grid: int | None
) -> EnergyFactors:
    per_token_wh, per_prompt_token_wh = (
        None if units is None else _decimal(units, ENERGY_PLACES) for units in (per_token, per_prompt_token)
    )
    known = None if figures is None else figures_in(orjson.loads(figures))
    return EnergyFactors(per_token_wh, per_prompt_token_wh, grid, known)


def _decimal(units: int, places: int = MONEY_PLACES) -> Decimal:
    return Decimal(units).scaleb(-places)


def _buckets(usage: Usage) -> tuple[int, int, int, int, int]:
    return (
        usage.uncached_prompt,
        usage.cache_read or 0,
        usage.cache_write_5m or 0,
        usage.cache_write_1h or 0,
        usage.completion,
    )


def _described(usage: Usage) -> str:
    prompt, read, written_5m, written_1h, completion = _buckets(usage)
    return f"{prompt} prompt + {read} cached + {written_5m + written_1h} written + {completion} completion tokens"


def _shown(figure: int | str | None) -> str:
    if isinstance(figure, str):
        return figure
    return "unknown" if figure is None else plain(_decimal(figure))
