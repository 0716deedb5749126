"""Routes the description of the API, below its prefix."""

from django.urls import re_path

from .openapi import OpenApi

urlpatterns = [re_path(r"^openapi\.json/?$", OpenApi.as_view())]
