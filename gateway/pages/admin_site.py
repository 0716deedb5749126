"""Holds the site of the admin, with a search over everything that staff look for."""

from typing import Any

from django.conf import settings
from django.contrib import admin
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, URLResolver, path

from .admin_search import MOST_FOUND, SearchTerm, groups_found

# The first page shows these names instead of those of Django's own tables.
PLAIN_NAMES = {"LogEntry": "Changes by staff"}


class OperatorSite(admin.AdminSite):
    """Is the admin: Django's site with our names and the search."""

    site_header = site_title = settings.OPERATOR_NAME
    index_title = "Administration"
    enable_nav_sidebar = False  # the tables need the space

    def get_urls(self) -> list[URLPattern | URLResolver]:
        return [path("search/", self.admin_view(self.search), name="search"), *super().get_urls()]

    def search(self, request: HttpRequest) -> HttpResponse:
        """Lists what matches `q` by kind. Redirects to the only match if `q` is its id."""
        term = SearchTerm.of(request.GET.get("q", ""))
        groups = groups_found(request, self._registry.values(), term)
        results = [result for group in groups for result in group.results]
        if len(results) == 1 and results[0].is_by_id:
            return HttpResponseRedirect(results[0].address)
        context = {"title": "Search", "term": term, "groups": groups, "most": MOST_FOUND}
        return TemplateResponse(request, "admin/search.html", self.each_context(request) | context)

    def get_app_list(self, request: HttpRequest, app_label: str | None = None) -> list[Any]:
        apps: list[Any] = super().get_app_list(request, app_label)
        for table in (table for app in apps for table in app["models"]):
            table["name"] = PLAIN_NAMES.get(table["object_name"], table["name"])
        return apps
