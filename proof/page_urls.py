"""Routes the members' downloads of proofs."""

from django.urls import path

from . import pages

urlpatterns = [
    path("usage/records/<str:generation_id>/receipt", pages.record_receipt, name="record-receipt"),
    path("statement/proofs", pages.statement_proofs, name="statement-proofs"),
]
