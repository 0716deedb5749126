"""Finds a text in the database, for tests of what should have been deleted."""

from django.apps import apps
from django.db import models


def places_of(text: str) -> set[str]:
    """Returns every text column that contains it, ignoring case, as table and column."""
    found = set()
    for model in apps.get_models():
        for field in model._meta.concrete_fields:
            if isinstance(field, models.CharField | models.TextField | models.JSONField):
                values = model._base_manager.values_list(field.name, flat=True)
                if any(text.lower() in str(value).lower() for value in values):
                    found.add(f"{model._meta.label_lower}.{field.name}")
    return found
