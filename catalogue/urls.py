"""Lists the catalogue's endpoints."""

from django.urls import re_path

from . import api

urlpatterns = [
    re_path(r"^providers/?$", api.Providers.as_view()),
    re_path(r"^models/?$", api.Models.as_view()),
    re_path(r"^models/(?P<model_id>.+?)/?$", api.Model.as_view()),
]
