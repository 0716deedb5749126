"""What the credit page reads: an account's ledger, newest first, a page at a time from a position."""

from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from django.db.models import QuerySet

from gateway.ids import generation_id

from .models import LedgerEntry

PAGE_ENTRIES = 50
COLUMNS = (
    "seq",
    "kind",
    "amount",
    "balance_after",
    "reference",
    "created_at",
    "generation__provider",
    "generation__model",
    "generation__region",
)


class Shown(StrEnum):
    """Which entries are listed: credit is grants and corrections."""

    ALL = "all"
    CREDIT = "credit"
    USAGE = "usage"


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """An entry, and the public id of the record that it debits."""

    entry: LedgerEntry
    generation_id: str | None


@dataclass(frozen=True, slots=True)
class LedgerPage:
    """Some entries, and the `seq` to go on from in either direction; None is the end."""

    lines: list[LedgerLine]
    before: int | None = None
    after: int | None = None


def ledger_page(
    account_id: UUID, shown: Shown = Shown.ALL, *, before: int | None = None, after: int | None = None
) -> LedgerPage:
    """The newest entries, those before a `seq`, or those after one. One SELECT by an index from the position on."""
    entries = _entries(account_id, shown)
    if after is not None:
        later = list(entries.filter(seq__gt=after).order_by("seq")[: PAGE_ENTRIES + 1])
        if len(later) > PAGE_ENTRIES:
            chosen = later[PAGE_ENTRIES - 1 :: -1]
            return LedgerPage(_lines(chosen), before=chosen[-1].seq, after=chosen[0].seq)
    if before is not None:
        entries = entries.filter(seq__lt=before)
    found = list(entries.order_by("-seq")[: PAGE_ENTRIES + 1])
    chosen = found[:PAGE_ENTRIES]
    newest = chosen[0].seq if chosen else 0
    return LedgerPage(
        _lines(chosen),
        before=chosen[-1].seq if len(found) > PAGE_ENTRIES else None,
        after=newest if before is not None else None,
    )


def _entries(account_id: UUID, shown: Shown) -> QuerySet[LedgerEntry]:
    entries = LedgerEntry.objects.filter(account_id=account_id)
    if shown == Shown.CREDIT:
        return entries.exclude(reference=None)  # in the words of the index's condition
    with_routes = entries.select_related("generation").only(*COLUMNS)
    return with_routes.exclude(generation=None) if shown == Shown.USAGE else with_routes


def _lines(entries: list[LedgerEntry]) -> list[LedgerLine]:
    return [
        LedgerLine(entry, None if entry.generation_id is None else generation_id(entry.generation_id))
        for entry in entries
    ]
