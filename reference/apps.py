from django.apps import AppConfig


class ReferenceConfig(AppConfig):
    """Above every app whose endpoints it describes; it has no tables."""

    name = "reference"
