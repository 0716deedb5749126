"""Proving the ledger: balances from entries, entries from records, each record's tokens from its upstream's usage, its
cost and footprint from its tokens and frozen terms, and the usage by day from the records.

Safe beside live traffic: a wallet is read before its entries, and later ones are left to the next run; only a
watermark is locked. Memory is constant: entries come by pages, with their records, converted only where shown.
"""

from collections import namedtuple
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
from django.db.models.functions import Coalesce, Now

from accounts.models import Account
from catalogue.pricing import (
    MEASURED,
    ContradictoryUsage,
    EnergyFactors,
    Footprint,
    Price,
    Rates,
    Usage,
    cost_of,
    footprint_of,
    former_eur_units,
)
from gateway.ids import generation_id
from gateway.money import ExactDecimalField, from_units, plain

from ..ledger.endings import PROVIDER_FAILURES
from ..models import (
    FROZEN,
    IMPLAUSIBLE_USAGE,
    NO_ALIAS,
    ZERO_USAGE,
    DailyUsage,
    FrozenColumns,
    FrozenTerms,
    Generation,
    LedgerEntry,
    UsageWatermark,
    Wallet,
    content_id,
)
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


Record = namedtuple(
    "Record",
    "id account_id endpoint dialect upstream_usage usage_estimated flags prompt_tokens uncached_prompt_tokens"
    " cache_read_tokens cache_write_5m_tokens cache_write_1h_tokens completion_tokens prompt_cost completion_cost"
    " cost cost_eur balance_after ending energy_wh carbon_gco2e energy_wh_low energy_wh_high embodied_gco2e"
    " energy_source terms_id",
)


class Frozen(NamedTuple):
    """What a record's terms come to, and what is wrong with them."""

    price: Price
    rates: Rates
    factors: EnergyFactors
    fault: str | None


class Entry(NamedTuple):
    """What is looked at of a ledger entry."""

    seq: int
    amount: int
    balance_after: int
    generation_id: UUID | None


EXACT = {field.attname for field in Generation._meta.concrete_fields if isinstance(field, ExactDecimalField)}


def _as_stored(name: str) -> Any:
    """For `values_list`: an exact decimal's whole number, JSON's text."""
    return ExpressionWrapper(F(name), output_field=Field[Any, Any]())


def _columns(prefix: str = "") -> list[Any]:
    """For `values_list`: a record's columns, and behind them the frozen ones, which are its own or its terms'."""
    own = [_as_stored(prefix + name) if name in EXACT else prefix + name for name in Record._fields]
    return own + [
        Coalesce(_as_stored(f"{prefix}terms__{name}"), _as_stored(prefix + name), output_field=Field[Any, Any]())
        for name in FROZEN
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
    own = "seq", _as_stored("amount"), _as_stored("balance_after"), "generation_id"
    rows = entries.values_list(*own, *_columns("generation__"))
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
                record, frozen = _read(row[4:])
                yield from _usage(wallet, entry, record)
                yield from _record(record, frozen, read_usage)
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
    for row in records.values_list(*_columns()).iterator(PAGE):
        record, frozen = _read(row)
        result.generations += 1
        yield from _record(record, frozen, read_usage)
        if record.cost is not None:
            yield f"{generation_id(record.id)}: billed {_shown(record.cost)}, but has no ledger entry"


def _read(row: tuple[Any, ...]) -> tuple[Record, Frozen | None]:
    record = Record._make(row[: len(Record._fields)])
    return record, _frozen(record.terms_id, row[len(Record._fields) :])


def _record(record: Record, frozen: Frozen | None, read_usage: ReadUsage) -> Iterator[str]:
    """Yields a line for each figure that its tokens and terms, or its upstream's usage, do not give."""
    name = generation_id(record.id)
    usage = Usage(
        record.uncached_prompt_tokens,
        record.cache_read_tokens,
        record.cache_write_5m_tokens,
        record.cache_write_1h_tokens,
        record.completion_tokens,
    )
    if record.prompt_tokens != usage.prompt:
        yield f"{name}: {record.prompt_tokens} prompt tokens, its parts add up to {usage.prompt}"
    if frozen is None:
        yield f"{name}: its terms {record.terms_id} are missing"
        return
    if frozen.fault is not None:
        yield f"{name}: {frozen.fault}"
    if record.cost is not None:
        expected = cost_of(frozen.price, usage, frozen.rates)
        figures = (expected.prompt_units, expected.completion_units, expected.total_units, expected.eur_units)
        stored = (record.prompt_cost, record.completion_cost, record.cost, record.cost_eur)
        if stored != figures and frozen.rates.account != frozen.rates.eur:
            former_eur = former_eur_units(frozen.price, usage, frozen.rates)
            figures = (*figures[:3], former_eur) if record.cost_eur == former_eur else figures
        if stored != figures:
            yield from _unlike(record, COSTS, stored, figures, "prices")
    yield from _footprint(record, frozen.factors, usage)
    # Why a usage was implausible cannot be found again: what was asked for and delivered is not kept.
    is_implausible = record.cost is None and IMPLAUSIBLE_USAGE in (record.flags or "").split()
    if record.upstream_usage is not None and not is_implausible:
        odd = _reread(record, usage, frozen, read_usage)
        if odd is not None:
            yield f"{name}: {odd}"


def _footprint(record: Record, factors: EnergyFactors, usage: Usage) -> Iterator[str]:
    """Yields a line for each wrong figure of energy and carbon. Energy that a provider measured is its own factor."""
    stored = Footprint(
        record.energy_wh,
        record.carbon_gco2e,
        record.energy_wh_low,
        record.energy_wh_high,
        record.embodied_gco2e,
        record.energy_source,
    )
    measured = stored.energy_units if stored.source == MEASURED else None
    expected = footprint_of(usage, factors, measured)
    if stored.source is None and factors.figures is None:  # from before sources were kept, and figures by kind
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


def _reread(record: Record, stored: Usage, frozen: Frozen, read_usage: ReadUsage) -> str | None:
    """What is odd about the upstream's usage, read again. An estimate keeps the counts that it ended with."""
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
    is_counted = record.cost is not None or record.ending in PROVIDER_FAILURES
    if record.usage_estimated and is_counted:
        usage = replace(usage, completion=record.completion_tokens)
        if usage.prompt == 0 and ZERO_USAGE in flags.split():  # a prompt that was not counted is estimated
            usage = replace(usage, uncached_prompt=record.prompt_tokens)
    if is_counted and _buckets(usage) == _buckets(stored):
        return None
    return (
        f"its upstream's usage is read as {_described(usage)}, which costs "
        f"{plain(cost_of(frozen.price, usage, frozen.rates).total)}; "
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
def _frozen(terms_id: UUID | None, stored: tuple[Any, ...]) -> Frozen | None:
    """The frozen columns, as they are stored, thawed; None where the terms are missing."""
    columns = dict(zip(FROZEN, stored, strict=True))
    columns |= {name: orjson.loads(columns[name] or "null") for name in ("price_tiers", "energy_figures", "grid_basis")}
    if columns["price_currency"] is None:
        return None
    fault = None
    if terms_id is not None and content_id(columns) != terms_id:
        fault = f"its terms {terms_id} are not what they were when they were frozen"
    exact = (field for field in FrozenColumns._meta.fields if isinstance(field, ExactDecimalField))
    columns |= {field.attname: field.from_units(columns[field.attname]) for field in exact}
    terms = FrozenTerms(**columns)
    return Frozen(terms.price, Rates(columns["account_rate"], columns["eur_rate"]), terms.energy_factors, fault)


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
    return "unknown" if figure is None else plain(from_units(figure))
