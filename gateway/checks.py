"""The advice of `gateway.advice` among the checks of `manage.py check`; gunicorn gives it at its start."""

from typing import Any

from django.core import checks

from .advice import given


@checks.register(checks.Tags.caches)
def settings_are_sensible(**_options: Any) -> list[checks.CheckMessage]:
    """Each piece of advice as a warning."""
    return [checks.Warning(advice.message, hint=advice.hint, id=advice.id) for advice in given()]
