"""What the credit page reads: an account's ledger, newest first, a page at a time from a position."""

from dataclasses import dataclass, replace
from enum import StrEnum
from uuid import UUID

from django.db.models import QuerySet

from gateway.ids import generation_id

from . import keyset
from .keyset import Page
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


def ledger_page(
    account_id: UUID, shown: Shown = Shown.ALL, *, before: int | None = None, after: int | None = None
) -> Page[LedgerLine, int]:
    """A page of entries, by their `seq`. One SELECT by an index from the position on."""

    def read(seq: int | None, wanted: int, is_upwards: bool) -> list[LedgerLine]:
        entries = _entries(account_id, shown)
        if seq is not None:
            entries = entries.filter(seq__gt=seq) if is_upwards else entries.filter(seq__lt=seq)
        return [
            LedgerLine(entry, None if entry.generation_id is None else generation_id(entry.generation_id))
            for entry in entries.order_by("seq" if is_upwards else "-seq")[:wanted]
        ]

    page = keyset.page(read, lambda line: line.entry.seq, PAGE_ENTRIES, before=before, after=after)
    return page if page.rows or before is None else replace(page, newer=0)


def _entries(account_id: UUID, shown: Shown) -> QuerySet[LedgerEntry]:
    entries = LedgerEntry.objects.filter(account_id=account_id)
    if shown == Shown.CREDIT:
        return entries.exclude(reference=None)  # in the words of the index's condition
    with_routes = entries.select_related("generation").only(*COLUMNS)
    return with_routes.exclude(generation=None) if shown == Shown.USAGE else with_routes
