"""The dashboard's pages on aliases."""

from django.urls import path

from . import views

urlpatterns = [
    path("aliases", views.aliases, name="aliases"),
    path("aliases/<uuid:alias_id>", views.alias, name="alias"),
    path("aliases/<uuid:alias_id>/delete", views.delete, name="delete-alias"),
]
