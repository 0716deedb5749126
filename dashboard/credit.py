"""Shows the page on an account's credit: balance, ledger and statements."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from django import forms
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode

from accounts.models import Account
from billing.funds import WINDOW_DAYS, funds_of, usage_by_day
from billing.models import LedgerEntry
from billing.usage import focus, keyset
from billing.usage import statement as statement_file
from billing.usage.keyset import Page
from billing.usage.months import Ledger, LedgerSums
from billing.usage.replica import from_replica
from billing.usage.statement import FORMATS, InvalidPeriod, Period, StatementTotals, lines
from billing.usage.statistics import Days, Scope, Totals
from gateway.ids import generation_id

from .parts.access import AccountContext, account_page
from .parts.downloads import download, refused
from .parts.printed import TooManyRequests, credit_of, is_of_days, number_of, printed

PAGE_ENTRIES = 50
PRINTED, FOCUS = "html", "focus"  # formats besides those of `FORMATS`
LAST_SEQ = 2**63 - 1
OLDEST_MONTH = date(2000, 1, 1)  # no account is that old
ENTRY_COLUMNS = (
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


class LedgerView(StrEnum):
    """Names the lists: credit along with each day's usage, or single entries."""

    DAYS = "days"
    ALL = "all"
    CREDIT = "credit"
    USAGE = "usage"


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """Holds an entry, and the public id of its record."""

    entry: LedgerEntry
    generation_id: str | None


@dataclass(frozen=True, slots=True)
class DayLine:
    """Holds the usage of a day, or a grant or correction on that day."""

    day: date
    totals: Totals | None = None
    entry: LedgerEntry | None = None


@dataclass(frozen=True, slots=True)
class Month:
    """Holds the lines of a month, newest first; `older` and `newer` are the months before and after it."""

    days: Days
    lines: list[DayLine]
    older: str | None
    newer: str | None


@dataclass(frozen=True, slots=True)
class YearOfMonths:
    """Holds the sums of the months of a year, newest first; `older` and `newer` are the years before and after it."""

    year: int
    months: list[LedgerSums]
    older: int | None
    newer: int | None


class StatementForm(forms.Form):
    """Asks for a statement's bounds: UTC days, or moments as in `Period`. The default is this month up to today."""

    since = forms.CharField(label="From", widget=forms.DateInput({"type": "date"}))
    until = forms.CharField(label="To", widget=forms.DateInput({"type": "date"}))

    def __init__(self, data: Mapping[str, Any] | None, now: datetime) -> None:
        fields = {"since": f"{now:%Y-%m}-01", "until": f"{now:%Y-%m-%d}"}
        super().__init__(None if data is None else fields | {**data}, initial=fields, label_suffix="")

    @property
    def period(self) -> Period:
        """Returns the period of a valid form."""
        return Period.between(self.cleaned_data["since"], self.cleaned_data["until"])

    def clean_since(self) -> str:
        return _bound(self.cleaned_data["since"])

    def clean_until(self) -> str:
        return _bound(self.cleaned_data["until"])

    def clean(self) -> None:
        if self.errors:
            return
        try:
            Period.between(**self.cleaned_data)
        except InvalidPeriod:
            self.add_error("since", f"Date is after the end date, {self.cleaned_data['until']}.")


@account_page()
def credit(request: HttpRequest, current: AccountContext) -> HttpResponse:
    """Shows the balance, the ledger (`show`; a `month`, or `before` or `after` an entry) and a form for statements."""
    try:
        has_position = "before" in request.GET or "after" in request.GET
        shown = LedgerView(request.GET.get("show", LedgerView.ALL if has_position else LedgerView.DAYS))
    except ValueError:
        raise Http404 from None
    now = timezone.now()
    by_day = usage_by_day(Scope(current.account.pk), Days.until(now, WINDOW_DAYS), with_errors=False)
    account_id = current.account.pk
    if shown == LedgerView.DAYS:
        ledger: dict[str, Any] = {"month": month_of(current.account, _month(request, now), now)}
    else:
        before, after = _seq(request, "before"), _seq(request, "after")
        ledger = {"ledger": ledger_page(account_id, shown, before=before, after=after)}
    months = months_of(account_id, request, now)
    bounds = {name: request.GET[name] for name in ("since", "until") if name in request.GET}
    form = StatementForm(bounds or None, now)
    context = {
        "funds": funds_of(current.account.pk, by_day, now),
        "shown": shown,
        "choices": {
            LedgerView.DAYS: "Top-ups and daily usage",
            LedgerView.CREDIT: "Top-ups",
            LedgerView.USAGE: "Single requests",
            LedgerView.ALL: "All entries",
        },
        "form": form,
        "months": months,
        "presets": presets(now.astimezone(UTC).date()),
    }
    return current.page(request, "credit", context | ledger, form)


def months_of(account_id: UUID, request: HttpRequest, now: datetime) -> YearOfMonths:
    """Returns the sums of each month of the requested `year`, by default of this one. Raises Http404."""
    ledger, today = Ledger(account_id), now.astimezone(UTC).date()
    began = ledger.began_at
    first = today.year if began is None else began.astimezone(UTC).year
    text = request.GET.get("year", str(today.year))
    if not (text.isascii() and text.isdigit() and len(text) == 4 and first <= int(text) <= today.year):
        raise Http404
    year = int(text)
    older, newer = (year - 1 if year > first else None), (year + 1 if year < today.year else None)
    return YearOfMonths(year, ledger.months(year, today), older, newer)


def presets(today: date) -> dict[str, Days]:
    """Returns the periods that the form for statements offers; those that are not over end today."""
    this_month, this_year = today.replace(day=1), today.replace(month=1, day=1)
    last_month = this_month - timedelta(days=1)
    return {
        "Last month": Days(last_month.replace(day=1), last_month),
        "This month": Days(this_month, today),
        "Last year": Days(date(today.year - 1, 1, 1), date(today.year - 1, 12, 31)),
        "This year": Days(this_year, today),
    }


def month_of(account: Account, days: Days, now: datetime) -> Month:
    """Returns each day's usage and credit in a month, with three SELECTs."""
    by_day = usage_by_day(Scope(account.pk), days, with_errors=False)
    used = [DayLine(day, totals) for day, totals in by_day.items() if totals.requests]
    credited = [DayLine(entry.created_at.astimezone(UTC).date(), entry=entry) for entry in credit_of(account.pk, days)]
    first, last = account.created_at.astimezone(UTC).date().replace(day=1), now.astimezone(UTC).date()
    return Month(
        days,
        sorted(credited + used, key=lambda line: line.day, reverse=True),
        f"{days.first - timedelta(days=1):%Y-%m}" if days.first > first else None,
        f"{days.last + timedelta(days=1):%Y-%m}" if days.last < last else None,
    )


def ledger_page(
    account_id: UUID, shown: LedgerView = LedgerView.ALL, *, before: int | None = None, after: int | None = None
) -> Page[LedgerLine, int]:
    """Returns a page of entries, newest first, `before` or `after` an entry's `seq`, with one SELECT by an index."""
    entries = LedgerEntry.objects.filter(account_id=account_id)
    if shown == LedgerView.CREDIT:
        entries = entries.exclude(reference=None)  # the condition of the index
    else:
        entries = entries.select_related("generation").only(*ENTRY_COLUMNS)
        if shown == LedgerView.USAGE:
            entries = entries.exclude(generation=None)

    def read(seq: int | None, count: int, is_upwards: bool) -> list[LedgerLine]:
        ordered = entries.order_by("seq" if is_upwards else "-seq")
        if seq is not None:
            ordered = ordered.filter(seq__gt=seq) if is_upwards else ordered.filter(seq__lt=seq)
        return [
            LedgerLine(entry, None if entry.generation_id is None else generation_id(entry.generation_id))
            for entry in ordered[:count]
        ]

    page = keyset.page(read, lambda line: line.entry.seq, PAGE_ENTRIES, before=before, after=after)
    return page if page.rows or before is None else replace(page, newer=0)


@account_page("GET")  # no HEAD: it would read the whole statement for nothing
@from_replica
def statement(request: HttpRequest, current: AccountContext) -> HttpResponseBase:
    """Streams the statement of `since` to `until` in a `format`. An invalid bound redirects to the credit page."""
    chosen = request.GET.get("format", "csv")
    if chosen not in (*FORMATS, FOCUS, PRINTED):
        return refused(f"format: {chosen!r} is not one of {', '.join((*FORMATS, FOCUS, PRINTED))}.")
    form = StatementForm(request.GET.dict(), timezone.now())
    if not form.is_valid():
        fields = {"account": current.account.pk, "since": form["since"].value(), "until": form["until"].value()}
        return redirect(f"{reverse('credit')}?{urlencode(fields)}#statement")
    period = form.period
    if chosen == PRINTED:
        return current.page(request, "statement", statement_page(current.account, period))
    name = f"{period.since:%Y-%m-%d}-{period.until:%Y-%m-%d}.{chosen}"
    if chosen == FOCUS:
        rows = focus.blocks(current.account, period, StatementTotals())
        return download(rows, FORMATS["csv"].content_type, current, f"{name}.csv")
    blocks, content_type = FORMATS[chosen]
    return download(blocks(lines(current.account, period, StatementTotals())), content_type, current, name)


def statement_page(account: Account, period: Period) -> dict[str, Any]:
    """Returns the values of the printed page; `too_many` requests instead of sums, if it cannot be read at once."""
    now, days = timezone.now(), Days(period.since.astimezone(UTC).date(), period.until.astimezone(UTC).date())
    context = {
        "period": period,
        "number": number_of(account, period),
        "issued": now,
        "is_over": period.until < now,
        "is_days": is_of_days(period),
        "log_checkpoint": (statement_file.log_checkpoint() or "").partition("\n\n")[0],  # without its signatures
    }
    try:
        page = printed(account, period)
    except TooManyRequests as error:
        return context | {"too_many": error.requests}
    entries = [e for e in reversed(credit_of(account.pk, days)) if period.since <= e.created_at <= period.until]
    return context | {"page": page, "totals": page.totals, "entries": entries}


def _month(request: HttpRequest, now: datetime) -> Days:
    """Returns the requested month, by default this one. Raises Http404 for an invalid or a future one."""
    today = now.astimezone(UTC).date()
    try:
        first = datetime.strptime(request.GET.get("month", f"{today:%Y-%m}"), "%Y-%m").replace(tzinfo=UTC).date()
    except ValueError:
        raise Http404 from None
    if not OLDEST_MONTH <= first <= today:
        raise Http404
    next_month = (first + timedelta(days=31)).replace(day=1)
    return Days(first, min(today, next_month - timedelta(days=1)))


def _seq(request: HttpRequest, name: str) -> int | None:
    text = request.GET.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= LAST_SEQ):
        raise Http404
    return int(text)


def _bound(text: str) -> str:
    # Checks one bound by itself; `clean` checks that they fit each other.
    try:
        Period.between("0001-01-01", text)
    except InvalidPeriod:
        raise forms.ValidationError("Enter a date like 2026-10-30.") from None
    return text
