"""Lists the alias endpoints."""

from django.urls import re_path

from . import api

NAME = r"(?P<name>[^/]+)"

urlpatterns = [
    re_path(r"^aliases/?$", api.Aliases.as_view()),
    re_path(rf"^aliases/{NAME}/?$", api.NamedAlias.as_view()),
    re_path(rf"^aliases/{NAME}/stats/?$", api.AliasStats.as_view()),
    re_path(rf"^aliases/{NAME}/history/?$", api.AliasHistory.as_view()),
]
