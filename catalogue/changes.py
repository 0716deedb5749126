"""Counts the catalogue's version up with each change, so that workers know when to reload it."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
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
_quiet: ContextVar[bool] = ContextVar("catalogue_changes_quiet", default=False)


def bump() -> None:
    """Increases the version. Call it in the transaction of the change."""
    if not models.CatalogueVersion.objects.filter(pk=1).update(version=F("version") + 1):
        models.CatalogueVersion.objects.get_or_create(pk=1, defaults={"version": 1})


def hold() -> None:
    """Locks the catalogue: other writers wait until the transaction ends."""
    models.CatalogueVersion.objects.select_for_update(no_key=True).filter(pk=1).first()


def version() -> int:
    """Returns the version; 0 before the first change."""
    return models.CatalogueVersion.objects.filter(pk=1).values_list("version", flat=True).first() or 0


def bump_from(expected: int) -> bool:
    """Increases the version and locks its row if it is the expected one. Returns False if it is another."""
    if expected == 0:
        models.CatalogueVersion.objects.get_or_create(pk=1)
    return bool(models.CatalogueVersion.objects.filter(pk=1, version=expected).update(version=F("version") + 1))


@contextmanager
def quietly() -> Iterator[None]:
    """Stops saves and deletes within it from increasing the version; the caller does so once."""
    token = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(token)


def _on_change(**_kwargs: Any) -> None:
    if not _quiet.get():
        bump()


def watch_tables() -> None:
    """Makes every save and delete of a catalogue row increase the version."""
    for table in TABLES:
        post_save.connect(_on_change, sender=table, dispatch_uid=f"bump-save-{table.__name__}")
        post_delete.connect(_on_change, sender=table, dispatch_uid=f"bump-delete-{table.__name__}")
