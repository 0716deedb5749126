"""Searches the tables of the admin for an id, the beginning of one, or a name."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Self
from uuid import UUID

from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.urls import reverse

from ..ids import REQUEST_PREFIX

MOST_FOUND = 20  # of each kind
LONGEST_TERM = 320  # characters: the longest email address
HEX_DIGITS = 32  # of a UUID
ID = re.compile(r"(?P<prefix>gen-|resp_|msg_|req-)?(?P<digits>[0-9a-f]{8}[0-9a-f-]*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SearchTerm:
    """Holds what is searched for. `low` and `high` are the first and the last id that it may stand for, if any."""

    text: str
    low: UUID | None = None
    high: UUID | None = None
    is_of_generation: bool = False  # the prefix says that it is the id of an answer

    @classmethod
    def of(cls, text: str) -> Self:
        text = text.strip()
        if len(text) > LONGEST_TERM or not text.isprintable():
            return cls("")  # no name is like this, and PostgreSQL takes no NUL
        match = ID.fullmatch(text)
        digits = match["digits"].replace("-", "") if match else ""
        if match is None or len(digits) > HEX_DIGITS:
            return cls(text)
        low, high = (UUID(hex=digits.ljust(HEX_DIGITS, filler)) for filler in "0f")
        return cls(text, low, high, (match["prefix"] or "").lower() not in ("", REQUEST_PREFIX))

    @property
    def ids(self) -> dict[str, UUID | None]:
        """Returns the conditions for a row whose primary key the term may stand for; an index serves them."""
        return {"pk__gte": self.low, "pk__lte": self.high}

    def is_id_of(self, row: Model) -> bool:
        return self.low is not None and isinstance(row.pk, UUID) and self.low <= row.pk <= (self.high or self.low)


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Holds a row that was found, with the addresses of its page in the admin and on the dashboard."""

    name: str
    detail: str
    address: str
    dashboard: str | None
    is_by_id: bool


@dataclass(frozen=True, slots=True)
class SearchGroup:
    """Holds the results of one kind. `has_more` tells that there are more than it lists."""

    name: str
    results: list[SearchResult]
    has_more: bool


class Searchable(admin.ModelAdmin[Any]):
    """Is mixed into the admin of a table that the search includes."""

    search_place: ClassVar[int]  # of its group on the page

    def found(self, rows: QuerySet[Any], term: SearchTerm) -> QuerySet[Any]:
        """Returns the rows that match the term, whose `text` is not empty."""
        raise NotImplementedError

    def detail_of(self, row: Any) -> str:
        """Returns what distinguishes a result from others with its name."""
        return ""

    def dashboard_of(self, row: Any) -> str | None:
        """Returns the address of a row on the dashboard of its account."""
        return None


def groups_found(request: HttpRequest, tables: Iterable[Any], term: SearchTerm) -> list[SearchGroup]:
    """Returns the groups with a match among the tables that the person may view, with one SELECT for each table."""
    searched = [table for table in tables if isinstance(table, Searchable) and table.has_view_permission(request)]
    found = (_group(request, table, term) for table in sorted(searched, key=lambda table: table.search_place))
    return [group for group in found if group.results] if term.text else []


def _group(request: HttpRequest, table: Searchable, term: SearchTerm) -> SearchGroup:
    sees_dashboards = request.user.has_perm("accounts.view_account") or request.user.has_perm("accounts.change_account")
    rows = list(table.found(table.model._default_manager.all(), term)[: MOST_FOUND + 1])
    page = f"admin:{table.opts.app_label}_{table.opts.model_name}_change"
    results = [
        SearchResult(
            str(row),
            table.detail_of(row),
            reverse(page, args=[row.pk]),
            table.dashboard_of(row) if sees_dashboards else None,
            term.is_id_of(row),
        )
        for row in rows[:MOST_FOUND]
    ]
    return SearchGroup(str(table.opts.verbose_name_plural), results, len(rows) > MOST_FOUND)


def dashboard_page(name: str, account_id: UUID, *arguments: object) -> str:
    """Returns the address of a page of the dashboard for an account."""
    return f"{reverse(name, args=arguments)}?account={account_id}"
