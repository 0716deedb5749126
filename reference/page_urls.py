"""The pages on the API, below `/docs`."""

from django.urls import path
from django.views.generic import RedirectView

from . import pages

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="docs-page"), {"name": pages.GUIDE}, name="docs"),
    path("/reference", pages.reference, name="docs-reference"),
    path("/<path:name>", pages.page, name="docs-page"),
]
