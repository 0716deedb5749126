"""What somebody chose to see of an account's usage: days, grouping and narrowing. All of it is in the address."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import StrEnum
from uuid import UUID

from django.http import Http404
from django.urls import reverse
from django.utils.http import urlencode

from accounts.models import Account, ApiKey

from .alias_names import AliasName, names_of
from .rollup_models import NO_ALIAS
from .usage_forms import DaysForm
from .usage_statistics import By, Days, Scope

DEFAULT_DAYS = "30"
WINDOWS = {"7": "7 days", DEFAULT_DAYS: "30 days", "90": "90 days", "month": "This month"}
WITHOUT_ALIAS = "none"  # in the address
LONGEST = 400  # characters; no id of a catalogue comes near


class Grouping(StrEnum):
    """What usage is shown by."""

    MODEL = "model"
    KEY = "key"
    REGION = "region"
    ALIAS = "alias"


COLUMNS: dict[Grouping, tuple[By, ...]] = {
    Grouping.MODEL: (By.PROVIDER, By.MODEL),
    Grouping.KEY: (By.KEY,),
    Grouping.REGION: (By.REGION,),
    Grouping.ALIAS: (By.ALIAS,),
}
# By what a part is shown when one follows its link: the first of these that it is not narrowed to.
WITHIN = (Grouping.MODEL, Grouping.REGION, Grouping.KEY, Grouping.ALIAS)


@dataclass(frozen=True, slots=True)
class Link:
    """A link to another choice."""

    text: str
    address: str
    is_current: bool = False


@dataclass(frozen=True, slots=True)
class Narrowed:
    """One thing that the usage is narrowed to. `address` is the page without it."""

    what: Grouping
    text: str
    is_deleted: bool
    address: str


@dataclass(frozen=True, slots=True)
class Choice:
    """Checked: key and alias are the account's own. `window` is None where the days were given as dates."""

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

    @property
    def scope(self) -> Scope:
        """Whose usage that is."""
        provider, _, model = (self.model or "").partition("/")
        key_id = None if self.key is None else self.key.pk
        return Scope(self.account.pk, key_id, self.alias_id, provider or None, model or None, self.region)

    @property
    def narrowing(self) -> dict[str, str]:
        """The fields of the address that narrow it."""
        alias_id = WITHOUT_ALIAS if self.alias_id == NO_ALIAS else self.alias_id
        fields = {"model": self.model, "key": self.key and self.key.pk, "region": self.region, "alias": alias_id}
        return {name: str(value) for name, value in fields.items() if value is not None}

    @property
    def kept(self) -> dict[str, str]:
        """The fields that stay when other days are chosen."""
        return {"account": str(self.account.pk), "by": self.by, **self.narrowing}

    @property
    def dates(self) -> dict[str, str]:
        """The fields that say which days."""
        if self.window is not None:
            return {"days": self.window}
        return {"since": self.days.first.isoformat(), "until": self.days.last.isoformat()}

    def to(self, page: str, **changed: str | None) -> str:
        """The address of a page for this choice, but for what is changed; None takes a field out."""
        return f"{reverse(page)}?{self.query(**changed)}"

    def query(self, **changed: str | None) -> str:
        """What such an address has behind its question mark."""
        fields = {**self.kept, **self.dates, **changed}
        return urlencode({name: value for name, value in fields.items() if value is not None})

    def within(self, **narrowing: str) -> str:
        """The usage page of a part, by what comes next."""
        narrowed = self.narrowing | narrowing
        first = Grouping.REGION if "model" in narrowing else Grouping.MODEL
        by = next((by for by in (first, *WITHIN) if by not in narrowed), self.by)
        return self.to("usage", **narrowing, by=by)

    def of_day(self, day: date) -> str:
        """The records of one day."""
        return self.to("usage-records", days=None, since=day.isoformat(), until=day.isoformat())

    @property
    def windows(self) -> list[Link]:
        """Days that move with the clock, to choose from."""
        return [
            Link(text, self.to(self.page, since=None, until=None, days=window), window == self.window)
            for window, text in WINDOWS.items()
        ]

    @property
    def groupings(self) -> list[Link]:
        """What to show it by, to choose from."""
        return [Link(by.capitalize(), self.to(self.page, by=by), by == self.by) for by in Grouping]

    @property
    def narrowed(self) -> list[Narrowed]:
        """What it is narrowed to, as people call it."""
        found = []
        for name, value in self.narrowing.items():
            text, is_deleted = value, False
            if name == Grouping.KEY and self.key is not None:
                text, is_deleted = self.key.name, self.key.deleted_at is not None
            elif name == Grouping.ALIAS:
                text, is_deleted = (self.alias.text, self.alias.is_deleted) if self.alias else ("none", False)
            found.append(Narrowed(Grouping(name), text, is_deleted, self.to(self.page, **{name: None})))
        return found


def read(query: Mapping[str, str], account: Account, page: str, now: datetime) -> tuple[Choice, DaysForm]:
    """What an address chooses; its dates hold only if the form is valid. Raises Http404 for what is not there.

    A key or an alias of somebody else is as absent as none.
    """
    today = now.astimezone(UTC).date()
    form = DaysForm(query if "since" in query or "until" in query else None, today=today)
    window = None if form.is_valid() else _one_of(WINDOWS, query.get("days", DEFAULT_DAYS))
    days = days_of(window, now) if window else form.days
    if window:
        form.show(days)
    alias_id, alias = _alias(account, query.get("alias"))
    choice = Choice(
        account=account,
        page=page,
        days=days,
        window=window,
        by=Grouping(_one_of(Grouping, query.get("by", Grouping.MODEL))),
        key=_key(account, query.get("key")),
        alias_id=alias_id,
        alias=alias,
        model=_id(query.get("model"), parts=2),
        region=_id(query.get("region"), parts=1),
    )
    return choice, form


def days_of(window: str, now: datetime) -> Days:
    """The days of one of WINDOWS."""
    if window == "month":
        today = now.astimezone(UTC).date()
        return Days(today.replace(day=1), today)
    return Days.until(now, int(window))


def _one_of(known: Mapping[str, str] | type[Grouping], wanted: str) -> str:
    if wanted not in [*known]:
        raise Http404
    return wanted


def _key(account: Account, wanted: str | None) -> ApiKey | None:
    """Deleted keys too: their usage stays."""
    if wanted is None:
        return None
    found = ApiKey.objects.filter(account=account, pk=_uuid(wanted)).first()
    if found is None:
        raise Http404
    return found


def _alias(account: Account, wanted: str | None) -> tuple[UUID | None, AliasName | None]:
    if wanted is None:
        return None, None
    if wanted == WITHOUT_ALIAS:
        return NO_ALIAS, None
    alias_id = _uuid(wanted)
    name = names_of(account, [alias_id]).get(alias_id)
    if name is None:
        raise Http404
    return alias_id, name


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise Http404 from None


def _id(wanted: str | None, *, parts: int) -> str | None:
    """A model or a region, known or not: one that nobody used has no usage."""
    if wanted is None:
        return None
    # What can be no id is not asked for: PostgreSQL takes no NUL.
    if len(wanted) > LONGEST or not wanted.isprintable() or len([*filter(None, wanted.split("/", 1))]) < parts:
        raise Http404
    return wanted
