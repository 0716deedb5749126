"""The pages on the API, below `/docs`, and their list for language models."""

from django.urls import path
from django.views.generic import RedirectView

from . import pages

urlpatterns = [
    path("docs", RedirectView.as_view(pattern_name="docs-page", query_string=True), {"name": pages.GUIDE}, name="docs"),
    path("docs/reference", pages.reference, name="docs-reference"),
    path("docs/reference/<slug:group>", pages.reference_group, name="docs-reference-group"),
    path("docs/search", pages.find, name="docs-search"),
    path("docs/<path:name>.md", pages.markdown, name="docs-markdown"),
    path("docs/<path:name>", pages.page, name="docs-page"),
    path("llms.txt", pages.llms, name="llms"),
]
