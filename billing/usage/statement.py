"""Writes an account's statement: a line for each record of a period, oldest first, and a last line that sums them up.

docs/statements.md explains the fields. Rows are read in blocks by an index, and the connection goes back to the pool
between blocks, because a client may take hours to read. Records booked after the first block are left to the next
statement.
"""

import csv
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple, Self
from uuid import UUID

import orjson
from django.db.models import QuerySet
from django.db.models.query import ModelIterable

from accounts.models import Account
from catalogue.pricing import MEASURED
from gateway.db.pool import release
from gateway.edge.rfc3339 import parse as parse_moment
from gateway.edge.rfc3339 import to_text
from gateway.money import plain
from gateway.server.turns import take_turns

from ..ledger.record_columns import Export, exported
from ..models import Generation, LedgerEntry, Wallet
from .keyset import newer_than

BLOCK_ROWS = 200  # read at once, which takes a worker some milliseconds in which no other greenlet runs
BLOCK_CHARACTERS = 64 * 1024
# The characters that make a spreadsheet read a text as a formula, with the full-width forms of East Asian input: at the
# beginning, and after the characters that separate cells in some locales. The spreadsheet drops quotes around the text.
FORMULA_STARTS = r"=+\-@\t\r\n\N{FULLWIDTH EQUALS SIGN}\N{FULLWIDTH PLUS SIGN}\N{FULLWIDTH HYPHEN-MINUS}"
FORMULA_STARTS += r"\N{FULLWIDTH COMMERCIAL AT}"
BEFORE_FORMULA = re.compile(rf'(?:^|(?<=[;|\t\r\n]))(?=[" ]*[{FORMULA_STARTS}])')
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
Value = str | int | bool | Decimal | None
Line = dict[str, Value]

_OF_A_RECORD = exported(Export.STATEMENT)
SIGNED_NOTE = "log_checkpoint"
# Some programs read columns by their number, so this order stays, and new columns go to the end.
_FIRST_COLUMNS = (
    "line",
    "generation_id",
    "created_at",
    "key",
    "endpoint",
    "model",
    "provider",
    "region",
    "requested_alias",
    "requested_auto",
    "alias_id",
    "prompt_tokens",
    "completion_tokens",
    "total_tokens",
    "usage_estimated",
    "interrupted",
    "ledger_seq",
    "currency",
    "cost",
    "balance_after",
    "cost_eur",
    "price_above_prompt_tokens",
    "energy_wh",
    "carbon_gco2e",
    "energy_wh_low",
    "energy_wh_high",
    "energy_source",
    "energy_method",
    "embodied_gco2e",
    "cached_tokens",
    "wh_per_output_token",
    "wh_per_prompt_token",
    "wh_per_cached_token",
    "grid_gco2_per_kwh",
    "grid_kind",
    "grid_source",
    "grid_as_of",
    # of the last line only
    "since",
    "until",
    "requests",
    "requests_unpriced",
    "requests_without_energy",
    "requests_without_carbon",
    "opening_balance",
    "credits",
    "closing_balance",
    "reconciled",
    # columns of a record again
    "key_id",
    "tags",
    "log_index",
    # of the last line
    SIGNED_NOTE,
)
STATEMENT_COLUMNS = (*_FIRST_COLUMNS, *(name for name in _OF_A_RECORD if name not in _FIRST_COLUMNS))


def _without_log() -> str | None:
    return None


# Returns the published checkpoint of the transparency log as a signed note, or None (`proof.apps` sets it). The index
# of an entry's leaf comes with the entry.
log_checkpoint: Callable[[], str | None] = _without_log


class InvalidPeriod(ValueError):
    """A bound is neither a day nor an RFC 3339 date-time, or the period ends before it begins."""


@dataclass(frozen=True, slots=True)
class Period:
    """Holds the first and the last moment of a period, both included, in UTC."""

    since: datetime
    until: datetime

    @classmethod
    def between(cls, since: str, until: str) -> Self:
        """Reads two bounds, UTC days or RFC 3339 date-times; a last day counts to its end. Raises InvalidPeriod."""
        period = cls(_bound("since", since, time.min), _bound("until", until, time.max))
        if period.until < period.since:
            raise InvalidPeriod(f"The period ends ({until}) before it begins ({since}).")
        return period


@dataclass(slots=True)
class Sum:
    """Sums up a figure over the requests that have it, and counts those that have it and those that lack it."""

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
        """Returns the sum, or None if there are requests but none has the figure: unknown is not zero."""
        return None if self.unknown and not self.known else self.total


@dataclass(slots=True)
class PeriodEntries:
    """Holds the period's first and last ledger entry, which give its opening and closing balance, and its credits."""

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
class StatementTotals:
    """Holds what `lines` sums up on the way. It is complete once the last line has been read."""

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
    def charged(self) -> Decimal:
        """Returns the costs as a change of the balance, which is negative."""
        return -self.cost.total

    @property
    def reconciled(self) -> bool:
        """Tells whether opening balance plus credits less the records' costs is exactly the closing balance."""
        return self.opening_balance + self.credits - self.cost.total == self.closing_balance


def lines(
    account: Account, period: Period, totals: StatementTotals, *, newest_seq: int | None = None
) -> Iterator[Line]:
    """Yields a line for each record of the period, and last a line with `totals`, which it fills on the way.

    Entries after the number `newest_seq`, which is the present one by default, are left to the next statement.
    """
    for record, entry in booked(account, period, totals, newest_seq=newest_seq):
        if record is not None:
            yield _record_line(record, entry)
    yield _total_line(account, period, totals)


def booked(
    account: Account, period: Period, totals: StatementTotals, *, newest_seq: int | None = None
) -> Iterator[tuple[Generation | None, LedgerEntry | None]]:
    """Yields the period's records, oldest first, each with its ledger entry, and then its grants and corrections.

    Fills `totals` on the way, and leaves out later entries as `lines` does.
    """
    if newest_seq is None:  # entries up to this one are committed, with their records
        newest_seq = Wallet.objects.get(pk=account.pk).seq
    entries = PeriodEntries()
    for record in _records(account.pk, period):
        entry: LedgerEntry | None = getattr(record, "ledger_entry", None)
        if entry is not None and entry.seq > newest_seq:
            continue
        if entry is not None:
            entries.add(entry)
        totals.add(record)
        yield record, entry
    before = None
    for credit in _credits(account.pk, period):
        if credit.seq > newest_seq:
            continue
        if credit.created_at >= period.since:
            entries.add(credit)
            yield None, credit
        elif before is None or credit.seq > before.seq:
            before = credit
    if entries.first is None or entries.last is None:
        totals.opening_balance = totals.closing_balance = _balance_before(account.pk, period, before)
    else:
        totals.opening_balance = entries.first.balance_after - entries.first.amount
        totals.closing_balance = entries.last.balance_after
    totals.credits = entries.credits
    release("default")


def _records(account_id: UUID, period: Period) -> Iterator[Generation]:
    """Yields records in the order of the index `generation_by_account`, each with its key and its ledger entry."""
    records = Generation.objects.filter(account_id=account_id, created_at__lte=period.until)
    records = records.order_by("created_at", "id").select_related("key", "ledger_entry__leaf", "terms")
    records = records.defer("ledger_entry__leaf__content")
    rest = records.filter(created_at__gte=period.since)
    while True:
        last = None
        for last in _read(rest[:BLOCK_ROWS]):
            yield last
        if last is None:
            return
        rest = newer_than(records, (last.created_at, last.pk))


def _read(block: QuerySet[Generation]) -> Iterator[Generation]:
    """Reads the rows of a block at once, but makes records of them one by one, so that others may run in between."""
    made: Iterator[Generation] = iter(ModelIterable(block))
    first = next(made, None)
    release("default")
    if first is not None:
        yield first
        yield from made


def _credits(account_id: UUID, period: Period) -> Iterator[LedgerEntry]:
    """Yields the grants and corrections up to the end of the period, in no particular order."""
    # `> ''` rather than `IS NOT NULL`: both databases then use the index of the few entries with a reference.
    credits_ = LedgerEntry.objects.filter(account_id=account_id, created_at__lte=period.until).order_by("reference")
    last: str | None = ""
    while True:
        block = list(credits_.filter(reference__gt=last)[:BLOCK_ROWS])
        release("default")
        yield from block
        if len(block) < BLOCK_ROWS:
            return
        last = block[-1].reference


def _balance_before(account_id: UUID, period: Period, credit: LedgerEntry | None) -> Decimal:
    """Returns the balance at which a period without entries begins and ends; `credit` is the last credit before it."""
    billed = Generation.objects.filter(account_id=account_id, created_at__lt=period.since, cost__isnull=False)
    last = billed.order_by("-created_at", "-id").select_related("ledger_entry").first()
    usage: LedgerEntry | None = getattr(last, "ledger_entry", None)
    entries = [entry for entry in (credit, usage) if entry is not None]
    return max(entries, key=lambda entry: entry.seq).balance_after if entries else Decimal(0)


def _record_line(record: Generation, entry: LedgerEntry | None) -> Line:
    factors, price = record.energy_factors, record.billed_price
    of_output, of_prompt, of_cached = factors.wh_per_token or (None, None, None)
    shown = {name: column.read(record) for name, column in _OF_A_RECORD.items()}
    shown |= {
        "line": "generation",
        "created_at": to_text(record.created_at),
        "key": record.key.name,
        "key_id": str(record.key_id),
        "alias_id": None if record.alias_id is None else str(record.alias_id),
        "ledger_seq": None if entry is None else entry.seq,
        "balance_after": None if entry is None else entry.balance_after,
        "log_index": leaf.index if (leaf := getattr(entry, "leaf", None)) else None,
        "price_above_prompt_tokens": price.above_prompt_tokens or None if price and record.cost is not None else None,
        "energy_method": None
        if factors.figures is None or record.energy_source == MEASURED
        else factors.figures.method or None,
        "wh_per_output_token": of_output,
        "wh_per_prompt_token": of_prompt,
        "wh_per_cached_token": of_cached,
        **factors.grid_details,
    }
    return {name: shown[name] for name in STATEMENT_COLUMNS if name in shown}


def _total_line(account: Account, period: Period, totals: StatementTotals) -> Line:
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
        SIGNED_NOTE: log_checkpoint(),
    }


def csv_blocks(lines: Iterable[Line], columns: Sequence[str] = STATEMENT_COLUMNS) -> Iterator[str]:
    """Writes a CSV header and a row for each line (RFC 4180); what is unknown is an empty cell."""
    block = io.StringIO()
    writer = csv.writer(block)
    writer.writerow(columns)
    for line in lines:
        take_turns()
        writer.writerow([_cell(column, line.get(column)) for column in columns])
        if block.tell() >= BLOCK_CHARACTERS:
            yield block.getvalue()
            block.seek(0)
            block.truncate()
    yield block.getvalue()


def jsonl_blocks(lines: Iterable[Line]) -> Iterator[str]:
    """Writes a JSON object for each line; what is unknown or does not apply is absent."""
    block, size = [], 0
    for line in lines:
        take_turns()
        known = {
            name: plain(value) if isinstance(value, Decimal) else value
            for name, value in line.items()
            if value is not None
        }
        text = orjson.dumps(known).decode() + "\n"
        block.append(text)
        size += len(text)
        if size >= BLOCK_CHARACTERS:
            yield "".join(block)
            block, size = [], 0
    yield "".join(block)


def _cell(column: str, value: Value) -> str:
    """Writes a CSV cell. Text that a spreadsheet would run gets an apostrophe in front; numbers such as -1 do not.

    A signed note stays as it is, because its signatures would not verify otherwise. No customer can change it.
    """
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case Decimal():
            return plain(value)
        case int():
            return str(value)
        case str():
            return value if column == SIGNED_NOTE else BEFORE_FORMULA.sub("'", value)


class Format(NamedTuple):
    """Describes a format of statements: the function that writes it, and its HTTP content type."""

    blocks: Callable[[Iterable[Line]], Iterator[str]]
    content_type: str


FORMATS = {
    "csv": Format(csv_blocks, "text/csv; charset=utf-8"),
    "jsonl": Format(jsonl_blocks, "application/jsonl; charset=utf-8"),
}


def _bound(name: str, text: str, at: time) -> datetime:
    try:
        if _DAY.fullmatch(text):
            return datetime.combine(date.fromisoformat(text), at, UTC)
        return parse_moment(text, round_up=at == time.min)
    except ValueError:
        raise InvalidPeriod(
            f"{name}: {text!r} is neither a day (2026-10-30, in UTC) nor a date-time with an offset "
            "(2026-10-30T12:00:00Z; in an address, + is %2B)."
        ) from None


def write(path: Path, account: Account, period: Period, format_: str) -> StatementTotals:
    """Writes an account's statement to a file, which gets its name only once it is complete. Raises OSError."""
    totals = StatementTotals()
    write_blocks(path, FORMATS[format_].blocks(lines(account, period, totals)))
    return totals


def write_blocks(path: Path, blocks: Iterable[str]) -> None:
    """Writes blocks of text to a file, which gets its name only once it is complete. Raises OSError."""
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("w", encoding="utf-8", newline="") as file:
            file.writelines(blocks)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
