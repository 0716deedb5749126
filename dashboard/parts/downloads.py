"""Downloads: streamed files, and the CSV of a page of usage."""

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta

from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest, HttpResponseBase, StreamingHttpResponse
from django.utils import timezone
from django.utils.text import slugify

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
    """The lines of an address's choice; 400 where the days are none."""
    choice, form = choices.read(request.GET.dict(), current.account, f"{page}-export", timezone.now())
    if form.errors:
        return refused("\n".join(f"{name}: {error}" for name, errors in form.errors.items() for error in errors))
    by = f"-by-{choice.by}" if page == "usage" else ""
    name = f"{page}-{choice.days.first}-{choice.days.last}{by}.csv"
    return download(csv_blocks(lines(choice), columns(choice)), "text/csv; charset=utf-8", current, name)


def each_day(days: Days) -> Iterator[Days]:
    """Day by day, oldest first: read so, years need no more memory."""
    for number in range((days.last - days.first).days + 1):
        day = days.first + timedelta(days=number)
        yield Days(day, day)


def download(blocks: Iterator[str], content_type: str, current: AccountContext, name: str) -> StreamingHttpResponse:
    """A file that is saved under the account's name and this one."""
    owner = slugify(current.account.name) or str(current.account.pk)
    headers = {"Content-Disposition": f'attachment; filename="{owner}-{name}"'}
    return StreamingHttpResponse(blocks, content_type=content_type, headers=headers)


def refused(message: str) -> HttpResponse:
    """Plain text, which nobody takes for the file."""
    return HttpResponseBadRequest(f"{message}\n", content_type="text/plain; charset=utf-8")
