"""The catalogue's version, which tells the workers that something has changed."""

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
    """Moves the version, in the transaction of the change."""
    if not models.CatalogueVersion.objects.filter(pk=1).update(version=F("version") + 1):
        models.CatalogueVersion.objects.get_or_create(pk=1, defaults={"version": 1})


def hold() -> None:
    """Makes other writers of the catalogue wait until the end of the transaction."""
    models.CatalogueVersion.objects.select_for_update(no_key=True).filter(pk=1).first()


def version() -> int:
    """The version now; 0 before the first change."""
    return models.CatalogueVersion.objects.filter(pk=1).values_list("version", flat=True).first() or 0


def bump_from(expected: int) -> bool:
    """Moves the expected version, and holds its row."""
    if expected == 0:
        models.CatalogueVersion.objects.get_or_create(pk=1)
    return bool(models.CatalogueVersion.objects.filter(pk=1, version=expected).update(version=F("version") + 1))


@contextmanager
def quietly() -> Iterator[None]:
    """Row signals leave the version to the writer."""
    token = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(token)


def _on_change(**_kwargs: Any) -> None:
    if not _quiet.get():
        bump()


def watch_tables() -> None:
    """Makes every save and delete of a catalogue row move the version."""
    for table in TABLES:
        post_save.connect(_on_change, sender=table, dispatch_uid=f"bump-save-{table.__name__}")
        post_delete.connect(_on_change, sender=table, dispatch_uid=f"bump-delete-{table.__name__}")
