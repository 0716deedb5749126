"""Routes the endpoints that read records."""

from django.urls import re_path

from . import api

urlpatterns = [
    re_path(r"^generations/?$", api.Generations.as_view()),
    re_path(r"^generation/(?P<generation_id>[^/]+)/?$", api.GenerationDetail.as_view()),
    re_path(r"^metrics/(?P<generation_id>[^/]+)/?$", api.Metrics.as_view()),
]
