"""The bar on top of each page: the account that is looked at, the pages of it, and the person."""

from dataclasses import dataclass
from typing import Any

from django import template
from django.urls import NoReverseMatch, reverse

register = template.Library()


@dataclass(frozen=True, slots=True)
class Section:
    """A link of the bar. `page` and `below` are names of addresses: its own page, and those that it leads on to."""

    label: str
    page: str
    below: tuple[str, ...] = ()


SECTIONS = (
    Section("Overview", "overview"),
    Section("Usage", "usage", ("usage-records", "usage-record")),
    Section("Credit", "credit"),
    Section("Keys", "keys", ("delete-key",)),
    Section("Models", "models"),
    Section("Aliases", "aliases", ("alias", "delete-alias")),
    Section("Members", "members", ("member", "remove-member")),
)


@register.inclusion_tag("bar.html", takes_context=True)
def bar(context: dict[str, Any]) -> dict[str, Any]:
    """The page of a request that matched no address, or met a fault before it could, is of no section."""
    request = context["request"]
    match = request.resolver_match
    page = (match and match.url_name) or ""
    shared = {name: context.get(name) for name in ("account", "accounts", "user", "csrf_token")}
    return shared | {"page": page, "links": [_link(section, page) for section in SECTIONS], "switch": _switch(page)}


def _link(section: Section, page: str) -> dict[str, str]:
    """`current` is the value of aria-current, if any."""
    current = "page" if page == section.page else "true" if page in section.below else ""
    return {"label": section.label, "address": reverse(section.page), "current": current}


def _switch(page: str) -> str:
    """Where another account is looked at: this page, unless it is of one thing; then its section's, or the first."""
    own = next((section.page for section in SECTIONS if page in section.below), SECTIONS[0].page)
    try:
        return reverse(page)
    except NoReverseMatch:
        return reverse(own)
