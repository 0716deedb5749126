"""The page on an account's credit: what is left, how long it lasts, every movement of it, and a form for statements."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any
from uuid import UUID

from django import forms
from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from accounts.models import Account
from billing.models import LedgerEntry, Wallet
from billing.usage import keyset
from billing.usage.keyset import Page
from billing.usage.statement import InvalidPeriod, Period
from billing.usage.statistics import By, Days, Scope, Totals, breakdown
from gateway.ids import generation_id

from .access import AccountContext, account_page

PAGE_ENTRIES = 50
LAST_SEQ = 2**63 - 1
OLDEST_MONTH = date(2000, 1, 1)  # no account is that old
WINDOW_DAYS = 30  # UTC's, today's included
PACE_DAYS = 7  # whose mean cost says how long a balance lasts
LOW_BALANCE_DAYS = 7  # a week is time enough for a bank transfer to arrive
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


class BalanceStatus(StrEnum):
    """Whether there is credit. EMPTY is what makes the API answer 402."""

    GOOD = "good"
    LOW = "low"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class Funds:
    """A balance, what was used in the window, and the cost of a day at the pace of late, in the account's currency."""

    balance: Decimal
    sums: Totals
    pace: Decimal

    @property
    def days_left(self) -> int | None:
        """Whole days that the balance lasts at this pace; None where nothing was spent."""
        return max(0, int(self.balance / self.pace)) if self.pace else None

    @property
    def status(self) -> BalanceStatus:
        """Whether credit is needed: now, soon or not."""
        if self.balance <= 0:
            return BalanceStatus.EMPTY
        soon = self.days_left is not None and self.days_left < LOW_BALANCE_DAYS
        return BalanceStatus.LOW if soon else BalanceStatus.GOOD


class Shown(StrEnum):
    """What is listed: credit, which is grants and corrections, beside the usage of each day; or single entries."""

    DAYS = "days"
    ALL = "all"
    CREDIT = "credit"
    USAGE = "usage"


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """An entry, and the public id of the record that it debits."""

    entry: LedgerEntry
    generation_id: str | None


@dataclass(frozen=True, slots=True)
class DayLine:
    """What was used on a day, or a grant or correction of it."""

    day: date
    totals: Totals | None = None
    entry: LedgerEntry | None = None


@dataclass(frozen=True, slots=True)
class Month:
    """A month's lines, newest first; `older` and `newer` name the months beside it, where they are any."""

    days: Days
    lines: list[DayLine]
    older: str | None
    newer: str | None


class StatementForm(forms.Form):
    """What a statement is asked for with, on the page and in the download's address.

    The first and the last day, which are UTC's, or moments as `Period` takes them. What is left out is from the first
    of the month, or to today.
    """

    since = forms.CharField(label="From", widget=forms.DateInput({"type": "date"}))
    until = forms.CharField(label="To", widget=forms.DateInput({"type": "date"}))

    def __init__(self, data: Mapping[str, Any] | None, now: datetime) -> None:
        fields = {"since": f"{now:%Y-%m}-01", "until": f"{now:%Y-%m-%d}"}
        super().__init__(None if data is None else fields | {**data}, initial=fields, label_suffix="")

    @property
    def period(self) -> Period:
        """Of a valid form."""
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
    """The balance, the ledger (`show`; a `month` of days, or `before` or `after` an entry) and the form for statements.

    422 where `since` and `until` are bounds that no statement could be had for.
    """
    try:
        has_position = "before" in request.GET or "after" in request.GET
        shown = Shown(request.GET.get("show", Shown.ALL if has_position else Shown.DAYS))
    except ValueError:
        raise Http404 from None
    now = timezone.now()
    by_day = usage_by_day(current.account.pk, Days.until(now, WINDOW_DAYS))
    account_id = current.account.pk
    if shown == Shown.DAYS:
        ledger: dict[str, Any] = {"month": month_of(current.account, _month(request, now), now)}
    else:
        before, after = _seq(request, "before"), _seq(request, "after")
        ledger = {"ledger": ledger_page(account_id, shown, before=before, after=after)}
    bounds = {name: request.GET[name] for name in ("since", "until") if name in request.GET}
    form = StatementForm(bounds or None, now)
    context = {
        "funds": funds_of(current.account.pk, by_day, now),
        "shown": shown,
        "choices": {
            Shown.DAYS: "Top-ups and daily usage",
            Shown.CREDIT: "Top-ups",
            Shown.USAGE: "Single requests",
            Shown.ALL: "All entries",
        },
        "form": form,
        "contact": settings.BILLING_CONTACT_URL,
    }
    context |= current.template_context | ledger
    return render(request, "dashboard/credit.html", context, status=422 if form.errors else 200)


def usage_by_day(account_id: UUID, days: Days, *, with_errors: bool = False) -> dict[date, Totals]:
    """The totals of each day that has a request. Two SELECTs, with errors three."""
    rows = breakdown(Scope(account_id), days, By.DAY, with_errors=with_errors)
    return {row.day: row.totals for row in rows if row.day is not None}


def funds_of(account_id: UUID, by_day: Mapping[date, Totals], now: datetime) -> Funds:
    """The balance beside usage by day, which covers the window at least. One SELECT."""
    days = Days.until(now, WINDOW_DAYS)
    window = {day: totals for day, totals in by_day.items() if day >= days.first}
    sums = sum(window.values(), Totals())
    return Funds(Wallet.objects.get(pk=account_id).balance, sums, _pace(window, days.last))


def _pace(window: Mapping[date, Totals], today: date) -> Decimal:
    """What a day costs: the faster of the last week's days and of those since the first use in the window.

    The first tells of a jump in use, the second of an account that is younger than a week.
    """
    spent = {day: totals.cost for day, totals in window.items() if totals.cost}
    if not spent:
        return Decimal(0)
    week = sum((cost for day, cost in spent.items() if day > today - timedelta(days=PACE_DAYS)), Decimal(0))
    since_first = sum(spent.values(), Decimal(0)) / ((today - min(spent)).days + 1)
    return max(week / PACE_DAYS, since_first)


def month_of(account: Account, days: Days, now: datetime) -> Month:
    """What was used on each day of a month beside its credit. Three SELECTs."""
    used = [DayLine(day, totals) for day, totals in usage_by_day(account.pk, days).items() if totals.requests]
    credited = [DayLine(entry.created_at.astimezone(UTC).date(), entry=entry) for entry in credit_of(account.pk, days)]
    first, last = account.created_at.astimezone(UTC).date().replace(day=1), now.astimezone(UTC).date()
    return Month(
        days,
        sorted(credited + used, key=lambda line: line.day, reverse=True),
        f"{days.first - timedelta(days=1):%Y-%m}" if days.first > first else None,
        f"{days.last + timedelta(days=1):%Y-%m}" if days.last < last else None,
    )


def credit_of(account_id: UUID, days: Days) -> list[LedgerEntry]:
    """The grants and corrections of these days, newest first."""
    # In the words of the index's condition, as in `ledger_page`.
    entries = LedgerEntry.objects.filter(account_id=account_id).exclude(reference=None)
    return list(entries.filter(created_at__gte=days.since, created_at__lt=days.before).order_by("-seq"))


def ledger_page(
    account_id: UUID, shown: Shown = Shown.ALL, *, before: int | None = None, after: int | None = None
) -> Page[LedgerLine, int]:
    """A page of entries, newest first, from a position, which is an entry's `seq`. One SELECT by an index."""
    entries = LedgerEntry.objects.filter(account_id=account_id)
    if shown == Shown.CREDIT:
        entries = entries.exclude(reference=None)  # in the words of the index's condition
    else:
        entries = entries.select_related("generation").only(*COLUMNS)
        if shown == Shown.USAGE:
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


def _month(request: HttpRequest, now: datetime) -> Days:
    """The month that is asked for, this one by default. Raises Http404 for what is none, or is to come."""
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
    """A position in the ledger. Raises Http404 for what is none."""
    text = request.GET.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= LAST_SEQ):
        raise Http404
    return int(text)


def _bound(text: str) -> str:
    """The first or the last day: whether it fits the other one is seen later."""
    try:
        Period.between("0001-01-01", text)
    except InvalidPeriod:
        raise forms.ValidationError("Enter a date like 2026-10-30.") from None
    return text
