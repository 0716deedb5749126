"""The dashboard's pages on money and use."""

from django.urls import path

from .views.credit import credit
from .views.overview import overview
from .views.statement import statement
from .views.usage import export, record, records, usage

urlpatterns = [
    path("", overview, name="overview"),
    path("credit", credit, name="credit"),
    path("statement", statement, name="statement"),
    path("usage", usage, name="usage"),
    path("usage/export", export, name="usage-export"),
    path("usage/records", records, name="usage-records"),
    path("usage/records/<str:generation_id>", record, name="usage-record"),
]
