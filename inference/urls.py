"""The inference endpoints, under `/v1` and `/api/v1`, with and without a trailing slash."""

from django.urls import re_path

from . import api

urlpatterns = [
    re_path(r"^chat/completions/?$", api.chat_completions),
    re_path(r"^completions/?$", api.completions),
    re_path(r"^embeddings/?$", api.embeddings),
]
