"""Where in the database a text is, for tests of what should be gone."""

from django.apps import apps
from django.db import models


def places_of(text: str) -> set[str]:
    """Every column of text that has it, in whatever case, by table."""
    found = set()
    for model in apps.get_models():
        for field in model._meta.concrete_fields:
            if isinstance(field, models.CharField | models.TextField | models.JSONField):
                values = model._base_manager.values_list(field.name, flat=True)
                if any(text.lower() in str(value).lower() for value in values):
                    found.add(f"{model._meta.label_lower}.{field.name}")
    return found
