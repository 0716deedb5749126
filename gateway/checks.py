"""`gateway.settings_warnings` among the checks of `manage.py check`; gunicorn logs them at its start."""

from typing import Any

from django.core import checks

from . import settings_warnings


@checks.register(checks.Tags.caches)
def settings_are_sensible(**_options: Any) -> list[checks.CheckMessage]:
    """Each as a warning of Django's."""
    return [checks.Warning(found.message, hint=found.hint, id=found.id) for found in settings_warnings.current()]
