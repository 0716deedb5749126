"""How staff narrow the ledger, the records and the accounts: each filter enters an index where its rows begin."""

from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils import timezone

from accounts.models import Account
from catalogue.models import Provider
from gateway.ids import first_uuid7
from gateway.observing.request_events import Outcome

from .models import FLAGS, Generation, LedgerEntry
from .usage.request_failures import RequestFailure

ONE_DAY = timedelta(days=1)
OUTCOME_DAYS = 7
# A record's id is of its admission by the worker's clock, its time of its settlement by the database's. A settlement
# waits in the spool while the database is away: a record that waited longer than this is found without the filter.
LONGEST_WAIT = ONE_DAY
CLOCKS_APART = timedelta(minutes=5)


class DayFilter(admin.SimpleListFilter):
    """One UTC day, chosen from a link or a calendar."""

    title = "day (UTC)"
    parameter_name = "day"
    template = "admin/day_filter.html"

    def __init__(self, request: HttpRequest, params: dict[str, list[str]], model: type[Model], site: Any) -> None:
        super().__init__(request, params, model, site)
        self.others = [(name, value) for name, value in request.GET.items() if name not in (self.parameter_name, "p")]

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Today and yesterday; the calendar has the others."""
        today = timezone.now().date()
        return [(f"{today}", "Today"), (f"{today - ONE_DAY}", "Yesterday")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The rows of the chosen day. Raises IncorrectLookupParameters for what is no day."""
        if not (chosen := self.value()):
            return queryset
        try:
            since = datetime.combine(date.fromisoformat(chosen), time.min, UTC)
            until = since + ONE_DAY
            return self.within(queryset.filter(created_at__gte=since, created_at__lt=until), since, until)
        except (ValueError, OverflowError) as error:
            raise IncorrectLookupParameters from error

    def within(self, rows: QuerySet[Any], since: datetime, until: datetime) -> QuerySet[Any]:
        """Narrows rows of these moments, whose time has no index of its own, by one that is ordered in time."""
        raise NotImplementedError


class RecordDay(DayFilter):
    """Records by the day of their settlement."""

    def within(self, rows: QuerySet[Generation], since: datetime, until: datetime) -> QuerySet[Generation]:
        """Their ids are ordered by the time of admission."""
        return rows.filter(pk__gte=first_uuid7(since - LONGEST_WAIT), pk__lt=first_uuid7(until + CLOCKS_APART))


class EntryDay(DayFilter):
    """Ledger entries by their day."""

    def within(self, rows: QuerySet[LedgerEntry], since: datetime, until: datetime) -> QuerySet[LedgerEntry]:
        """They are numbered nearly in the order of time: where a moment lies is found by halving."""
        return rows.filter(pk__gte=_first_entry(since - CLOCKS_APART), pk__lt=_first_entry(until + CLOCKS_APART))


def _first_entry(moment: datetime) -> int:
    """The number of the first ledger entry that is not before a moment, by some thirty reads of one row each."""
    numbers = LedgerEntry.objects.order_by("pk").values_list("pk", "created_at")
    newest = numbers.last()
    low, high = 0, newest[0] + 1 if newest else 0
    while low < high:
        middle = (low + high) // 2
        number, created_at = numbers.filter(pk__gte=middle)[0]
        low, high = (low, middle) if created_at >= moment else (number + 1, high)
    return low


class FailureDayFilter(DayFilter):
    """Failures by their day, which has an index."""

    def within(self, rows: QuerySet[RequestFailure], since: datetime, until: datetime) -> QuerySet[RequestFailure]:
        """As they are."""
        return rows


class FailureOutcome(admin.SimpleListFilter):
    """Failures of one outcome, of so many days: it has no index."""

    title = "outcome (last 7 days)"
    parameter_name = "outcome"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """The outcomes of failures."""
        return [(each.value, each.value.replace("_", " ").capitalize()) for each in Outcome if each != Outcome.SERVED]

    def queryset(self, request: HttpRequest, queryset: QuerySet[RequestFailure]) -> QuerySet[RequestFailure]:
        """The failures of the chosen outcome."""
        if not (chosen := self.value()):
            return queryset
        return queryset.filter(outcome=chosen, created_at__gte=timezone.now() - OUTCOME_DAYS * ONE_DAY)


class FailureProvider(admin.SimpleListFilter):
    """Failures of one provider, by an index."""

    title = "provider"
    parameter_name = "provider"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """The providers of the catalogue."""
        return [(slug, slug) for slug in Provider.objects.order_by("slug").values_list("slug", flat=True)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[RequestFailure]) -> QuerySet[RequestFailure]:
        """The failures of the chosen provider."""
        chosen = self.value()
        return queryset.filter(provider=chosen) if chosen and chosen.isprintable() else queryset


class KindOfEntry(admin.SimpleListFilter):
    """Credit is found by an index of its own, since nearly every entry is usage."""

    title = "kind"
    parameter_name = "kind"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """The choices."""
        return [("credit", "All credit"), ("grant", "Grants"), ("correction", "Corrections"), ("usage", "Usage")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[LedgerEntry]) -> QuerySet[LedgerEntry]:
        """The entries of the chosen kind."""
        match self.value():
            case "credit":
                return queryset.exclude(reference=None)
            case "grant" | "correction" as kind:
                return queryset.exclude(reference=None).filter(kind=kind)
            case "usage":
                return queryset.exclude(generation=None)
            case _:
                return queryset


class Priced(admin.SimpleListFilter):
    """The records without a cost, which are few and have an index of their own."""

    title = "price"
    parameter_name = "priced"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """The one choice: whoever looks for priced records wants all."""
        return [("no", "Not priced")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Generation]) -> QuerySet[Generation]:
        """The chosen records."""
        return queryset.filter(cost=None) if self.value() == "no" else queryset


class Flagged(admin.SimpleListFilter):
    """The records with a flag, which are few and have an index of their own."""

    title = "flags"
    parameter_name = "flagged"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """All of them, or those of one flag."""
        return [("any", "Flagged"), *((code, words.removesuffix(".")) for code, words in FLAGS.items())]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Generation]) -> QuerySet[Generation]:
        """The chosen records."""
        chosen = self.value()
        if chosen == "any":
            return queryset.exclude(flags=None)
        return queryset.exclude(flags=None).filter(flags__contains=chosen) if chosen in FLAGS else queryset


class Balance(admin.SimpleListFilter):
    """Accounts by what they have left; read from every wallet, of which there are as many as accounts."""

    title = "balance"
    parameter_name = "balance"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """The choices."""
        return [("alert", "Overdrawn"), ("below", "Below zero"), ("empty", "Zero or below")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Account]) -> QuerySet[Account]:
        """The accounts in the chosen state."""
        match self.value():
            case "alert":
                return queryset.filter(overdraft_alert__isnull=False)
            case "below":
                return queryset.filter(wallet__balance__lt=0)
            case "empty":
                return queryset.filter(wallet__balance__lte=0)
            case _:
                return queryset
