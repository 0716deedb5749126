"""Builds the navigation at the top of each page."""

from dataclasses import dataclass
from typing import Any

from django import template
from django.urls import NoReverseMatch, reverse

register = template.Library()


@dataclass(frozen=True, slots=True)
class Section:
    """Describes a link of the navigation: its page, and the pages `below` it, by the names of URLs.

    What `is_set_up_once` is in the menu "Account", so that the bar has one row.
    """

    label: str
    page: str
    below: tuple[str, ...] = ()
    is_for_owners: bool = False
    is_set_up_once: bool = False


SECTIONS = (
    Section("Overview", "overview"),
    Section("Usage", "usage"),
    Section("Requests", "usage-records", ("usage-record", "usage-failure")),
    Section("Carbon", "carbon"),
    Section("Billing", "credit"),
    Section("API keys", "keys", ("key", "delete-key", "rotate-key")),
    Section("Models", "models", ("model", "compare")),
    Section("Playground", "playground"),
    Section("Aliases", "aliases", ("alias", "delete-alias")),
    Section("Members", "members", ("member", "remove-member"), is_set_up_once=True),
    Section(
        "Policies", "policies", ("account-policy", "default-policy", "tag-policy", "key-policy"), is_set_up_once=True
    ),
    Section("Webhooks", "webhooks", ("webhook", "delete-webhook"), is_for_owners=True, is_set_up_once=True),
    Section("Audit log", "audit", is_for_owners=True, is_set_up_once=True),
)


@register.inclusion_tag("dashboard/navigation.html", takes_context=True)
def navigation(context: dict[str, Any]) -> dict[str, Any]:
    """Returns the links, and what the account switcher needs."""
    # A request whose address matched no page, or that failed before, belongs to no section.
    request = context["request"]
    match = request.resolver_match
    page = (match and match.url_name) or ""
    links = [
        {
            "label": section.label,
            "address": reverse(section.page),
            "aria_current": "page" if page == section.page else "true" if page in section.below else "",
            "is_set_up_once": section.is_set_up_once,
        }
        for section in SECTIONS
        if context.get("is_owner") or not section.is_for_owners
    ]
    # Switching the account stays on this page, unless it shows one thing of the account: then it goes to the section's
    # page, or to the first one.
    try:
        switch = context.get("switch") or reverse(page)  # the documents' pages need the address they have
    except NoReverseMatch:
        switch = reverse(next((section.page for section in SECTIONS if page in section.below), SECTIONS[0].page))
    if context.get("has_no_account"):
        links = []
    shared = {name: context.get(name) for name in ("account", "accounts", "user", "csrf_token")}
    bar = [link for link in links if not link["is_set_up_once"]]
    menu = [link for link in links if link["is_set_up_once"]]
    return shared | {"page": page, "links": bar, "menu": menu, "switch": switch}
