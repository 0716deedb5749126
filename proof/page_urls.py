"""Routes the members' download of a receipt."""

from django.urls import path

from . import pages

urlpatterns = [path("usage/records/<str:generation_id>/receipt", pages.record_receipt, name="record-receipt")]
