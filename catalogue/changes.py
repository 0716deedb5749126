"""Telling the workers that the catalogue has changed."""

from typing import Any

from django.db.models import F, Model
from django.db.models.signals import post_delete, post_save

from . import models

TABLES: tuple[type[Model], ...] = (
    models.Place,
    models.GridIntensity,
    models.EnergyEstimate,
    models.ExchangeRate,
    models.Provider,
    models.Model,
    models.Region,
)


def bump() -> None:
    """Moves the version, in the transaction of the change. Bulk writes call it themselves."""
    if not models.CatalogueVersion.objects.filter(pk=1).update(version=F("version") + 1):
        models.CatalogueVersion.objects.get_or_create(pk=1, defaults={"version": 1})


def _on_change(**_kwargs: Any) -> None:
    bump()


def watch_tables() -> None:
    """Makes every save and delete of a catalogue row move the version (the admin's edits, above all)."""
    for table in TABLES:
        post_save.connect(_on_change, sender=table, dispatch_uid=f"bump-save-{table.__name__}")
        post_delete.connect(_on_change, sender=table, dispatch_uid=f"bump-delete-{table.__name__}")
