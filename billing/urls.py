"""Routes the endpoints that read records."""

from django.urls import re_path

from . import records_api

urlpatterns = [
    re_path(r"^generations/?$", records_api.Generations.as_view()),
    re_path(r"^generation/(?P<generation_id>[^/]+)/?$", records_api.GenerationDetail.as_view()),
    re_path(r"^metrics/(?P<generation_id>[^/]+)/?$", records_api.Metrics.as_view()),
]
