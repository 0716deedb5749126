"""The navigation on top of each page."""

from dataclasses import dataclass
from typing import Any

from django import template
from django.urls import NoReverseMatch, reverse

register = template.Library()


@dataclass(frozen=True, slots=True)
class Section:
    """A link of it: its page, and those below, by the names of URLs."""

    label: str
    page: str
    below: tuple[str, ...] = ()


SECTIONS = (
    Section("Overview", "overview"),
    Section("Usage", "usage", ("usage-records", "usage-record", "usage-failure")),
    Section("Carbon", "carbon"),
    Section("Billing", "credit"),
    Section("API keys", "keys", ("key", "delete-key")),
    Section("Models", "models", ("model",)),
    Section("Playground", "playground"),
    Section("Aliases", "aliases", ("alias", "delete-alias")),
    Section("Members", "members", ("member", "remove-member")),
)


@register.inclusion_tag("dashboard/navigation.html", takes_context=True)
def navigation(context: dict[str, Any]) -> dict[str, Any]:
    """The links, and the account switcher."""
    # The page of a request that matched no address, or met a fault before it could, is of no section.
    request = context["request"]
    match = request.resolver_match
    page = (match and match.url_name) or ""
    links = [
        {
            "label": section.label,
            "address": reverse(section.page),
            "aria_current": "page" if page == section.page else "true" if page in section.below else "",
        }
        for section in SECTIONS
    ]
    # Where another account is looked at: on this page, unless it is of one thing; then on its section's, or the first.
    try:
        switch = reverse(page)
    except NoReverseMatch:
        switch = reverse(next((section.page for section in SECTIONS if page in section.below), SECTIONS[0].page))
    if context.get("has_no_account"):
        links = []
    shared = {name: context.get(name) for name in ("account", "accounts", "user", "csrf_token")}
    return shared | {"page": page, "links": links, "switch": switch}
