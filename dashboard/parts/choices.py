"""Reads the choice of usage (days, grouping, narrowing) from an address, and makes addresses of other choices."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from django import forms
from django.http import Http404
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.http import urlencode

from accounts.models import Account, ApiKey
from accounts.policies import TAG
from aliases.names import AliasName, names_of_aliases
from billing.models import NO_ALIAS
from billing.usage.statistics import NO_TAG, ONE_DAY, Days, GroupColumn, Scope

DEFAULT_DAYS = "30"
YESTERDAY = "yesterday"
WINDOWS = {
    "1": "Today",
    YESTERDAY: "Yesterday",
    "7": "7 days",
    DEFAULT_DAYS: "30 days",
    "90": "90 days",
    "month": "This month",
    "last-month": "Last month",
}
REPORTED = {
    DEFAULT_DAYS: "30 days",
    "month": "This month",
    "last-month": "Last month",
    "quarter": "This quarter",
    "last-quarter": "Last quarter",
    "year": "This year",
    "last-year": "Last year",
}
MONTHS = {"month": 1, "quarter": 3, "year": 12}
WITHOUT_ALIAS = "none"  # stands in the address for usage without an alias
WITHOUT_TAG = "none"  # the same for tags, which always have a "="
NOT_ROUTED = "none"  # stands for a model or region: the requests that failed before they had one
LONGEST = 400  # characters; ids of catalogues are far shorter
MOST_DAYS = 366
USUAL_DAYS = 30
NOTHING_BEFORE = date(2000, 1, 1)  # no record is that old


class Grouping(StrEnum):
    """Names the columns that usage can be grouped by."""

    MODEL = "model"
    KEY = "key"
    REGION = "region"
    ALIAS = "alias"
    TAG = "tag"


COLUMNS_OF_GROUPING: dict[Grouping, tuple[GroupColumn, ...]] = {
    Grouping.MODEL: (GroupColumn.PROVIDER, GroupColumn.MODEL),
    Grouping.KEY: (GroupColumn.KEY,),
    Grouping.REGION: (GroupColumn.REGION,),
    Grouping.ALIAS: (GroupColumn.ALIAS,),
    Grouping.TAG: (GroupColumn.TAG,),
}
# A link to a part of usage groups it by the first of these that it is not narrowed to.
WITHIN = (Grouping.MODEL, Grouping.REGION, Grouping.KEY, Grouping.ALIAS)


class DaysForm(forms.Form):
    """Asks for the first and the last of at most 366 UTC days; one of them is enough."""

    since = forms.DateField(label="From", required=False, input_formats=["%Y-%m-%d"])
    until = forms.DateField(label="To", required=False, input_formats=["%Y-%m-%d"])

    def __init__(self, data: Mapping[str, Any] | None, *, today: date) -> None:
        super().__init__(data, label_suffix="")
        self.today = today
        for day in self.fields.values():
            day.widget = forms.DateInput({"type": "date", "max": today.isoformat()}, format="%Y-%m-%d")
            day.error_messages["invalid"] = "Enter a date like 2026-10-30."

    @property
    def days(self) -> Days:
        return Days(self.cleaned_data["since"], self.cleaned_data["until"])

    def clean(self) -> dict[str, Any]:
        # Fills in a bound that was left empty.
        since, until = self.cleaned_data.get("since"), self.cleaned_data.get("until")
        if self.errors:
            return self.cleaned_data
        last = min(until or self.today, self.today)
        if last < NOTHING_BEFORE:
            self.add_error("until", f"There is no data before {NOTHING_BEFORE}.")
            return self.cleaned_data
        first = since or last - timedelta(days=USUAL_DAYS - 1)
        self._check(first, last)
        return {"since": first, "until": last}

    def _check(self, first: date, last: date) -> None:
        earliest = last - timedelta(days=MOST_DAYS - 1)
        if first > self.today:
            self.add_error("since", f"Date is in the future: today is {self.today} (UTC).")
        elif first > last:
            self.add_error("since", f"Date is after the end date, {last}.")
        elif first < earliest:
            self.add_error("since", f"The period is limited to {MOST_DAYS} days: choose {earliest} or later.")


@dataclass(frozen=True, slots=True)
class Link:
    """Describes a link to another choice."""

    text: str
    address: str
    is_current: bool = False


@dataclass(frozen=True, slots=True)
class ActiveFilter:
    """Describes a value that usage is narrowed to; `address` leads to the page without this narrowing."""

    what: Grouping
    text: str
    is_deleted: bool
    address: str


@dataclass(frozen=True, slots=True)
class Choice:
    """Holds a checked choice. `window` is None if the days were given as dates."""

    account: Account
    page: str  # the name of the page's address
    days: Days
    window: str | None
    by: Grouping
    key: ApiKey | None = None
    alias_id: UUID | None = None
    alias: AliasName | None = None
    model: str | None = None
    region: str | None = None
    tag: str | None = None  # NO_TAG: the usage without tags
    today: date = date.max
    extra: Mapping[str, str] = field(default_factory=dict)  # further fields of the page's address
    offered_windows: Mapping[str, str] = field(default_factory=lambda: WINDOWS)

    @property
    def scope(self) -> Scope:
        key_id = None if self.key is None else self.key.pk
        region = "" if self.region == NOT_ROUTED else self.region
        provider = model = None
        if self.model == NOT_ROUTED:
            provider = model = ""
        elif self.model is not None:
            provider, _, model = self.model.partition("/")
        return Scope(self.account.pk, key_id, self.alias_id, provider, model, region, self.tag)

    @property
    def counts_errors(self) -> bool:
        """Tells whether errors can be counted: requests that failed have no tags."""
        return self.tag is None and self.by != Grouping.TAG

    @property
    def narrowing(self) -> dict[str, str]:
        alias_id = WITHOUT_ALIAS if self.alias_id == NO_ALIAS else self.alias_id
        tag = WITHOUT_TAG if self.tag == NO_TAG else self.tag
        fields = {"model": self.model, "key": self.key and self.key.pk, "region": self.region}
        fields |= {"alias": alias_id, "tag": tag}
        return {name: str(value) for name, value in fields.items() if value is not None}

    @property
    def kept(self) -> dict[str, str]:
        """Returns the fields that stay when other days are chosen."""
        return {"account": str(self.account.pk), "by": self.by, **self.narrowing, **self.extra}

    @property
    def dates(self) -> dict[str, str]:
        if self.window is not None:
            return {"days": self.window}
        return {"since": self.days.first.isoformat(), "until": self.days.last.isoformat()}

    def to(self, page: str, **changed: str | None) -> str:
        """Returns the address of a page for this choice with some fields changed; None removes a field."""
        return f"{reverse(page)}?{self.query(**changed)}"

    def query(self, **changed: str | None) -> str:
        fields = {**self.kept, **self.dates, **changed}
        return urlencode({name: value for name, value in fields.items() if value is not None})

    def within(self, **narrowing: str) -> str:
        """Returns the address of this page narrowed further. The usage page then groups by the next column."""
        if self.page != "usage":
            return self.to(self.page, **narrowing)
        narrowed = self.narrowing | narrowing
        first = Grouping.REGION if "model" in narrowing else Grouping.MODEL
        by = next((by for by in (first, *WITHIN) if by not in narrowed), self.by)
        return self.to("usage", **narrowing, by=by)

    @property
    def before(self) -> Days:
        """Returns the period before: as many whole calendar months, or else as many days."""
        first, last = self.days.first, self.days.last
        if months := _whole_months(self.days):
            return Days(_months_later(first, -months), first - ONE_DAY)
        return Days(first - (last - first) - ONE_DAY, first - ONE_DAY)

    @property
    def after(self) -> Days | None:
        """Returns the period after, until today; None if it has not begun."""
        first, last = self.days.first, self.days.last
        if last >= self.today:
            return None
        months = _whole_months(self.days)
        end = _months_later(first, 2 * months) - ONE_DAY if months else last + (last - first) + ONE_DAY
        return Days(last + ONE_DAY, min(end, self.today))

    @property
    def previous_address(self) -> str | None:
        return None if self.before.first < NOTHING_BEFORE else self.of_days(self.page, self.before)

    @property
    def next_address(self) -> str | None:
        return None if self.after is None else self.of_days(self.page, self.after)

    def of_days(self, page: str, days: Days) -> str:
        """Returns the address of a page for this choice in other days."""
        return self.to(page, days=None, since=days.first.isoformat(), until=days.last.isoformat())

    @property
    def windows(self) -> list[Link]:
        return [
            Link(text, self.to(self.page, since=None, until=None, days=window), window == self.window)
            for window, text in self.offered_windows.items()
        ]

    @property
    def groupings(self) -> list[Link]:
        return [Link(by.capitalize(), self.to(self.page, by=by), by == self.by) for by in Grouping]

    @property
    def narrowed(self) -> list[ActiveFilter]:
        parts = []
        for name, value in self.narrowing.items():
            text, is_deleted = value, False
            if name == Grouping.KEY and self.key is not None:
                text, is_deleted = self.key.name, self.key.deleted_at is not None
            elif name == Grouping.ALIAS:
                text, is_deleted = (self.alias.text, self.alias.is_deleted) if self.alias else ("none", False)
            elif name in (Grouping.MODEL, Grouping.REGION) and value == NOT_ROUTED:
                text = "not routed"
            parts.append(ActiveFilter(Grouping(name), text, is_deleted, self.to(self.page, **{name: None})))
        return parts


def read(
    query: Mapping[str, str],
    account: Account,
    page: str,
    now: datetime,
    *,
    windows: Mapping[str, str] = WINDOWS,
    extra: Collection[str] = (),
) -> tuple[Choice, DaysForm]:
    """Reads the choice of an address. Its days are only meaningful if the form is valid.

    Raises Http404 for a key or alias of another account, and for an unknown value.
    """
    today = now.astimezone(UTC).date()
    form = DaysForm(query if "since" in query or "until" in query else None, today=today)
    if form.is_valid():
        window, days = None, form.days
    else:
        window = _one_of({**WINDOWS, **REPORTED}, query.get("days", DEFAULT_DAYS))
        days = _days_of(window, now)
        form.initial = {"since": days.first, "until": days.last}
    # Deleted keys can be chosen too, since their usage stays.
    key = get_object_or_404(ApiKey, account=account, pk=_uuid(query["key"])) if "key" in query else None
    alias_id, alias = _alias(account, query.get("alias"))
    choice = Choice(
        account=account,
        page=page,
        days=days,
        window=window,
        by=Grouping(_one_of([*Grouping], query.get("by", Grouping.MODEL))),
        key=key,
        alias_id=alias_id,
        alias=alias,
        model=_id(query.get("model"), parts=2),
        region=_id(query.get("region"), parts=1),
        tag=_tag(query.get("tag")),
        today=today,
        extra={name: query[name] for name in extra if name in query},
        offered_windows=windows,
    )
    return choice, form


def _days_of(window: str, now: datetime) -> Days:
    """Returns the last days up to today, yesterday, or this or the last month, quarter or year."""
    if window == YESTERDAY:
        yesterday = now.astimezone(UTC).date() - timedelta(days=1)
        return Days(yesterday, yesterday)
    months = MONTHS.get(window.removeprefix("last-"))
    if months is None:
        return Days.until(now, int(window))
    today = now.astimezone(UTC).date()
    first = today.replace(month=(today.month - 1) // months * months + 1, day=1)
    if not window.startswith("last-"):
        return Days(first, today)
    last = first - timedelta(days=1)
    return Days(last.replace(month=last.month - months + 1, day=1), last)


def _whole_months(days: Days) -> int:
    """Returns how many calendar months the days are; 0 if they are parts of months."""
    after = days.last + ONE_DAY
    if (days.first.day, after.day) != (1, 1):
        return 0
    return 12 * (after.year - days.first.year) + after.month - days.first.month


def _months_later(first: date, months: int) -> date:
    """Returns the first day of a month that is this many months later."""
    years, month = divmod(first.month - 1 + months, 12)
    return first.replace(year=first.year + years, month=month + 1)


def _one_of(choices: Collection[str], text: str) -> str:
    if text not in choices:
        raise Http404
    return text


def _alias(account: Account, text: str | None) -> tuple[UUID | None, AliasName | None]:
    if text is None:
        return None, None
    if text == WITHOUT_ALIAS:
        return NO_ALIAS, None
    alias_id = _uuid(text)
    name = names_of_aliases(account.pk, [alias_id]).get(alias_id)
    if name is None:
        raise Http404
    return alias_id, name


def _tag(text: str | None) -> str | None:
    if text is None or TAG.fullmatch(text):
        return text
    if text == WITHOUT_TAG:
        return NO_TAG
    raise Http404


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise Http404 from None


def _id(text: str | None, *, parts: int) -> str | None:
    # A text that cannot be an id never reaches the database: PostgreSQL refuses NUL characters.
    if (
        text is not None
        and text != NOT_ROUTED
        and (len(text) > LONGEST or not text.isprintable() or len([*filter(None, text.split("/", 1))]) < parts)
    ):
        raise Http404
    return text
