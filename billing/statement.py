"""An account's statement: a line for each record of a period, oldest first, and a last line that sums them up.

docs/statements.md says what the fields mean. Safe beside live traffic and for readers who take hours: rows are read in
blocks by an index and the connection goes back between them, so that memory is constant and no transaction stays open.
What is booked after the first block is left to the next statement, in the lines as in the totals.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from uuid import UUID

from accounts.models import Account
from gateway.db import release
from gateway.rfc3339 import to_text

from .keyset import newer_than
from .models import Generation, LedgerEntry, Wallet
from .periods import Period

BLOCK_ROWS = 1000
Value = str | int | bool | Decimal | None
Line = dict[str, Value]

COLUMNS = (
    *("line", "generation_id", "created_at", "key", "endpoint", "model", "provider", "region"),
    *("requested_alias", "requested_auto", "alias_id", "prompt_tokens", "completion_tokens", "total_tokens"),
    *("usage_estimated", "interrupted", "ledger_seq", "currency", "cost", "balance_after", "cost_eur"),
    "price_above_prompt_tokens",
    *("energy_wh", "carbon_gco2e"),
    # the last line's own
    *("since", "until", "requests", "requests_unpriced", "requests_without_energy", "requests_without_carbon"),
    *("opening_balance", "credits", "closing_balance", "reconciled"),
)


@dataclass(slots=True)
class Sum:
    """A sum over the requests that know the figure, beside the number of those that do not."""

    total: Decimal = Decimal(0)
    known: int = 0
    unknown: int = 0

    def add(self, figure: Decimal | None) -> None:
        if figure is None:
            self.unknown += 1
        else:
            self.total += figure
            self.known += 1

    @property
    def shown(self) -> Decimal | None:
        """None where every request is silent on it: unknown is not zero."""
        return None if self.unknown and not self.known else self.total


@dataclass(slots=True)
class Booked:
    """The ledger's side of the period: what it begins and ends with, from its entries' running balance."""

    first: LedgerEntry | None = None
    last: LedgerEntry | None = None
    credits: Decimal = Decimal(0)

    def add(self, entry: LedgerEntry) -> None:
        if self.first is None or entry.seq < self.first.seq:
            self.first = entry
        if self.last is None or entry.seq > self.last.seq:
            self.last = entry
        if entry.kind != LedgerEntry.Kind.USAGE:
            self.credits += entry.amount


@dataclass(slots=True)
class Totals:
    """What `lines` has summed up; complete, `reconciled` included, once its last line was taken."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: Sum = field(default_factory=Sum)
    cost_eur: Sum = field(default_factory=Sum)
    energy_wh: Sum = field(default_factory=Sum)
    carbon_gco2e: Sum = field(default_factory=Sum)
    opening_balance: Decimal = Decimal(0)
    credits: Decimal = Decimal(0)
    closing_balance: Decimal = Decimal(0)

    def add(self, record: Generation) -> None:
        self.requests += 1
        self.prompt_tokens += record.prompt_tokens
        self.completion_tokens += record.completion_tokens
        self.cost.add(record.cost)
        self.cost_eur.add(record.cost_eur)
        self.energy_wh.add(record.energy_wh)
        self.carbon_gco2e.add(record.carbon_gco2e)

    @property
    def reconciled(self) -> bool:
        """Whether the records' costs are, to the last digit, what the ledger's balance moved by beside its credits."""
        return self.opening_balance + self.credits - self.cost.total == self.closing_balance


def lines(account: Account, period: Period, totals: Totals) -> Iterator[Line]:
    """Every record of the period, then the line of `totals`, which is filled on the way."""
    # Entries up to this one are committed, and their records with them: the statement is of this moment.
    newest_seq = Wallet.objects.get(pk=account.pk).seq
    booked = Booked()
    for record in _records(account.pk, period):
        entry: LedgerEntry | None = getattr(record, "ledger_entry", None)
        if entry is not None and entry.seq > newest_seq:
            continue
        if entry is not None:
            booked.add(entry)
        totals.add(record)
        yield _record_line(record, entry)
    before = _add_credits(booked, account.pk, period, newest_seq)
    if booked.first is None or booked.last is None:
        totals.opening_balance = totals.closing_balance = _balance_before(account.pk, period, before)
    else:
        totals.opening_balance = booked.first.balance_after - booked.first.amount
        totals.closing_balance = booked.last.balance_after
    totals.credits = booked.credits
    release("default")
    yield _total_line(account, period, totals)


def _records(account_id: UUID, period: Period) -> Iterator[Generation]:
    """In the order of the index `generation_by_account`, each with its key and its ledger entry."""
    records = Generation.objects.filter(account_id=account_id, created_at__lte=period.until)
    records = records.order_by("created_at", "id").select_related("key", "ledger_entry")
    rest = records.filter(created_at__gte=period.since)
    while block := list(rest[:BLOCK_ROWS]):
        release("default")
        yield from block
        rest = newer_than(records, (block[-1].created_at, block[-1].pk))


def _add_credits(booked: Booked, account_id: UUID, period: Period, newest_seq: int) -> LedgerEntry | None:
    """Adds the period's grants and corrections; returns the last one before it."""
    before = None
    # `> ''` rather than `IS NOT NULL`: both databases then read the few entries with a reference by their own index.
    credits_ = LedgerEntry.objects.filter(account_id=account_id, reference__gt="", created_at__lte=period.until)
    for entry in credits_.order_by("reference").iterator(BLOCK_ROWS):
        if entry.seq > newest_seq:
            continue
        if entry.created_at >= period.since:
            booked.add(entry)
        elif before is None or entry.seq > before.seq:
            before = entry
    return before


def _balance_before(account_id: UUID, period: Period, credit: LedgerEntry | None) -> Decimal:
    """The balance that a period without entries begins and ends with; `credit` is the last one before it."""
    billed = Generation.objects.filter(account_id=account_id, created_at__lt=period.since, cost__isnull=False)
    last = billed.order_by("-created_at", "-id").select_related("ledger_entry").first()
    usage: LedgerEntry | None = getattr(last, "ledger_entry", None)
    entries = [entry for entry in (credit, usage) if entry is not None]
    return max(entries, key=lambda entry: entry.seq).balance_after if entries else Decimal(0)


def _record_line(record: Generation, entry: LedgerEntry | None) -> Line:
    return {
        "line": "generation",
        "generation_id": record.public_id,
        "created_at": to_text(record.created_at),
        "key": record.key.name,
        "endpoint": record.endpoint,
        "model": record.route_id,
        "provider": record.provider,
        "region": record.region,
        "requested_alias": record.requested_alias,
        "requested_auto": record.requested_auto,
        "alias_id": None if record.alias_id is None else str(record.alias_id),
        "prompt_tokens": record.prompt_tokens,
        "completion_tokens": record.completion_tokens,
        "total_tokens": record.total_tokens,
        "usage_estimated": record.usage_estimated,
        "interrupted": record.interrupted,
        "ledger_seq": None if entry is None else entry.seq,
        "currency": record.currency,
        "cost": record.cost,
        "balance_after": None if entry is None else entry.balance_after,
        "cost_eur": record.cost_eur,
        "price_above_prompt_tokens": None if record.cost is None else record.billed_price.above_prompt_tokens or None,
        "energy_wh": record.energy_wh,
        "carbon_gco2e": record.carbon_gco2e,
    }


def _total_line(account: Account, period: Period, totals: Totals) -> Line:
    return {
        "line": "total",
        "prompt_tokens": totals.prompt_tokens,
        "completion_tokens": totals.completion_tokens,
        "total_tokens": totals.prompt_tokens + totals.completion_tokens,
        "currency": account.currency,
        "cost": totals.cost.total,
        "cost_eur": totals.cost_eur.total,
        "energy_wh": totals.energy_wh.shown,
        "carbon_gco2e": totals.carbon_gco2e.shown,
        "since": to_text(period.since),
        "until": to_text(period.until),
        "requests": totals.requests,
        "requests_unpriced": totals.cost.unknown,
        "requests_without_energy": totals.energy_wh.unknown,
        "requests_without_carbon": totals.carbon_gco2e.unknown,
        "opening_balance": totals.opening_balance,
        "credits": totals.credits,
        "closing_balance": totals.closing_balance,
        "reconciled": totals.reconciled,
    }
