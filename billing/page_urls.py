"""The dashboard's pages on money and use."""

from django.urls import path

from . import views

urlpatterns = [
    path("", views.overview, name="overview"),
    path("statement", views.statement, name="statement"),
]
