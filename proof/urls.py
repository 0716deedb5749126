"""Routes the receipt of a generation, below the API's prefix."""

from django.urls import re_path

from .api import Receipt

urlpatterns = [re_path(r"^generation/(?P<generation_id>[^/]+)/receipt/?$", Receipt.as_view(), name="receipt")]
