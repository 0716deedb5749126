"""Extends the product's settings for test_overload.py: few connections, and patience while a test locks a table.

Django has as many connections as a worker has own sessions. No wait ends before the test's lock does.
"""

from django.apps import AppConfig

from gateway.settings import *  # noqa: F403
from gateway.settings import DATABASES, INSTALLED_APPS

PATIENCE_SECONDS = 300.0

for database in DATABASES.values():
    options = database["OPTIONS"]
    if "pool" in options:
        options["pool"]["timeout"] = PATIENCE_SECONDS
        options["options"] = f"-c statement_timeout={PATIENCE_SECONDS * 1000:.0f}"
if "pool" in DATABASES["default"]["OPTIONS"]:
    DATABASES["default"]["OPTIONS"]["pool"]["max_size"] = 8


class Patience(AppConfig):
    """Lengthens the waits for a statement when a process starts."""

    name = "tests.inference"
    label = "patience"

    def ready(self) -> None:
        from gateway.db import pool  # noqa: PLC0415  # needs the settings above

        pool.BRIEF_SECONDS = PATIENCE_SECONDS


INSTALLED_APPS = [*INSTALLED_APPS, f"{__name__}.Patience"]
