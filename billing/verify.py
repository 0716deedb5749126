"""Proving the ledger: every balance from its entries, every usage entry from its generation record.

Each record's tokens are read again from the usage that the upstream reported, with today's reader: where that would
bill the request otherwise, the record is listed as well.

Safe beside live traffic without a lock: a wallet is read before its entries, and entries beyond its seq are left to the
next run. Constant memory: rows are streamed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import chain
from typing import Any, Protocol
from uuid import UUID

import orjson
from django.db.models import Max, Q

from accounts.models import Account
from catalogue.pricing import ContradictoryUsage, Rates, Usage, cost_of
from gateway.money import plain

from .models import Generation, LedgerEntry, Wallet

CHUNK_ROWS = 1000


class ReadUsage(Protocol):
    """Reads an upstream's usage in a dialect's words (`inference.dialects.read_usage`)."""

    def __call__(self, dialect: str, reported: Any, *, is_embedding: bool) -> Usage | None: ...


@dataclass(slots=True)
class Verification:
    """What was checked, and how much of it; `mismatches` come from the generator that fills it."""

    accounts: int = 0
    entries: int = 0
    generations: int = 0
    mismatches: int = 0
    total: Decimal = field(default_factory=Decimal)


def verify(account_id: UUID | None, read_usage: ReadUsage) -> Iterator[str | Verification]:
    """Yields a line for each mismatch, and last the Verification. None stands for all accounts."""
    result = Verification()
    wallets = Wallet.objects.order_by("pk") if account_id is None else Wallet.objects.filter(pk=account_id)
    for wallet in wallets.select_related("account").iterator(CHUNK_ROWS):
        result.accounts += 1
        for mismatch in chain(_entries(wallet, result), _beyond(wallet), _records(wallet, result, read_usage)):
            result.mismatches += 1
            yield f"account {wallet.account.name}: {mismatch}"
    bare = Account.objects.filter(wallet=None)
    for account in bare.iterator(CHUNK_ROWS) if account_id is None else bare.filter(pk=account_id):
        result.accounts += 1
        result.mismatches += 1
        yield f"account {account.name}: it has no wallet"
    yield result


def _entries(wallet: Wallet, result: Verification) -> Iterator[str]:
    balance, seq = Decimal(0), 0
    entries = LedgerEntry.objects.filter(account_id=wallet.pk, seq__lte=wallet.seq).order_by("seq")
    for entry in entries.select_related("generation").iterator(CHUNK_ROWS):
        result.entries += 1
        if entry.seq != seq + 1:
            yield f"entries {seq + 1} to {entry.seq - 1} are missing"
        seq = entry.seq
        balance += entry.amount
        if entry.balance_after != balance:
            stored = plain(entry.balance_after)
            yield f"entry {seq}: balance after it is {stored}, its entries add up to {plain(balance)}"
        if entry.generation is not None:
            yield from _usage(entry, entry.generation)
    result.total += balance
    if seq < wallet.seq:
        yield f"the wallet counts {wallet.seq} entries, the ledger ends at {seq}"
    if balance != wallet.balance:
        yield f"the wallet holds {plain(wallet.balance)}, its entries add up to {plain(balance)}"


def _beyond(wallet: Wallet) -> Iterator[str]:
    """An entry and its wallet move together, so that no entry can be ahead of a wallet that is read after it."""
    last = LedgerEntry.objects.filter(account_id=wallet.pk).aggregate(last=Max("seq"))["last"] or 0
    wallet.refresh_from_db(fields=["seq"])
    if last > wallet.seq:
        yield f"the wallet counts {wallet.seq} entries, the ledger ends at {last}"


def _usage(entry: LedgerEntry, generation: Generation) -> Iterator[str]:
    name = f"entry {entry.seq} for {generation.public_id}"
    if generation.account_id != entry.account_id:
        yield f"{name}: the record belongs to another account"
    if generation.cost is None or entry.amount != -generation.cost:
        yield f"{name}: debits {plain(-entry.amount)}, the record's cost is {_shown(generation.cost)}"
    if generation.balance_after != entry.balance_after:
        stored = _shown(generation.balance_after)
        yield f"{name}: the record's balance after it is {stored}, not {plain(entry.balance_after)}"


def _records(wallet: Wallet, result: Verification, read_usage: ReadUsage) -> Iterator[str]:
    """Every record recomputes to its cost, and every billed one has its entry."""
    records = Generation.objects.filter(account_id=wallet.pk).order_by("created_at", "id")
    for generation in records.iterator(CHUNK_ROWS):
        result.generations += 1
        yield from _tokens(generation)
        if generation.cost is not None:
            yield from _cost(generation)
        if generation.upstream_usage is not None:
            yield from _reread(generation, generation.upstream_usage, read_usage)
    orphans = records.filter(~Q(cost=None), ledger_entry=None)
    for generation in orphans.iterator(CHUNK_ROWS):
        yield f"{generation.public_id}: billed {_shown(generation.cost)}, but has no ledger entry"


def _tokens(generation: Generation) -> Iterator[str]:
    total = _usage_of(generation).prompt
    if generation.prompt_tokens != total:
        yield f"{generation.public_id}: {generation.prompt_tokens} prompt tokens, its parts add up to {total}"


def _cost(generation: Generation) -> Iterator[str]:
    expected = cost_of(generation.price, _usage_of(generation), Rates(generation.account_rate, generation.eur_rate))
    for name, stored, figure in (
        ("prompt cost", generation.prompt_cost, expected.prompt),
        ("completion cost", generation.completion_cost, expected.completion),
        ("cost", generation.cost, expected.total),
        ("cost in EUR", generation.cost_eur, expected.eur),
    ):
        if stored != figure:
            yield f"{generation.public_id}: {name} {_shown(stored)}, its tokens and frozen prices give {plain(figure)}"


def _reread(generation: Generation, upstream_usage: str, read_usage: ReadUsage) -> Iterator[str]:
    """What the upstream reported, read again. An estimate keeps the completion that it was completed with."""
    is_embedding = generation.endpoint == Generation.Endpoint.EMBEDDING
    try:
        usage = read_usage(generation.dialect or "", orjson.loads(upstream_usage), is_embedding=is_embedding)
    except ContradictoryUsage as contradiction:
        if generation.cost is not None:
            yield f"{generation.public_id}: billed, but its upstream's usage is read as contradictory: {contradiction}"
        return
    except KeyError:
        yield f"{generation.public_id}: its upstream's usage is in the dialect {generation.dialect!r}, which is unknown"
        return
    if usage is None:
        if not generation.usage_estimated:
            yield f"{generation.public_id}: its upstream's usage is read as no count of the request"
        return
    if generation.usage_estimated and generation.cost is not None:
        usage = replace(usage, completion=generation.completion_tokens)
    cost = cost_of(generation.price, usage, Rates(generation.account_rate, generation.eur_rate)).total
    stored = _usage_of(generation)
    if generation.cost is None or _buckets(usage) != _buckets(stored):
        yield (
            f"{generation.public_id}: its upstream's usage is read as {_told(usage)}, which costs {plain(cost)}; "
            f"the record has {_told(stored)} and costs {_shown(generation.cost)}"
        )


def _buckets(usage: Usage) -> tuple[int, int, int, int, int]:
    return (
        usage.uncached_prompt,
        usage.cache_read or 0,
        usage.cache_write_5m or 0,
        usage.cache_write_1h or 0,
        usage.completion,
    )


def _told(usage: Usage) -> str:
    prompt, read, written_5m, written_1h, completion = _buckets(usage)
    return f"{prompt} prompt + {read} cached + {written_5m + written_1h} written + {completion} completion tokens"


def _shown(amount: Decimal | None) -> str:
    return "unknown" if amount is None else plain(amount)


def _usage_of(generation: Generation) -> Usage:
    return Usage(
        uncached_prompt=generation.uncached_prompt_tokens,
        cache_read=generation.cache_read_tokens,
        cache_write_5m=generation.cache_write_5m_tokens,
        cache_write_1h=generation.cache_write_1h_tokens,
        completion=generation.completion_tokens,
    )
