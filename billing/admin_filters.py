"""Filters the ledger, records, failures and accounts in the admin. A filter uses an index, unless it says otherwise."""

from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils import timezone

from catalogue.models import Provider
from gateway.ids import first_uuid7
from gateway.observing.request_events import Outcome
from gateway.pages.admin import NamedChoices

from .models import FLAGS, Generation, LedgerEntry

ONE_DAY = timedelta(days=1)
OUTCOME_DAYS = 7
# A record's id has the time of its admission by the worker's clock; `created_at` is the time of its settlement by the
# database's. While the database is away, requests wait in the spool: a record that waited longer than this is only
# found without the filter.
LONGEST_WAIT = ONE_DAY
CLOCKS_APART = timedelta(minutes=5)


class DayFilter(admin.SimpleListFilter):
    """Filters by one UTC day, chosen with a link or a calendar."""

    title = "day (UTC)"
    parameter_name = "day"
    template = "admin/day_filter.html"

    def __init__(self, request: HttpRequest, params: dict[str, list[str]], model: type[Model], site: Any) -> None:
        super().__init__(request, params, model, site)
        self.others = [(name, value) for name, value in request.GET.items() if name not in (self.parameter_name, "p")]

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        today = timezone.now().date()
        return [(f"{today}", "Today"), (f"{today - ONE_DAY}", "Yesterday")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Narrows to the chosen day. Raises IncorrectLookupParameters if it is not a day."""
        if not (chosen := self.value()):
            return queryset
        try:
            since = datetime.combine(date.fromisoformat(chosen), time.min, UTC)
            until = since + ONE_DAY
            return self.within(queryset.filter(created_at__gte=since, created_at__lt=until), since, until)
        except (ValueError, OverflowError) as error:
            raise IncorrectLookupParameters from error

    def within(self, rows: QuerySet[Any], since: datetime, until: datetime) -> QuerySet[Any]:
        """Narrows further by a column that rises with time, for tables whose time has no index."""
        return rows


class RecordDay(DayFilter):
    """Filters records by the day of their settlement, by their ids, which rise with the time of admission."""

    def within(self, rows: QuerySet[Generation], since: datetime, until: datetime) -> QuerySet[Generation]:
        return rows.filter(pk__gte=first_uuid7(since - LONGEST_WAIT), pk__lt=first_uuid7(until + CLOCKS_APART))


class EntryDay(DayFilter):
    """Filters ledger entries by day, by their ids, which nearly rise with time."""

    def within(self, rows: QuerySet[LedgerEntry], since: datetime, until: datetime) -> QuerySet[LedgerEntry]:
        return rows.filter(pk__gte=_first_entry(since - CLOCKS_APART), pk__lt=_first_entry(until + CLOCKS_APART))


def _first_entry(moment: datetime) -> int:
    """Returns the id of the first ledger entry that is not before a moment."""
    # A binary search of some thirty reads of one row: an index on the time would slow down every settlement.
    numbers = LedgerEntry.objects.order_by("pk").values_list("pk", "created_at")
    newest = numbers.last()
    low, high = 0, newest[0] + 1 if newest else 0
    while low < high:
        middle = (low + high) // 2
        number, created_at = numbers.filter(pk__gte=middle)[0]
        low, high = (low, middle) if created_at >= moment else (number + 1, high)
    return low


def _ended_so(outcome: Outcome, failures: QuerySet[Any]) -> QuerySet[Any]:
    return failures.filter(outcome=outcome.value, created_at__gte=timezone.now() - OUTCOME_DAYS * ONE_DAY)


class FailureOutcome(NamedChoices):
    """Filters failures of the last days by outcome. Older ones are left out, because outcomes have no index."""

    title = "outcome (last 7 days)"
    parameter_name = "outcome"
    choices_by_value: ClassVar = {
        outcome.value: (outcome.value.replace("_", " ").capitalize(), partial(_ended_so, outcome))
        for outcome in Outcome
        if outcome != Outcome.SERVED
    }


class FailureProvider(admin.SimpleListFilter):
    """Filters failures by provider."""

    title = "provider"
    parameter_name = "provider"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(slug, slug) for slug in Provider.objects.order_by("slug").values_list("slug", flat=True)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        chosen = self.value()
        return queryset.filter(provider=chosen) if chosen and chosen.isprintable() else queryset


class KindOfEntry(NamedChoices):
    """Filters ledger entries by kind; credit has an index of its own."""

    title = parameter_name = "kind"
    choices_by_value: ClassVar = {
        "credit": ("All credit", lambda rows: rows.exclude(reference=None)),
        "grant": ("Grants", lambda rows: rows.exclude(reference=None).filter(kind="grant")),
        "correction": ("Corrections", lambda rows: rows.exclude(reference=None).filter(kind="correction")),
        "usage": ("Usage", lambda rows: rows.exclude(generation=None)),
    }


class PriceFilter(NamedChoices):
    """Filters records without a cost, which have an index of their own."""

    title, parameter_name = "price", "priced"
    choices_by_value: ClassVar = {"no": ("Not priced", lambda rows: rows.filter(cost=None))}


def _flagged_with(code: str, records: QuerySet[Any]) -> QuerySet[Any]:
    return records.exclude(flags=None).filter(flags__contains=code)


class FlagFilter(NamedChoices):
    """Filters records with a flag, which have an index of their own."""

    title, parameter_name = "flags", "flagged"
    choices_by_value: ClassVar = {
        "any": ("Flagged", lambda rows: rows.exclude(flags=None)),
        **{code: (words.removesuffix("."), partial(_flagged_with, code)) for code, words in FLAGS.items()},
    }


class SuspensionFilter(NamedChoices):
    """Filters accounts by whether they are suspended, reading every account."""

    title = parameter_name = "suspended"
    choices_by_value: ClassVar = {
        "yes": ("Yes", lambda accounts: accounts.filter(suspended_at__isnull=False)),
        "no": ("No", lambda accounts: accounts.filter(suspended_at=None)),
    }


class BalanceFilter(NamedChoices):
    """Filters accounts by their balance, reading every wallet."""

    title = parameter_name = "balance"
    choices_by_value: ClassVar = {
        "alert": ("Overdrawn", lambda accounts: accounts.filter(overdraft_alert__isnull=False)),
        "below": ("Below zero", lambda accounts: accounts.filter(wallet__balance__lt=0)),
        "empty": ("Zero or below", lambda accounts: accounts.filter(wallet__balance__lte=0)),
    }
