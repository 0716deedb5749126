"""Streams downloads, such as the CSV of a page of usage."""

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta

from django.forms import BaseForm
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest, HttpResponseBase, StreamingHttpResponse
from django.utils import timezone
from django.utils.http import content_disposition_header

from accounts import audit
from accounts.actions import Action
from accounts.audit import Subject
from billing.usage.statement import Line, csv_blocks
from billing.usage.statistics import Days

from . import choices
from .access import AccountContext
from .choices import Choice


def chosen_csv(
    request: HttpRequest,
    current: AccountContext,
    page: str,
    columns: Callable[[Choice], Sequence[str]],
    lines: Callable[[Choice], Iterator[Line]],
) -> HttpResponseBase:
    """Streams the lines of the choice in the address as CSV. Answers 400 if its days are invalid."""
    choice, form = choices.read(request.GET.dict(), current.account, f"{page}-export", timezone.now())
    if form.errors:
        return refused_choice(form)
    by = f"-by-{choice.by}" if page == "usage" else ""
    name = f"{page}-{choice.days.first}-{choice.days.last}{by}.csv"
    return download(csv_blocks(lines(choice), columns(choice)), "text/csv; charset=utf-8", current, name)


def each_day(days: Days) -> Iterator[Days]:
    """Yields each day as a period, oldest first. Read day by day, years need no more memory than a day."""
    for number in range((days.last - days.first).days + 1):
        day = days.first + timedelta(days=number)
        yield Days(day, day)


def download(blocks: Iterator[str], content_type: str, current: AccountContext, name: str) -> StreamingHttpResponse:
    """Streams a file, which the audit log notes. Browsers save it under the account's name followed by `name`."""
    audit.record(current.account.pk, Action.EXPORT_MADE, Subject("file", name[:65]))
    owner = _in_file_name(current.account.name)
    if owner.isascii():
        disposition = content_disposition_header(True, f"{owner or current.account.pk}-{name}")
    else:  # clients without RFC 6266 use the account's id instead of its name
        encoded = str(content_disposition_header(True, f"{owner}-{name}")).removeprefix("attachment; ")
        disposition = f'attachment; filename="{current.account.pk}-{name}"; {encoded}'
    return StreamingHttpResponse(blocks, content_type=content_type, headers={"Content-Disposition": disposition})


def refused(message: str) -> HttpResponse:
    """Answers 400 with plain text, which cannot be mistaken for the file."""
    return HttpResponseBadRequest(f"{message}\n", content_type="text/plain; charset=utf-8")


def refused_choice(form: BaseForm) -> HttpResponse:
    """Answers 400 with the errors of the form, a line each."""
    return refused("\n".join(f"{name}: {error}" for name, errors in form.errors.items() for error in errors))


def _in_file_name(name: str) -> str:
    # Keeps letters, marks and digits of every script; the rest may have a meaning for a file system or a shell.
    kept = (char if unicodedata.category(char)[0] in "LMN" else " " for char in name.lower())
    return "-".join("".join(kept).split())
