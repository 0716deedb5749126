"""The dashboard's pages on money and use."""

from django.urls import path

from .views.overview import overview
from .views.statement import statement

urlpatterns = [
    path("", overview, name="overview"),
    path("statement", statement, name="statement"),
]
