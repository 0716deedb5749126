"""Shows `/docs`: the documents as pages and as Markdown, the reference, and a search through all of them."""

import re
from typing import Any

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.cache import add_never_cache_headers
from django.utils.safestring import mark_safe
from django.views.decorators.http import require_safe

from dashboard.overview import newest_requests
from dashboard.parts.access import AccountContext, NoAccount, account_context
from dashboard.parts.routes import model_for_example

from . import documents
from .documents import FOR_CALLERS, Heading
from .endpoints import group_of_objects, groups
from .samples import Samples, kind_of, samples
from .search import LONGEST_QUERY, search

GUIDE, REFERENCE, INDEX = "guide", "reference", "index"
# The documents that clients read first, in this order; the last lists all of them.
CONTENTS = {
    GUIDE: "Guide",
    "api": "HTTP API",
    REFERENCE: "Reference",
    "energy": "Energy and carbon",
    "catalogue": "Catalogue",
    "statements": "Statements",
    INDEX: "All documents",
}
_LINK_TO_A_PAGE = re.compile(r'href="([^":#?]+)(#[^"]*)?"')


@require_safe
def page(request: HttpRequest, name: str) -> HttpResponse:
    """Shows one document, by its name without `.md`."""
    document = documents.read(name)
    current = _account_of(request)
    text = _samples_for(current).in_html(document.html) if name in FOR_CALLERS else document.html
    if current is not None:
        text = _LINK_TO_A_PAGE.sub(rf'href="\1{_query_string(current)}\2"', text)
    context = {
        "title": document.headings[0].text,
        "text": mark_safe(text),  # noqa: S308  # of our own files, with escaped words
        "headings": [heading for heading in document.headings if heading.level in (2, 3)],
    }
    return _shown(request, current, "document", name, context)


@require_safe
def markdown(_request: HttpRequest, name: str) -> HttpResponse:
    """Returns one document as it is written."""
    text = documents.path_of(name).read_text(encoding="utf-8")
    return HttpResponse(text, content_type="text/markdown; charset=utf-8")


@require_safe
def llms(request: HttpRequest) -> HttpResponse:
    """Lists the documents with their addresses as Markdown, as https://llmstxt.org proposes."""
    _title, summary, *sections = documents.path_of(INDEX).read_text(encoding="utf-8").split("\n\n")
    text = "\n\n".join([f"# {settings.OPERATOR_NAME}", f"> {summary}", *sections])
    folder = request.build_absolute_uri(reverse("docs-markdown", args=[INDEX])).removesuffix(f"{INDEX}.md")
    return HttpResponse(text.replace("](", f"]({folder}"), content_type="text/plain; charset=utf-8")


@require_safe
def reference(request: HttpRequest) -> HttpResponse:
    """Lists every endpoint and object of the API, with links to the pages that show them."""
    headings = [Heading(2, group.name, group.label) for group in groups().values()]
    context = {"groups": groups().values(), "headings": headings}
    return _shown(request, _account_of(request), "reference", REFERENCE, context)


@require_safe
def reference_group(request: HttpRequest, group: str) -> HttpResponse:
    """Shows the endpoints of a group and its objects."""
    if group not in groups():
        raise Http404
    shown, current = groups()[group], _account_of(request)
    words = _samples_for(current)
    query_string = _query_string(current)

    def linked(objects: list[str]) -> list[tuple[str, str]]:
        homes = [(name, group_of_objects()[name]) for name in objects]
        pages = {home: reverse("docs-reference-group", args=[home]) + query_string for _, home in homes}
        return [(name, f"{'' if home == group else pages[home]}#{name}") for name, home in homes]

    endpoints = [
        each
        | {"example": words.in_text(each["example"]), "note": words.note(kind_of(each["example"]))}
        | {"body": linked(each["body"]), "answered": linked(each["answered"])}
        for each in shown.endpoints
    ]
    headings = [Heading(2, each["operationId"], f"{each['method']} {each['path']}") for each in endpoints]
    headings += [Heading(2, "objects", "Objects")] if shown.objects else []
    headings += [Heading(3, each["name"], each["name"]) for each in shown.objects]
    context = {
        "groups": groups().values(),
        "group": shown,
        "endpoints": endpoints,
        "headings": headings,
    }
    return _shown(request, current, "reference_group", REFERENCE, context)


@require_safe
def find(request: HttpRequest) -> HttpResponse:
    """Searches all pages of the documentation."""
    query = "".join(filter(str.isprintable, request.GET.get("q", "")))[:LONGEST_QUERY].strip()
    current = _account_of(request)
    found = search(query, _samples_for(current))
    return _shown(request, current, "search", "", {"query": query, "found": found})


def _account_of(request: HttpRequest) -> AccountContext | None:
    """Returns the account of `?account=` if its reader may see it, else their first one; None if they have none.

    The pages are public, so a link with another's account is answered too.
    """
    if not request.user.is_authenticated:
        return None
    for account_id in dict.fromkeys((request.GET.get("account"), None)):
        try:
            return account_context(request, account_id)
        except NoAccount:
            return None
        except Http404:
            continue
    return None


def _samples_for(current: AccountContext | None) -> Samples:
    now = timezone.now()
    if current is None:
        return samples(now)
    account = current.account
    return samples(now, account, model_for_example(newest_requests(account.pk, now), account, now))


def _query_string(current: AccountContext | None) -> str:
    return f"?account={current.account.pk}" if current else ""


def _shown(
    request: HttpRequest, current: AccountContext | None, template: str, name: str, context: dict[str, Any]
) -> HttpResponse:
    context |= {"contents": CONTENTS, "current": name, "switch": request.path, "has_no_account": current is None}
    context |= current.template_context if current else {}
    context["query_string"] = _query_string(current)
    response = render(request, f"reference/{template}.html", context)
    if request.user.is_authenticated:
        add_never_cache_headers(response)
    return response
