"""What members download: a period's statement, and the sums of the usage page. Both are streamed."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, timedelta
from decimal import Decimal
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.utils.text import slugify

from accounts.models import Account
from billing.usage.replica import from_replica
from billing.usage.statement import FORMATS, Line, Period, Sum, Totals, csv_blocks, lines
from billing.usage.statistics import Days, breakdown
from gateway.server.turns import take_turns
from gateway.stores.db import release

from . import carbon, usage_choice
from .access import AccountContext, account_page
from .credit import StatementForm, credit_of, usage_by_day
from .usage import Group, GroupName, group_of, names_of_groups
from .usage_choice import COLUMNS, Choice, Grouping

PRINTED = "html"
MOST_PRINTED = 50_000  # requests that are read for a page
GROUP_COLUMNS = {
    Grouping.MODEL: ("provider", "model"),
    Grouping.KEY: ("key_id", "key"),
    Grouping.REGION: ("region",),
    Grouping.ALIAS: ("alias_id", "alias"),
}
CARBON_COLUMNS = ("day", *carbon.BY, *carbon.COLUMNS)
FIGURES = (
    *("requests", "interrupted", "estimated", "prompt_tokens", "completion_tokens", "currency", "cost"),
    *("requests_priced", "energy_wh", "requests_with_energy", "carbon_gco2e", "requests_with_carbon"),
)


@account_page("GET")  # no HEAD: it would read the whole statement for nothing
@from_replica
def statement(request: HttpRequest, current: AccountContext) -> HttpResponseBase:
    """`since`, `until` and `format`, each with a default. A bound at fault leads back to the credit page."""
    chosen = request.GET.get("format", "csv")
    if chosen not in FORMATS and chosen != PRINTED:
        return _refused(f"format: {chosen!r} is none of {', '.join((*FORMATS, PRINTED))}.")
    form = StatementForm(request.GET.dict(), timezone.now())
    if not form.is_valid():
        fields = {"account": current.account.pk, "since": form["since"].value(), "until": form["until"].value()}
        return redirect(f"{reverse('credit')}?{urlencode(fields)}#statement")
    period = form.period
    if chosen == PRINTED:
        return render(request, "dashboard/statement.html", current.template_context | printed(current.account, period))
    blocks, content_type = FORMATS[chosen]
    name = f"{_slug(current.account)}-{period.since:%Y-%m-%d}-{period.until:%Y-%m-%d}.{chosen}"
    return _download(blocks(lines(current.account, period, Totals())), content_type, name)


@dataclass(slots=True)
class PrintedDay:
    """A day of a statement on paper."""

    requests: int = 0
    cost: Sum = field(default_factory=Sum)
    energy_wh: Sum = field(default_factory=Sum)
    carbon_gco2e: Sum = field(default_factory=Sum)


def printed(account: Account, period: Period) -> dict[str, Any]:
    """What the page to be printed shows: the statement's own lines, added up by day.

    `too_many` is the number of requests where the page would take long: such a statement is a download.
    """
    days = Days(period.since.astimezone(UTC).date(), period.until.astimezone(UTC).date())
    requests = sum(totals.requests for totals in usage_by_day(account.pk, days).values())
    if requests > MOST_PRINTED:
        return {"period": period, "too_many": requests}
    by_day: dict[date, PrintedDay] = {}
    totals = Totals()
    for line in lines(account, period, totals):
        take_turns()
        if line["line"] == "generation":
            day = by_day.setdefault(date.fromisoformat(str(line["created_at"])[:10]), PrintedDay())
            day.requests += 1
            for sums, name in ((day.cost, "cost"), (day.energy_wh, "energy_wh"), (day.carbon_gco2e, "carbon_gco2e")):
                figure = line[name]
                sums.add(figure if isinstance(figure, Decimal) else None)
    entries = [e for e in reversed(credit_of(account.pk, days)) if period.since <= e.created_at <= period.until]
    return {"period": period, "totals": totals, "days": by_day, "entries": entries}


@account_page("GET")  # no HEAD: it would read everything for nothing
@from_replica
def usage_export(request: HttpRequest, current: AccountContext) -> HttpResponseBase:
    """The sums by day and group as CSV."""
    choice, form = usage_choice.read(request.GET.dict(), current.account, "usage-export", timezone.now())
    if form.errors:
        return _refused("\n".join(f"{name}: {error}" for name, errors in form.errors.items() for error in errors))
    columns = ("day", *GROUP_COLUMNS[choice.by], *FIGURES)
    name = f"{_slug(current.account)}-usage-{choice.days.first}-{choice.days.last}-by-{choice.by}.csv"
    return _download(csv_blocks(_usage_lines(choice), columns), "text/csv; charset=utf-8", name)


def _usage_lines(choice: Choice) -> Iterator[Line]:
    """A line for each day and group with requests, oldest first. Read day by day, so that years need no more memory."""
    names: dict[Group, GroupName] = {}
    for number in range((choice.days.last - choice.days.first).days + 1):
        day = choice.days.first + timedelta(days=number)
        rows = breakdown(choice.scope, Days(day, day), *COLUMNS[choice.by])
        groups = {group_of(row, choice.by): row.totals for row in rows}
        names |= names_of_groups(choice, groups.keys() - names.keys())
        release("default")
        for group, totals in groups.items():
            # What the group is by id, and what it is called. Requests without an alias have neither.
            values = [None if part is None else str(part) for part in group]
            if choice.by in (Grouping.KEY, Grouping.ALIAS):
                values.append(None if values[0] is None else names[group].text)
            yield {
                "day": day.isoformat(),
                **dict(zip(GROUP_COLUMNS[choice.by], values, strict=True)),
                "requests": totals.requests,
                "interrupted": totals.interrupted,
                "estimated": totals.estimated,
                "prompt_tokens": totals.prompt_tokens,
                "completion_tokens": totals.completion_tokens,
                "currency": choice.account.currency,
                "cost": totals.cost,
                "requests_priced": totals.priced,
                "energy_wh": totals.energy_wh,
                "requests_with_energy": totals.energy_known,
                "carbon_gco2e": totals.carbon_gco2e,
                "requests_with_carbon": totals.carbon_known,
            }


@account_page("GET")  # no HEAD: it would read everything for nothing
@from_replica
def carbon_export(request: HttpRequest, current: AccountContext) -> HttpResponseBase:
    """The carbon page's sums by day, route and source as CSV: what every figure of the page is added up from."""
    choice, form = usage_choice.read(request.GET.dict(), current.account, "carbon-export", timezone.now())
    if form.errors:
        return _refused("\n".join(f"{name}: {error}" for name, errors in form.errors.items() for error in errors))
    name = f"{_slug(current.account)}-carbon-{choice.days.first}-{choice.days.last}.csv"
    return _download(csv_blocks(_carbon_lines(choice), CARBON_COLUMNS), "text/csv; charset=utf-8", name)


def _carbon_lines(choice: Choice) -> Iterator[Line]:
    """A line for each day, route and source of figure with requests, oldest first."""
    for number in range((choice.days.last - choice.days.first).days + 1):
        day = choice.days.first + timedelta(days=number)
        rows = breakdown(choice.scope, Days(day, day), *carbon.BY)
        release("default")
        for row in rows:
            group = {str(column): getattr(row, column) for column in carbon.BY}
            yield {"day": day.isoformat(), **group, **carbon.Footprint.of(row.totals).line}


def _download(blocks: Iterator[str], content_type: str, name: str) -> StreamingHttpResponse:
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingHttpResponse(blocks, content_type=content_type, headers=headers)


def _slug(account: Account) -> str:
    return slugify(account.name) or str(account.pk)


def _refused(message: str) -> HttpResponse:
    """Plain text, which nobody takes for the file."""
    return HttpResponseBadRequest(f"{message}\n", content_type="text/plain; charset=utf-8")
