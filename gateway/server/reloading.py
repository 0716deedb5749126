"""Reads the settings again at a reload (SIGHUP), in gunicorn's master. New workers are copies of it."""

import importlib
import os
import sys

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.functional import empty


def read_settings_anew() -> None:
    """Replaces the settings by those now in the environment's file.

    Raises ImproperlyConfigured and changes nothing if a value is bad. METRICS_BIND keeps its value, because its process
    is started only once.
    """
    name, environment = os.environ["DJANGO_SETTINGS_MODULE"], dict(os.environ)
    before = sys.modules.pop(name)
    for variable in before.READ_FROM_FILE:
        os.environ.pop(variable, None)
    try:
        after = importlib.import_module(name)
    except ImproperlyConfigured:
        sys.modules[name] = before
        os.environ.clear()
        os.environ.update(environment)
        raise
    after.METRICS_BIND = before.METRICS_BIND  # type: ignore[attr-defined]
    settings._wrapped = empty  # the next access reads the module again
