"""Shows an account's audit log to its owners, and downloads it (docs/management.md#audit-log)."""

from collections.abc import Iterator
from datetime import UTC
from typing import Any
from uuid import UUID

import orjson
from django import forms
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.formats import date_format

from accounts import audit
from accounts.actions import Action
from accounts.audit import ShownEvent
from accounts.models import AuditEvent
from billing.usage.statement import Line, csv_blocks
from billing.usage.statistics import Days
from gateway.edge.rfc3339 import to_text

from .parts.access import AccountContext, account_page
from .parts.downloads import download, refused
from .parts.policy_words import LABELS, in_words

PAGE_ROWS = 50
ROWS_AT_ONCE = 500  # of a download
SUBJECTS = sorted({action.value.partition(".")[0] for action in Action if action != Action.TEST})
COLUMNS = (
    "at",
    "actor_kind",
    "actor_id",
    "actor",
    "action",
    "object_kind",
    "object_id",
    "object",
    "from",
    "to",
    "address",
    "request_id",
)


class AuditForm(forms.Form):
    """Asks which events are shown. Days are those of UTC, both included."""

    subject = forms.ChoiceField(
        label="What",
        required=False,
        choices=[("", "Everything"), *((each, each.replace("_", " ")) for each in SUBJECTS)],
    )
    who = forms.ChoiceField(label="By", required=False, choices=[("", "Anybody"), *AuditEvent.ActorKind.choices])
    since = forms.DateField(label="From", required=False, widget=forms.DateInput(attrs={"type": "date"}))
    until = forms.DateField(label="To", required=False, widget=forms.DateInput(attrs={"type": "date"}))

    def __init__(self, data: Any) -> None:
        super().__init__(data, auto_id="audit-%s", label_suffix="")

    def chosen(self, current: AccountContext) -> "QuerySet[AuditEvent]":
        """Selects the account's events, newest first. The form is valid."""
        fields, events = self.cleaned_data, AuditEvent.objects.filter(account=current.account).order_by("-pk")
        if fields["subject"]:
            events = events.filter(action__startswith=f"{fields['subject']}.")
        if fields["who"]:
            events = events.filter(actor_kind=fields["who"])
        if fields["since"] is not None:
            events = events.filter(created_at__gte=Days(fields["since"], fields["since"]).since)
        if fields["until"] is not None:
            events = events.filter(created_at__lt=Days(fields["until"], fields["until"]).before)
        return events


@account_page("GET", "HEAD")
def audit_log(request: HttpRequest, current: AccountContext) -> HttpResponse:
    """Lists an account's events in pages, newest first."""
    current.require_owner()
    form = AuditForm(request.GET)
    events = form.chosen(current) if form.is_valid() else AuditEvent.objects.none()
    before = request.GET.get("before")
    if before is not None:
        try:
            events = events.filter(pk__lt=UUID(before))
        except ValueError:
            raise Http404 from None
    rows = audit.shown(events[: PAGE_ROWS + 1])
    currency = current.account.currency
    query = request.GET.copy()
    query.pop("before", None)
    context = {
        "form": form,
        "events": [(event, _words(event.old, currency), _words(event.new, currency)) for event in rows[:PAGE_ROWS]],
        "older": rows[PAGE_ROWS - 1].event.pk if len(rows) > PAGE_ROWS else None,
        "before": before,
        "account_id": str(current.account.pk),
        "query": query.urlencode(),
    }
    return current.page(request, "audit", context, form)


@account_page("GET")  # no HEAD: it would read everything for nothing
def audit_export(request: HttpRequest, current: AccountContext) -> HttpResponseBase:
    """Streams the chosen events as CSV, newest first."""
    current.require_owner()
    form = AuditForm(request.GET)
    if not form.is_valid():
        return refused("\n".join(f"{name}: {error}" for name, errors in form.errors.items() for error in errors))
    lines = _lines(form.chosen(current))
    name = f"audit-{timezone.now():%Y-%m-%d}.csv"
    return download(csv_blocks(lines, COLUMNS), "text/csv; charset=utf-8", current, name)


def _lines(events: "QuerySet[AuditEvent]") -> Iterator[Line]:
    last = None
    while True:
        block = list((events if last is None else events.filter(pk__lt=last))[:ROWS_AT_ONCE])
        yield from map(_line, audit.shown(block))
        if len(block) < ROWS_AT_ONCE:
            return
        last = block[-1].pk


def _line(shown: ShownEvent) -> Line:
    event = shown.event
    values = (
        to_text(event.created_at),
        event.actor_kind,
        event.actor_id or None,
        shown.actor_name or None,
        event.action,
        event.object_kind,
        event.object_id,
        shown.object_name or None,
        None if event.old is None else orjson.dumps(event.old).decode(),
        None if event.new is None else orjson.dumps(event.new).decode(),
        event.address,
        event.request_id or None,
    )
    return dict(zip(COLUMNS, values, strict=True))


def _words(values: Any, currency: str) -> list[str]:
    """Writes each field that an event replaced or set. Empty fields are left out if there are others."""
    if not isinstance(values, dict):
        return []
    found = {name: value for name, value in sorted(values.items()) if value is not None or len(values) == 1}
    return [
        f"{LABELS[name] if name in LABELS else name.replace('_', ' ').capitalize()}: {_word(name, value, currency)}"
        for name, value in found.items()
    ]


def _word(name: str, value: Any, currency: str) -> str:
    if value is None:
        return "none"
    if name in LABELS:
        return in_words(name, value, currency)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(_as_stored, value)) or "none"
    is_time = name.endswith(("_at", "_until")) and isinstance(value, str)
    moment = parse_datetime(value) if is_time else None
    return _as_stored(value) if moment is None else f"{date_format(moment.astimezone(UTC), 'j M Y H:i')} UTC"


def _as_stored(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()
